// mistral3: Ministral 3, Mistral Small 3.2 and later. Llama with its own variant of YaRN, and queries scaled up with their
// position.
#include "model/families/llama.h"

static void read_mistral3_keys(kin_hparams *hp, kin_meta *k) {
    float log_multiplier = kin_meta_float(k, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3f);
    kin_rope *r = &hp->ropes[0];
    hp->query_temperature = kin_meta_float(k, "attention.temperature_scale", 0, 0, 1e3f);
    hp->temperature_length = r->n_ctx_orig;
    // With YaRN's factor f the rope's length is 1 + 0.1 ln f; here it is divided by 1 + 0.1 m ln f, where m is log_multiplier.
    const kin_rope plain = {.ext_factor = r->ext_factor, .freq_scale = r->freq_scale, .attn_factor = 1};
    r->attn_factor /= 1 + (double)log_multiplier * (kin_rope_length(&plain) - 1);
    hp->n_ff_exp = hp->n_ff;
}

const kin_arch kin_arch_mistral3 = {
    .name = "mistral3",
    .title = "Ministral 3, Mistral Small 3.2",
    .read = read_mistral3_keys,
    .required = kin_llama_required,
    .optional = kin_llama_optional,
};
