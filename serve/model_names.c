#include "serve/model_names.h"

#include <string.h>

static bool is_one(const kin_model_names *names, kin_str name) {
    for (int i = -1; i < names->n_others; i++) {
        const char *one = i < 0 ? names->own : names->others[i];
        if (strlen(one) == name.len && memcmp(one, name.at, name.len) == 0) return true;
    }
    return false;
}

bool kin_model_names_have(const kin_model_names *names, kin_str name) {
    static const char latest[] = ":latest";
    enum { N_LATEST = sizeof latest - 1 };
    if (is_one(names, name)) return true;
    if (name.len <= N_LATEST || memcmp(name.at + name.len - N_LATEST, latest, N_LATEST) != 0) return false;
    return is_one(names, (kin_str){name.at, name.len - N_LATEST});
}

int kin_model_names_check(const kin_model_names *names, const char *asked, kin_api_error *err) {
    if (!names->is_strict || !asked || kin_model_names_have(names, (kin_str){asked, strlen(asked)})) return 0;
    kin_api_error_set(err, 404, "model", "model '%.100s' not found; this server has '%s'", asked, names->own);
    err->code = "model_not_found";
    return KIN_FAIL;
}
