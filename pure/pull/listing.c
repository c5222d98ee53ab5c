// Listings of registries as JSON: a page of Hugging Face's tree API, and a manifest of Ollama's registry.
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "pure/pull/variants.h"
#include "pure/text/json.h"

// Copies a string value. False if there is none, if it does not fit, or if it contains a NUL.
static bool copy_text(const kin_json *json, const kin_json_value *of, const char *pointer, char *to, size_t size) {
    const kin_json_value *v = kin_json_pointer(json, of, pointer, strlen(pointer));
    if (!v || v->kind != KIN_JSON_STRING || v->text.len >= size || memchr(v->text.at, 0, v->text.len)) return false;
    memcpy(to, v->text.at, v->text.len);
    to[v->text.len] = '\0';
    return true;
}

// Reads a whole number below 2^53, in which JSON's numbers are exact.
static bool read_size(const kin_json *json, const kin_json_value *of, const char *pointer, uint64_t *size) {
    const kin_json_value *v = kin_json_pointer(json, of, pointer, strlen(pointer));
    *size = 0;
    if (!v || v->kind != KIN_JSON_NUMBER || v->text.len == 0 || v->text.len > 15) return false;
    for (size_t i = 0; i < v->text.len; i++) {
        char c = v->text.at[i];
        if (c < '0' || c > '9') return false;
        *size = 10 * *size + (uint64_t)(c - '0');
    }
    return true;
}

static bool is_sha256(const char *text) {
    uint8_t bytes[32];
    return strlen(text) == 64 && kin_hex_get(bytes, text, sizeof bytes) == 0;
}

static void lower(char *text) {
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'F') *text = (char)(*text - 'A' + 'a');
}

int kin_repo_add_tree(kin_repo *repo, const char *text, size_t len, kin_err *err) {
    kin_json json;
    int rc = 0;
    if (kin_json_parse(&json, text, len, err) != 0) return kin_err_prefix(err, "the list of files");
    const kin_json_value *root = &json.values[0];
    if (root->kind != KIN_JSON_ARRAY) rc = kin_err_set(err, "the list of files is no JSON array");
    const kin_json_value *item = rc == 0 ? kin_json_first(&json, root) : NULL;
    for (; rc == 0 && item; item = kin_json_next(&json, item)) {
        kin_repo_file f = {0};
        char type[16];
        if (!copy_text(&json, item, "/type", type, sizeof type) || strcmp(type, "file") != 0) continue;
        if (!copy_text(&json, item, "/path", f.path, sizeof f.path) || !kin_path_is_safe(f.path)) continue;
        if (!read_size(&json, item, "/lfs/size", &f.size) && !read_size(&json, item, "/size", &f.size)) continue;
        if (!copy_text(&json, item, "/lfs/oid", f.sha256, sizeof f.sha256) || !is_sha256(f.sha256)) f.sha256[0] = '\0';
        lower(f.sha256);
        rc = kin_repo_add(repo, &f, err);
    }
    kin_json_fini(&json);
    return rc;
}

int kin_repo_add_manifest(kin_repo *repo, const char *text, size_t len, const char *path, kin_err *err) {
    static const char model[] = "application/vnd.ollama.image.model", prefix[] = "sha256:";
    kin_json json;
    kin_repo_file f = {0};
    bool is_found = false;
    if (kin_json_parse(&json, text, len, err) != 0) return kin_err_prefix(err, "the manifest");
    const kin_json_value *layers = kin_json_pointer(&json, &json.values[0], "/layers", strlen("/layers"));
    const kin_json_value *layer = layers && layers->kind == KIN_JSON_ARRAY ? kin_json_first(&json, layers) : NULL;
    for (; layer && !is_found; layer = kin_json_next(&json, layer)) {
        char type[128], digest[128];
        if (!copy_text(&json, layer, "/mediaType", type, sizeof type) || strcmp(type, model) != 0) continue;
        is_found = copy_text(&json, layer, "/digest", digest, sizeof digest) && read_size(&json, layer, "/size", &f.size) &&
                   strncmp(digest, prefix, strlen(prefix)) == 0 && is_sha256(digest + strlen(prefix));
        if (is_found) memcpy(f.sha256, digest + strlen(prefix), sizeof f.sha256);
    }
    kin_json_fini(&json);
    if (!is_found) return kin_err_set(err, "the manifest names no GGUF model (a layer %s)", model);
    lower(f.sha256);
    if (strlen(path) >= sizeof f.path) return kin_err_set(err, "'%.60s...' is too long for a file's name", path);
    memcpy(f.path, path, strlen(path) + 1);
    return kin_repo_add(repo, &f, err);
}
