#include "model/arch.h"

#include <stdio.h>
#include <string.h>

#include "model/keys.h"

static const kin_arch *const archs[] = {
    &kin_arch_llama,          &kin_arch_qwen2,       &kin_arch_qwen3,      &kin_arch_qwen3moe,   &kin_arch_gemma2,
    &kin_arch_gemma3,         &kin_arch_glm4,        &kin_arch_glm4moe,    &kin_arch_gpt_oss,    &kin_arch_granite,
    &kin_arch_granitemoe,     &kin_arch_minimax_m2,  &kin_arch_mistral3,   &kin_arch_olmo2,      &kin_arch_phi3,
    &kin_arch_qwen2moe,       &kin_arch_smollm3,     &kin_arch_cohere2,    &kin_arch_laguna,     &kin_arch_step35,
    &kin_arch_muse_glimmer,   &kin_arch_gemma4,      &kin_arch_qwen35,     &kin_arch_qwen35moe,  &kin_arch_qwen3next,
    &kin_arch_deepseek2,      &kin_arch_mistral4,    &kin_arch_lfm2,       &kin_arch_lfm2moe,    &kin_arch_mimo2,
    &kin_arch_exaone,         &kin_arch_exaone4,     &kin_arch_stablelm,   &kin_arch_nemotron_h, &kin_arch_hy_v3,
    &kin_arch_deepseek4,      &kin_arch_glm_dsa,     &kin_arch_deepseek32, &kin_arch_minimax_m3, &kin_arch_qwen4exp,
    &kin_arch_nemotron_h_moe, &kin_arch_kimi_linear, &kin_arch_glm5_next,
};

const kin_arch *kin_arch_at(int i) {
    return i >= 0 && i < (int)(sizeof archs / sizeof archs[0]) ? archs[i] : NULL;
}

static void set_unknown(kin_str name, kin_err *err) {
    char known[1024] = "";
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

static void describe_layers(kin_meta *k, kin_hparams *hp) {
    if (k->failed) return;
    for (int il = 0; il < hp->n_layer; il++) {
        kin_layer_set_plain(hp, &hp->layers[il]);
        if (hp->arch->layer) hp->arch->layer(hp, il, &hp->layers[il]);
    }
}

// Values are as wide as keys, unless the family's reader handles the key.
static void check_value_heads(kin_meta *k, const kin_hparams *hp) {
    if (!k->failed && hp->v_dim != hp->head_dim && !kin_keys_are_listed(hp->arch->keys, "attention.value_length"))
        kin_meta_fail(k, "key heads of %d and value heads of %d dimensions are not supported", hp->head_dim, hp->v_dim);
}

int kin_arch_read(kin_hparams *hp, const kin_gguf *gguf, kin_err *err) {
    const kin_arch *arch = hp->arch;
    kin_meta k = {.gguf = gguf, .family = arch->name, .err = err};
    *hp = (kin_hparams){
        .arch = arch, .rope_neox = arch->rope_neox, .mixes_layers = arch->mixes_layers, .has_no_rope = arch->never_rotates};
    kin_hparams_read(hp, &k);
    check_value_heads(&k, hp);
    if (!k.failed) k.failed = kin_keys_check(gguf, arch->name, arch->keys, err) != 0;
    if (!k.failed && arch->read) arch->read(hp, &k);
    describe_layers(&k, hp);
    return k.failed ? KIN_FAIL : 0;
}
