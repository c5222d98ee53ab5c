#include "model/keys.h"

#include <stdio.h>
#include <string.h>

#define USED(key)                                                                                                                \
    { .name = key, .use = KIN_KEY_USED }
#define HARMLESS(key)                                                                                                            \
    { .name = key, .use = KIN_KEY_HARMLESS }
#define TOKENIZER "tokenizer."

// Determined by giving llama.cpp 0.7 files in which each key that it knows has a value of a kind that it refuses.
static const kin_key keys[] = {
    USED("block_count"),
    USED("context_length"),
    USED("embedding_length"),
    USED("feed_forward_length"),
    USED("expert_count"),
    USED("expert_used_count"),
    USED("expert_feed_forward_length"),
    USED("attention.head_count"),
    USED("attention.head_count_kv"),
    USED("attention.key_length"),
    USED("attention.value_length"),
    USED("attention.layer_norm_rms_epsilon"),
    USED("rope.dimension_count"),
    USED("rope.dimension_count_swa"),
    USED("rope.freq_base"),
    USED("rope.scaling.type"),
    USED("rope.scaling.factor"),
    USED("rope.scale_linear"),
    USED("rope.scaling.original_context_length"),
    USED("rope.scaling.attn_factor"),
    USED("pooling_type"),
    {.name = "attention.causal",
     .use = KIN_KEY_REFUSED,
     .neutral = 1,
     .at_least = true,
     .why = "bidirectional attention is not supported"},
    {.name = "nextn_predict_layers",
     .use = KIN_KEY_REFUSED,
     .neutral = 0,
     .why = "layers for multi-token prediction are not supported for this family"},
    {.name = "expert_group_count",
     .use = KIN_KEY_REFUSED,
     .neutral = 1,
     .why = "grouped expert routing is not supported for this family"},
    {.name = "embedding_length_out",
     .use = KIN_KEY_REFUSED,
     .neutral_key = "embedding_length",
     .why = "embeddings whose width differs from the hidden states' are not supported"},
    {.name = "attention.key_length_swa",
     .use = KIN_KEY_REFUSED,
     .neutral_key = "attention.key_length",
     .why = "a different head size in sliding-window layers is not supported for this family"},
    {.name = "attention.value_length_swa",
     .use = KIN_KEY_REFUSED,
     .neutral_key = "attention.value_length",
     .why = "a different head size in sliding-window layers is not supported for this family"},
    HARMLESS("expert_group_used_count"),
    HARMLESS("vocab_size"),
    HARMLESS("rope.scaling.finetuned"),
    HARMLESS("rope.scaling.alpha"),
    HARMLESS("rope.section_order"),
    HARMLESS("classifier.output_labels"),
    HARMLESS("classifier.pooling_type"),
    HARMLESS("classifier.activation"),
    // Keys that only some families have.
    USED("attention.compress_ratios"),
    USED("attention.compress_rope_freq_base"),
    USED("attention.indexer.block_size"),
    USED("attention.indexer.head_count"),
    USED("attention.indexer.key_length"),
    USED("attention.indexer.kpool"),
    USED("attention.indexer.kpool_select_tail"),
    USED("attention.indexer.local_blocks"),
    USED("attention.indexer.top_k"),
    USED("attention.indexer.types"),
    USED("attention.key_length_mla"),
    USED("attention.kv_lora_rank"),
    USED("attention.layer_norm_epsilon"),
    USED("attention.output_group_count"),
    USED("attention.output_lora_rank"),
    USED("attention.q_lora_rank"),
    USED("attention.recurrent_layers"),
    USED("attention.scale"),
    USED("attention.shared_kv_layers"),
    USED("attention.sliding_window"),
    USED("attention.sliding_window_pattern"),
    USED("attention.temperature_length"),
    USED("attention.temperature_scale"),
    USED("attention.value_length_mla"),
    USED("attention.value_scale"),
    USED("attn_logit_softcapping"),
    USED("embedding_length_per_layer_input"),
    USED("embedding_scale"),
    USED("expert_gating_func"),
    USED("expert_shared_count"),
    USED("expert_shared_feed_forward_length"),
    USED("expert_weights_norm"),
    USED("expert_weights_scale"),
    USED("final_logit_softcapping"),
    USED("full_attention_interval"),
    USED("hash_layer_count"),
    USED("hyper_connection.count"),
    USED("hyper_connection.epsilon"),
    USED("hyper_connection.low_rank"),
    USED("hyper_connection.sinkhorn_iterations"),
    USED("kda.gate_lower_bound"),
    USED("kda.head_dim"),
    USED("leading_dense_block_count"),
    USED("logit_scale"),
    USED("moe_latent_size"),
    USED("ple.conv_kernel"),
    USED("ple.eos_token_id"),
    USED("ple.head_offsets"),
    USED("ple.head_vocab_sizes"),
    USED("ple.heads_per_ngram"),
    USED("ple.image_token_id"),
    USED("ple.layer_multipliers"),
    USED("ple.layers"),
    USED("ple.ngram_size"),
    USED("residual_scale"),
    USED("rope.freq_base_swa"),
    USED("rope.scaling.yarn_beta_fast"),
    USED("rope.scaling.yarn_beta_slow"),
    USED("rope.scaling.yarn_log_multiplier"),
    USED("shortconv.l_cache"),
    USED("ssm.conv_kernel"),
    USED("ssm.group_count"),
    USED("ssm.inner_size"),
    USED("ssm.state_size"),
    USED("ssm.time_step_rank"),
    USED("swiglu_clamp_exp"),
    USED("swiglu_clamp_shexp"),
    USED("tokenizer.ggml.model"),
    USED("tokenizer.ggml.pre"),
    USED("tokenizer.ggml.tokens"),
    USED("tokenizer.ggml.scores"),
    USED("tokenizer.ggml.token_type"),
    USED("tokenizer.ggml.merges"),
    USED("tokenizer.ggml.bos_token_id"),
    USED("tokenizer.ggml.eos_token_id"),
    USED("tokenizer.ggml.eot_token_id"),
    USED("tokenizer.ggml.eom_token_id"),
    USED("tokenizer.ggml.unknown_token_id"),
    USED("tokenizer.ggml.padding_token_id"),
    USED("tokenizer.ggml.add_bos_token"),
    USED("tokenizer.ggml.add_eos_token"),
    USED("tokenizer.ggml.add_space_prefix"),
    USED("tokenizer.ggml.prefix_token_id"),
    USED("tokenizer.ggml.suffix_token_id"),
    USED("tokenizer.ggml.middle_token_id"),
    USED("tokenizer.ggml.fim_pre_token_id"),
    USED("tokenizer.ggml.fim_suf_token_id"),
    USED("tokenizer.ggml.fim_mid_token_id"),
    USED("tokenizer.ggml.fim_pad_token_id"),
    USED("tokenizer.ggml.fim_rep_token_id"),
    USED("tokenizer.ggml.fim_sep_token_id"),
    USED("tokenizer.ggml.suppress_tokens"),
    USED("tokenizer.chat_template"),
    HARMLESS("tokenizer.ggml.token_type_count"),
    HARMLESS("tokenizer.ggml.remove_extra_whitespaces"),
    HARMLESS("tokenizer.ggml.seperator_token_id"),
    HARMLESS("tokenizer.ggml.mask_token_id"),
    HARMLESS("tokenizer.ggml.add_sep_token"),
    HARMLESS("tokenizer.ggml.normalizer.nfc"),
    HARMLESS("tokenizer.ggml.normalizer.lowercase"),
    HARMLESS("tokenizer.ggml.normalizer.strip_accents"),
};

const kin_key *kin_key_at(int i) {
    return i >= 0 && i < (int)(sizeof keys / sizeof keys[0]) ? &keys[i] : NULL;
}

static void put_name(const char *family, const char *key, char *name, size_t n) {
    bool is_whole = strncmp(key, TOKENIZER, sizeof TOKENIZER - 1) == 0;
    snprintf(name, n, "%s%s%s", is_whole ? "" : family, is_whole ? "" : ".", key);
}

// Reads an integer or a bool.
static int get_number(const kin_gguf *gguf, const char *name, uint32_t *value, kin_err *err) {
    bool is_true;
    kin_err other;
    int rc = kin_gguf_get_bool(gguf, name, &is_true, &other);
    if (rc != 0) return kin_gguf_get_u32(gguf, name, value, err);
    *value = is_true;
    return 0;
}

static int check(const kin_key *key, const kin_gguf *gguf, const char *family, kin_err *err) {
    char name[128], neutral_name[128];
    uint32_t value, neutral = key->neutral;
    put_name(family, key->name, name, sizeof name);
    int rc = get_number(gguf, name, &value, err);
    if (rc != 0) return rc < 0 ? KIN_FAIL : 0;
    if (key->neutral_key) {
        put_name(family, key->neutral_key, neutral_name, sizeof neutral_name);
        if (kin_gguf_get_u32(gguf, neutral_name, &neutral, err) != 0) neutral = value;
    }
    if (key->neutral_key ? value == neutral : key->at_least ? value >= neutral : value <= neutral) return 0;
    return kin_err_set(err, "'%s' is %u: %s", name, value, key->why);
}

bool kin_keys_are_listed(const char *const *list, const char *name) {
    for (; list && *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

int kin_keys_check(const kin_gguf *gguf, const char *family, const char *const *obeyed, kin_err *err) {
    for (int i = 0; kin_key_at(i); i++)
        if (keys[i].use == KIN_KEY_REFUSED && !kin_keys_are_listed(obeyed, keys[i].name) &&
            check(&keys[i], gguf, family, err) != 0)
            return KIN_FAIL;
    return 0;
}
