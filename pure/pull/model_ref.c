#include "pure/pull/model_ref.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "pure/text/escape.h"

// Returns the text after a prefix; NULL if it does not begin with it.
static const char *after(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

static bool is_word_char(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

// True for a name of letters, digits, '-', '_' and '.' that does not begin with a dot.
static bool is_word(const char *at, size_t n) {
    if (n == 0 || n > 96 || at[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word_char(at[i])) return false;
    return true;
}

bool kin_path_is_safe(const char *path) {
    char shown[KIN_ESCAPE_CHAR];
    bool begins_part = true;
    for (const char *at = path; *at;) {
        size_t n = kin_escape_char(at, strlen(at), shown);
        if (strncmp(shown, at, n) != 0 || shown[n] || *at == '\\') return false;
        if (begins_part && (*at == '/' || *at == '.')) return false;
        begins_part = *at == '/';
        at += n;
    }
    return !begins_part;
}

const char *kin_path_file(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_in_gguf(const char *text) {
    static const char suffix[] = ".gguf";
    size_t n = strlen(text), n_suffix = sizeof suffix - 1;
    if (n <= n_suffix) return false;
    for (size_t i = 0; i < n_suffix; i++)
        if (tolower((unsigned char)text[n - n_suffix + i]) != suffix[i]) return false;
    return true;
}

static bool copy(char *to, size_t size, const char *at, size_t n) {
    if (n >= size) return false;
    memcpy(to, at, n);
    to[n] = '\0';
    return true;
}

// ---- Hugging Face

static int hf_malformed(const char *text, kin_err *err) {
    return kin_err_set(
        err, "'%.200s' is not a name on Hugging Face: write hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf", text);
}

// rest: OWNER/REPO[:QUANT|/FILE]
static int parse_hf(kin_model_ref *ref, const char *rest, const char *text, kin_err *err) {
    size_t n_owner = strcspn(rest, "/"), n_repo;
    if (rest[n_owner] != '/') return hf_malformed(text, err);
    n_repo = strcspn(rest + n_owner + 1, "/:");
    const char *end = rest + n_owner + 1 + n_repo;
    if (!is_word(rest, n_owner) || !is_word(rest + n_owner + 1, n_repo)) return hf_malformed(text, err);
    ref->registry = KIN_REGISTRY_HF;
    ref->is_file = *end == '/';
    if (!copy(ref->repo, sizeof ref->repo, rest, (size_t)(end - rest))) return hf_malformed(text, err);
    if (*end == '\0') return 0;
    const char *pick = end + 1;
    if (!copy(ref->pick, sizeof ref->pick, pick, strlen(pick))) return hf_malformed(text, err);
    if (ref->is_file ? !kin_path_is_safe(pick) || !ends_in_gguf(pick) : !is_word(pick, strlen(pick)))
        return hf_malformed(text, err);
    return 0;
}

// The address of a page or file of Hugging Face as a browser shows it. KIN_ABSENT: another address of that server.
static int parse_hf_address(kin_model_ref *ref, const char *rest, const char *text, kin_err *err) {
    char name[KIN_REF_TEXT];
    size_t n = strcspn(rest, "?#");
    if (!copy(name, sizeof name, rest, n)) return hf_malformed(text, err);
    while (n > 0 && name[n - 1] == '/') name[--n] = '\0';
    char *slash = strchr(name, '/');
    char *verb = slash ? strchr(slash + 1, '/') : NULL;
    if (!verb || strcmp(verb, "/tree/main") == 0) {
        if (verb) *verb = '\0';
        return parse_hf(ref, name, text, err);
    }
    const char *file = after(verb, "/resolve/main/");
    if (!file) file = after(verb, "/blob/main/");
    if (!file) return KIN_ABSENT;
    memmove(verb + 1, file, strlen(file) + 1);
    return parse_hf(ref, name, text, err);
}

// ---- Ollama

// rest: NAME[:TAG] or USER/NAME[:TAG]
static int parse_ollama(kin_model_ref *ref, const char *rest, const char *text, kin_err *err) {
    size_t n = strcspn(rest, ":"), n_user = strcspn(rest, "/:");
    const char *tag = rest[n] == ':' ? rest + n + 1 : "latest";
    const char *name = rest[n_user] == '/' ? rest + n_user + 1 : rest;
    size_t n_name = (size_t)(rest + n - name);
    bool is_ok = is_word(name, n_name) && is_word(tag, strlen(tag)) && (name == rest || is_word(rest, n_user));
    if (!is_ok)
        return kin_err_set(err, "'%.200s' is not a name in Ollama's registry: write ollama:NAME or ollama:NAME:TAG", text);
    ref->registry = KIN_REGISTRY_OLLAMA;
    if (name == rest)
        snprintf(ref->repo, sizeof ref->repo, "library/%.*s", (int)n_name, name);
    else
        snprintf(ref->repo, sizeof ref->repo, "%.*s", (int)n, rest);
    snprintf(ref->pick, sizeof ref->pick, "%s", tag);
    return 0;
}

// ---- any server

static int parse_web(kin_model_ref *ref, const char *text, kin_err *err) {
    const char *host = strstr(text, "://") + 3;
    size_t n_host = strcspn(host, "/?#"), n_path = strcspn(host, "?#");
    char path[KIN_REF_PICK];
    bool is_ok = n_host > 0 && n_host < KIN_REF_REPO && strlen(text) < KIN_REF_TEXT && host[n_host] == '/';
    for (const char *at = text; *at; at++) is_ok = is_ok && (unsigned char)*at > ' ' && (unsigned char)*at < 127;
    if (memchr(host, '@', n_host))
        return kin_err_set(err,
                           "an address may not contain a user or a password, because it is shown and stored: write them into "
                           "~/.netrc");
    if (!is_ok || !copy(path, sizeof path, host + n_host + 1, n_path - n_host - 1))
        return kin_err_set(err, "'%.200s' is not the address of a file", text);
    if (!ends_in_gguf(path) || !kin_path_is_safe(path))
        return kin_err_set(err, "'%.200s': kin fetches model files, whose addresses end in .gguf", text);
    ref->registry = KIN_REGISTRY_WEB;
    copy(ref->repo, sizeof ref->repo, host, n_host);
    copy(ref->url, sizeof ref->url, text, strlen(text));
    copy(ref->pick, sizeof ref->pick, path, strlen(path));
    ref->is_file = true;
    return 0;
}

// ----

int kin_model_ref_parse(kin_model_ref *ref, const char *text, kin_err *err) {
    static const char *const pages[] = {"https://huggingface.co/", "http://huggingface.co/", "https://hf.co/", "huggingface.co/",
                                        "hf.co/"};
    const char *rest;
    *ref = (kin_model_ref){0};
    if ((rest = after(text, "hf:"))) return parse_hf(ref, rest, text, err);
    if ((rest = after(text, "ollama:"))) return parse_ollama(ref, rest, text, err);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (!(rest = after(text, pages[i]))) continue;
        int rc = strstr(pages[i], "://") ? parse_hf_address(ref, rest, text, err) : parse_hf(ref, rest, text, err);
        if (rc != KIN_ABSENT) return rc;
        *ref = (kin_model_ref){0};
    }
    if (after(text, "https://") || after(text, "http://")) return parse_web(ref, text, err);
    return KIN_ABSENT;
}

const char *kin_model_ref_base(const kin_model_ref *ref, char *to, size_t size) {
    const char *name = after(ref->repo, "library/");
    if (ref->registry == KIN_REGISTRY_HF) snprintf(to, size, "hf:%s", ref->repo);
    if (ref->registry == KIN_REGISTRY_OLLAMA) snprintf(to, size, "ollama:%s", name ? name : ref->repo);
    if (ref->registry == KIN_REGISTRY_WEB) snprintf(to, size, "%s", ref->url);
    return to;
}

const char *kin_model_ref_format(const kin_model_ref *ref, char *to, size_t size) {
    kin_model_ref_base(ref, to, size);
    size_t n = strlen(to);
    if (ref->registry != KIN_REGISTRY_WEB && ref->pick[0])
        snprintf(to + n, size - n, "%c%s", ref->is_file ? '/' : ':', ref->pick);
    return to;
}

bool kin_url_encode(char *to, size_t size, const char *path) {
    size_t n = 0;
    for (; *path; path++) {
        bool is_plain = is_word_char(*path) || *path == '~' || *path == '/';
        if (n + 4 > size) return false;
        n += (size_t)snprintf(to + n, size - n, is_plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
    if (n >= size) return false;
    to[n] = '\0';
    return true;
}
