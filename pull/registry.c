#include "pull/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pull/web.h"

enum { MAX_PAGE = 4 << 20, MAX_PAGES = 8 };

// A token is not sent in the clear, except to a server on this machine.
static bool may_send_token(const char *url) {
    static const char *const prefixes[] = {"https://", "http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(url, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

// Sets the registry's address without slashes at its end.
static int set_base(kin_listing *l, const char *mirror, const char *own, const char *usual, kin_err *err) {
    const char *base = mirror ? mirror : own && own[0] ? own : usual;
    int n = snprintf(l->base, sizeof l->base, "%s", base);
    if (n < 0 || (size_t)n >= sizeof l->base || !strstr(base, "://"))
        return kin_err_set(err, "'%.100s' is not the address of a server, such as https://mirror.example", base);
    while (n > 0 && l->base[n - 1] == '/') l->base[--n] = '\0';
    return 0;
}

// ---- Hugging Face: GET /api/models/OWNER/REPO/tree/main?recursive=true, in pages; files at /OWNER/REPO/resolve/main/FILE

static int list_hf(const kin_pull_options *o, const kin_model_ref *ref, kin_listing *l, kin_err *err) {
    char url[1100], what[KIN_REF_TEXT];
    int rc = set_base(l, o->mirror, o->hf_endpoint, "https://huggingface.co", err);
    if (rc != 0) return rc;
    l->accepts_ranges = true;
    l->token = o->hf_token && o->hf_token[0] && may_send_token(l->base) ? o->hf_token : NULL;
    snprintf(url, sizeof url, "%s/api/models/%s/tree/main?recursive=true", l->base, ref->repo);
    for (int page = 0; rc == 0 && url[0] && page < MAX_PAGES; page++) {
        kin_web_answer answer = {0};
        char *body = NULL;
        size_t len;
        const kin_web_request request = {
            .url = url, .token = l->token, .accept = "application/json", .max = MAX_PAGE, .stop = o->stop};
        rc = kin_web_get(&request, &answer, &body, &len, err);
        if (rc != 0 && answer.status >= 400) kin_web_refused(kin_model_ref_base(ref, what, sizeof what), &answer, err);
        if (rc == 0) rc = kin_repo_add_tree(&l->repo, body, len, err);
        bool is_same_server = strncmp(answer.next, l->base, strlen(l->base)) == 0;
        snprintf(url, sizeof url, "%s", is_same_server ? answer.next : "");
        free(body);
    }
    return rc;
}

// ---- Ollama: GET /v2/NAMESPACE/NAME/manifests/TAG; the model at /v2/NAMESPACE/NAME/blobs/sha256:DIGEST

static int list_ollama(const kin_pull_options *o, const kin_model_ref *ref, kin_listing *l, kin_err *err) {
    char url[1300], what[KIN_REF_TEXT], file[2 * KIN_REF_PICK];
    kin_web_answer answer = {0};
    char *body = NULL;
    size_t len;
    if (set_base(l, o->mirror, o->ollama_endpoint, "https://registry.ollama.ai", err) != 0) return KIN_FAIL;
    l->accepts_ranges = true;
    snprintf(url, sizeof url, "%s/v2/%s/manifests/%s", l->base, ref->repo, ref->pick);
    const kin_web_request request = {
        .url = url, .accept = "application/vnd.docker.distribution.manifest.v2+json", .max = MAX_PAGE, .stop = o->stop};
    int rc = kin_web_get(&request, &answer, &body, &len, err);
    if (rc != 0 && answer.status >= 400) kin_web_refused(kin_model_ref_format(ref, what, sizeof what), &answer, err);
    snprintf(file, sizeof file, "%s-%s.gguf", kin_path_file(ref->repo), ref->pick);
    if (rc == 0) rc = kin_repo_add_manifest(&l->repo, body, len, file, err);
    free(body);
    return rc;
}

// ---- any server

static int list_web(const kin_pull_options *o, const kin_model_ref *ref, kin_listing *l, kin_err *err) {
    kin_web_answer answer = {0};
    kin_repo_file file = {0};
    const kin_web_request request = {.url = ref->url, .stop = o->stop};
    if (o->mirror) return kin_err_set(err, "--mirror takes the place of a registry; %s names its server itself", ref->url);
    int rc = kin_web_probe(&request, &answer, err);
    if (rc != 0) {
        if (answer.status >= 400) kin_web_refused(ref->url, &answer, err);
        return rc;
    }
    if (strncmp(answer.content_type, "text/html", 9) == 0)
        return kin_err_set(err, "%s is a page of a web site, not a model file", ref->url);
    if (answer.total == 0) return kin_err_set(err, "%s: the server does not tell the size of the file", ref->url);
    l->accepts_ranges = answer.status == 206;
    snprintf(l->etag, sizeof l->etag, "%s", answer.etag);
    snprintf(file.path, sizeof file.path, "%s", ref->pick);
    if (strlen(answer.linked_etag) == 64) snprintf(file.sha256, sizeof file.sha256, "%.64s", answer.linked_etag);
    file.size = answer.total;
    return kin_repo_add(&l->repo, &file, err);
}

// ----

int kin_registry_list(const kin_pull_options *o, const kin_model_ref *ref, kin_listing *l, kin_err *err) {
    *l = (kin_listing){0};
    switch (ref->registry) {
    case KIN_REGISTRY_HF: return list_hf(o, ref, l, err);
    case KIN_REGISTRY_OLLAMA: return list_ollama(o, ref, l, err);
    default: return list_web(o, ref, l, err);
    }
}

void kin_listing_fini(kin_listing *l) {
    kin_repo_fini(&l->repo);
}

int kin_registry_address(const kin_listing *l, const kin_model_ref *ref, const kin_repo_file *file, char *url, size_t size,
                         kin_err *err) {
    char path[3 * KIN_REF_PICK];
    int n = -1;
    if (ref->registry == KIN_REGISTRY_HF && kin_url_encode(path, sizeof path, file->path))
        n = snprintf(url, size, "%s/%s/resolve/main/%s", l->base, ref->repo, path);
    if (ref->registry == KIN_REGISTRY_OLLAMA)
        n = snprintf(url, size, "%s/v2/%s/blobs/sha256:%s", l->base, ref->repo, file->sha256);
    if (ref->registry == KIN_REGISTRY_WEB) n = snprintf(url, size, "%s", ref->url);
    return n > 0 && (size_t)n < size ? 0 : kin_err_set(err, "the address of %s is too long", file->path);
}
