#include "model/arch.h"

static const kin_arch *const archs[] = {
    &kin_arch_llama,
    &kin_arch_qwen2,
    &kin_arch_qwen3,
    &kin_arch_qwen3moe,
};

const kin_arch *kin_arch_at(int i) {
    return i >= 0 && i < (int)(sizeof archs / sizeof archs[0]) ? archs[i] : NULL;
}

const kin_arch *kin_arch_find(kin_str name) {
    for (int i = 0; kin_arch_at(i); i++) {
        if (kin_str_eq(name, kin_arch_at(i)->name)) return kin_arch_at(i);
    }
    return NULL;
}
