#include "model/arch.h"

#include <stdio.h>
#include <string.h>

static const kin_arch *const archs[] = {
    &kin_arch_llama,
    &kin_arch_qwen2,
    &kin_arch_qwen3,
    &kin_arch_qwen3moe,
};

const kin_arch *kin_arch_at(int i) {
    return i >= 0 && i < (int)(sizeof archs / sizeof archs[0]) ? archs[i] : NULL;
}

static void set_unknown(kin_str name, kin_err *err) {
    char known[256] = "";
    for (int i = 0; kin_arch_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", kin_arch_at(i)->name);
    }
    int len = name.len > 64 ? 64 : (int)name.len;
    kin_err_set(err, "the architecture '%.*s' is not supported (supported: %s)", len, name.at, known);
}

const kin_arch *kin_arch_of(const kin_gguf *gguf, kin_err *err) {
    kin_str name;
    int rc = kin_gguf_get_str(gguf, "general.architecture", &name, err);
    if (rc == KIN_ABSENT) kin_err_set(err, "the key 'general.architecture' is missing");
    if (rc != 0) return NULL;
    for (int i = 0; kin_arch_at(i); i++)
        if (kin_str_eq(name, kin_arch_at(i)->name)) return kin_arch_at(i);
    set_unknown(name, err);
    return NULL;
}
