#include "testkit/ref_families.h"

#include <math.h>

static int read_granite(const kin_ref_keys *k, kin_ref_model *m) {
    bool rotates;
    float divisor;
    if (kin_ref_get_float(k, "embedding_scale", 0, &m->embedding_scale) < 0) return KIN_FAIL;
    if (kin_ref_get_float(k, "residual_scale", 0, &m->residual_scale) < 0) return KIN_FAIL;
    if (kin_ref_get_float(k, "attention.scale", 0, &m->attn_scale) < 0) return KIN_FAIL;
    if (kin_ref_get_float(k, "logit_scale", 0, &divisor) < 0) return KIN_FAIL;
    if (kin_ref_get_bool(k, "rope.scaling.finetuned", true, &rotates) < 0) return KIN_FAIL;
    m->logit_scale = divisor != 0 ? 1 / divisor : 0;
    return rotates ? 0 : kin_err_set(k->err, "a model that does not rotate is not known");
}

static int read_qwen2moe(const kin_ref_keys *k, kin_ref_model *m) {
    m->keeps_shares = true;
    return kin_ref_get_int(k, "expert_shared_feed_forward_length", m->n_ff_dense, &m->n_ff_shared);
}

static int read_caps(const kin_ref_keys *k, kin_ref_model *m, float score_cap, float logit_cap) {
    if (kin_ref_get_float(k, "attn_logit_softcapping", score_cap, &m->score_cap) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "final_logit_softcapping", logit_cap, &m->logit_cap);
}

// The largest models, which have n_layers, scale their scores as if heads were narrower.
static void scale_gemma(kin_ref_model *m, int n_layers) {
    m->embedding_scale = sqrtf((float)m->n_embd);
    if (m->n_layer == n_layers) m->attn_scale = 1 / sqrtf((float)(m->n_embd / m->n_head));
}

static int read_gemma2(const kin_ref_keys *k, kin_ref_model *m) {
    scale_gemma(m, 46);
    if (m->window == 0) m->window = 4096;
    return read_caps(k, m, 50, 30);
}

static int read_gemma3(const kin_ref_keys *k, kin_ref_model *m) {
    scale_gemma(m, 62);
    if (read_caps(k, m, 0, 0) < 0) return KIN_FAIL;
    m->score_cap = 0;
    return 0;
}

static int read_cohere2(const kin_ref_keys *k, kin_ref_model *m) {
    return kin_ref_get_float(k, "logit_scale", 0, &m->logit_scale);
}

// YaRN with factor f makes vectors 1 + 0.1 ln f times as long; here this is divided by 1 + 0.1 n ln f.
static int read_mistral3(const kin_ref_keys *k, kin_ref_model *m) {
    float n;
    if (kin_ref_get_float(k, "rope.scaling.yarn_log_multiplier", 0, &n) < 0) return KIN_FAIL;
    if (m->rope.yarn) m->rope.attn_factor /= (float)(1 - 0.1 * (double)n * log((double)m->rope.freq_scale));
    m->temperature_length = m->rope.n_ctx_orig;
    return kin_ref_get_float(k, "attention.temperature_scale", 0, &m->query_temperature);
}

// With YaRN's factor f and the file's n the rope leaves the length of vectors as it is, and scores are multiplied by
// (1 + n ln f)^2.
static int read_deepseek2(const kin_ref_keys *k, kin_ref_model *m) {
    float n;
    int n_key;
    if (kin_ref_get_float(k, "rope.scaling.yarn_log_multiplier", 0, &n) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.key_length", 0, &n_key) < 0) return KIN_FAIL; // of older files, without the next one
    if (kin_ref_get_int(k, "attention.key_length_mla", n_key, &n_key) < 0) return KIN_FAIL;
    if (m->rope.yarn) {
        const double log_f = -log((double)m->rope.freq_scale), length = (double)m->rope.attn_factor * (1 + (double)n * log_f);
        m->rope.attn_factor /= (float)(1 + 0.1 * log_f);
        m->attn_scale = (float)(length * length / sqrt(n_key));
    }
    if (kin_ref_get_int(k, "attention.temperature_length", m->rope.n_ctx_orig, &m->temperature_length) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "attention.temperature_scale", 0, &m->query_temperature);
}

static int read_indexer(const kin_ref_keys *k, kin_ref_indexer *x) {
    if (kin_ref_get_int(k, "attention.indexer.top_k", 0, &x->n_chosen) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "attention.layer_norm_epsilon", 1e-6f, &x->eps);
}

static int read_deepseek32_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    (void)m, (void)il;
    w->latent.indexer.rope = KIN_REF_ROPE_NEOX;
    return read_indexer(k, &w->latent.indexer);
}

// Files of the longest contexts without the key are GLM-5.2's, in which three of four layers share the choice of an earlier one.
static int read_glm_dsa_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    enum { LONGEST = 1 << 20 };
    int n_ctx, is_own;
    (void)m;
    if (kin_ref_get_int(k, "context_length", 0, &n_ctx) < 0) return KIN_FAIL;
    if (kin_ref_get_int_at(k, "attention.indexer.types", il, n_ctx < LONGEST || il < 2 || il % 4 == 2, &is_own) < 0)
        return KIN_FAIL;
    w->latent.shares_choice = is_own == 0;
    if (w->latent.shares_choice) {
        w->latent.indexer = (kin_ref_indexer){0};
        return 0;
    }
    w->latent.indexer.rope = KIN_REF_ROPE_NORMAL;
    return read_indexer(k, &w->latent.indexer);
}

static int read_minimax_m3_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    kin_ref_block_indexer *x = &w->indexer;
    (void)m, (void)il;
    if (kin_ref_get_int(k, "attention.indexer.block_size", 0, &x->n_block) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.indexer.top_k", 0, &x->n_chosen) < 0) return KIN_FAIL;
    return kin_ref_get_int(k, "attention.indexer.local_blocks", 0, &x->n_local);
}

static int read_muse_glimmer(const kin_ref_keys *k, kin_ref_model *m) {
    m->norms_embedding = true;
    m->out_norm_eps = 1e-8f;
    if (kin_ref_get_float(k, "final_logit_softcapping", 0, &m->logit_cap) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "logit_scale", 0, &m->logit_scale);
}

static int read_laguna(const kin_ref_keys *k, kin_ref_model *m) {
    (void)k;
    m->gates_heads_by_softplus = true;
    return 0;
}

// Of a head's elements that the file names, layers without a window rotate the first half.
static int read_step35(const kin_ref_keys *k, kin_ref_model *m) {
    (void)k;
    m->rope.n_rot /= 2;
    return 0;
}

static int read_mimo2(const kin_ref_keys *k, kin_ref_model *m) {
    return kin_ref_get_float(k, "attention.value_scale", 0, &m->value_scale);
}

static int read_pattern(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    int is_windowed;
    (void)m;
    if (kin_ref_get_int_at(k, "attention.sliding_window_pattern", il, 0, &is_windowed) < 0) return KIN_FAIL;
    w->is_windowed = is_windowed != 0;
    return 0;
}

static int read_gemma4(const kin_ref_keys *k, kin_ref_model *m) {
    m->embedding_scale = sqrtf((float)m->n_embd);
    m->attn_scale = 1;
    m->norms_values = true;
    m->n_ff_shared = m->n_ff_dense;
    if (kin_ref_get_int(k, "embedding_length_per_layer_input", 0, &m->n_input) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "final_logit_softcapping", 30, &m->logit_cap);
}

// The last layers read keys and values of the last layer of their kind that has its own.
static int read_gemma4_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    int n_shared;
    if (read_pattern(k, m, w, il) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.shared_kv_layers", 0, &n_shared) < 0) return KIN_FAIL;
    if (w->is_windowed) {
        if (kin_ref_get_int(k, "attention.key_length_swa", m->head_dim, &w->head_dim) < 0) return KIN_FAIL;
        if (kin_ref_get_int(k, "attention.value_length_swa", m->value_dim, &w->value_dim) < 0) return KIN_FAIL;
    }
    for (int of = m->n_layer - n_shared - 1; il >= m->n_layer - n_shared && of >= 0 && w->kv_back == 0; of--)
        if (m->layers[of].is_windowed == w->is_windowed) w->kv_back = il - of;
    if (w->kv_back > 0) w->n_head_kv = w[-w->kv_back].n_head_kv;
    return 0;
}

static int read_nemotron_h(const kin_ref_keys *k, kin_ref_model *m) {
    return kin_ref_get_float(k, "attention.scale", 0, &m->attn_scale);
}

// A layer is one block, whose norm always has the same name.
static int read_nemotron_h_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    (void)k, (void)m, (void)il;
    w->has_no_attention = w->n_ff_dense > 0;
    w->has_no_ff = !w->has_no_attention;
    if (w->has_no_ff) return 0;
    w->ffn_norm = w->attn_norm;
    w->attn_norm = (kin_ref_tensor){0};
    return 0;
}

// Layers without compressed rows have a plain rope; that of the others, by YaRN, leaves the length of vectors as it is.
static int read_deepseek4(const kin_ref_keys *k, kin_ref_model *m) {
    if (kin_ref_get_float(k, "attention.compress_rope_freq_base", m->rope.freq_base, &m->rope.freq_base) < 0) return KIN_FAIL;
    if (m->rope.yarn) m->rope.attn_factor /= (float)(1 - 0.1 * log((double)m->rope.freq_scale));
    if (kin_ref_get_int(k, "hyper_connection.count", 0, &m->n_streams) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "hyper_connection.sinkhorn_iterations", 0, &m->n_sinkhorn) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "hyper_connection.epsilon", 0, &m->sinkhorn_eps);
}

static int read_glm5_next(const kin_ref_keys *k, kin_ref_model *m) {
    m->averages_streams = true;
    if (kin_ref_get_int(k, "hyper_connection.count", 0, &m->n_streams) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "hyper_connection.sinkhorn_iterations", 0, &m->n_sinkhorn) < 0) return KIN_FAIL;
    return kin_ref_get_float(k, "hyper_connection.epsilon", 0, &m->sinkhorn_eps);
}

// A dense block has the limit of shared experts.
static int read_glm5_next_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    kin_ref_indexer *x = &w->latent.indexer;
    (void)m;
    w->delta.unit_eps = 1e-6f;
    if (kin_ref_get_float(k, "kda.gate_lower_bound", 0, &w->delta.least) < 0) return KIN_FAIL;
    if (kin_ref_get_float(k, "attention.layer_norm_epsilon", 1e-6f, &x->eps) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.indexer.top_k", 0, &x->n_chosen) < 0) return KIN_FAIL;
    if (x->n_pool > 0) x->n_chosen /= x->n_pool;
    if (kin_ref_get_float_at(k, "swiglu_clamp_exp", il, 0, &w->expert_limit) < 0) return KIN_FAIL;
    if (kin_ref_get_float_at(k, "swiglu_clamp_shexp", il, w->expert_limit, &w->shared_limit) < 0) return KIN_FAIL;
    if (w->is_dense) w->expert_limit = w->shared_limit;
    return 0;
}

static int read_deepseek4_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    (void)m;
    if (kin_ref_get_int_at(k, "attention.compress_ratios", il, 0, &w->compressed.ratio) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.output_group_count", 0, &w->compressed.n_group) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.indexer.top_k", 0, &w->compressed.indexer.n_chosen) < 0) return KIN_FAIL;
    w->is_windowed = w->compressed.ratio == 0;
    if (kin_ref_get_float_at(k, "swiglu_clamp_exp", il, 0, &w->expert_limit) < 0) return KIN_FAIL;
    return kin_ref_get_float_at(k, "swiglu_clamp_shexp", il, w->expert_limit, &w->shared_limit);
}

static int read_qwen4exp(const kin_ref_keys *k, kin_ref_model *m) {
    return kin_ref_get_int(k, "hyper_connection.count", 0, &m->n_streams);
}

// The indexer's number of tokens is one of whole blocks. A layer whose ratio is 0 sees all tokens.
static int read_qwen4exp_indexer(const kin_ref_keys *k, kin_ref_block_indexer *x, int il) {
    int n_tokens;
    x->pools = true;
    if (kin_ref_get_int_at(k, "attention.compress_ratios", il, 0, &x->n_block) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "attention.indexer.top_k", 0, &n_tokens) < 0) return KIN_FAIL;
    if (x->n_block == 0) x->n_head = 0;
    x->n_chosen = x->n_block > 0 ? n_tokens / x->n_block : 0;
    return 0;
}

static int read_qwen4exp_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    kin_ref_ngram *g = &w->ngram;
    (void)m;
    w->gated.gates_by_sigmoid = true;
    if (w->indexer.n_head > 0 && read_qwen4exp_indexer(k, &w->indexer, il) < 0) return KIN_FAIL;
    if (!g->key.data) return 0;
    if (kin_ref_get_int(k, "ple.ngram_size", 0, &g->size) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "ple.heads_per_ngram", 0, &g->n_heads) < 0) return KIN_FAIL;
    if (kin_ref_get_int(k, "ple.eos_token_id", 0, &g->end_id) < 0) return KIN_FAIL;
    for (int i = 0; i < g->size && i < KIN_REF_NGRAM_SIZE_MAX; i++)
        g->factors[i] = kin_ref_get_u64_at(k, "ple.layer_multipliers", i);
    for (int i = 0; i < (g->size - 1) * g->n_heads && i < KIN_REF_NGRAM_HEADS_MAX; i++) {
        g->first[i] = kin_ref_get_u64_at(k, "ple.head_offsets", i);
        g->n_rows[i] = kin_ref_get_u64_at(k, "ple.head_vocab_sizes", i);
    }
    return 0;
}

static int read_step35_layer(const kin_ref_keys *k, kin_ref_model *m, kin_ref_layer *w, int il) {
    if (read_pattern(k, m, w, il) < 0) return KIN_FAIL;
    if (kin_ref_get_float_at(k, "swiglu_clamp_exp", il, 0, &w->expert_limit) < 0) return KIN_FAIL;
    return kin_ref_get_float_at(k, "swiglu_clamp_shexp", il, 0, &w->shared_limit);
}

#define NORMAL KIN_REF_ROPE_NORMAL
#define NEOX KIN_REF_ROPE_NEOX

// gpt-oss: YaRN's corners are rounded, as in llama.cpp, whose logits the golden ones follow. kin does not round them.
static const kin_ref_family families[] = {
    {.name = "llama", .rope = NORMAL, .ignores_routing_keys = true},
    {.name = "qwen2", .rope = NEOX},
    {.name = "qwen3", .rope = NEOX},
    {.name = "qwen3moe", .rope = NEOX, .ignores_routing_keys = true},
    {.name = "exaone", .rope = NEOX},
    {.name = "exaone4", .rope = NEOX, .has_window = true, .period = 4, .full_at = 3, .full_has_no_rope = true},
    {.name = "stablelm", .rope = NEOX, .centers_norms = true},
    {.name = "minimax-m3",
     .rope = NEOX,
     .gate = KIN_REF_GATE_GPT_OSS,
     .chooses_blocks = true,
     .chooses_by_sigmoids = true,
     .read_layer = read_minimax_m3_layer},
    {.name = "kimi-linear", .rope = NORMAL, .has_latents = true, .never_rotates = true, .chooses_by_sigmoids = true},
    {.name = "glm5-next",
     .rope = NORMAL,
     .gate = KIN_REF_GATE_CLAMPED,
     .has_latents = true,
     .never_rotates = true,
     .chooses_by_sigmoids = true,
     .keeps_shares = true,
     .read = read_glm5_next,
     .read_layer = read_glm5_next_layer},
    {.name = "olmo2", .rope = NEOX, .has_window = true, .period = 4, .full_at = 3, .window_rope_unscaled = true},
    {.name = "smollm3", .rope = NORMAL, .period = 4, .full_at = 3, .full_has_no_rope = true},
    {.name = "granite", .rope = NORMAL, .read = read_granite},
    {.name = "granitemoe", .rope = NORMAL, .ignores_routing_keys = true, .read = read_granite},
    {.name = "glm4", .rope = NORMAL, .has_fused_gate_up = true},
    {.name = "qwen2moe", .rope = NEOX, .ignores_routing_keys = true, .read = read_qwen2moe},
    {.name = "minimax-m2", .rope = NEOX, .chooses_by_sigmoids = true, .ignores_routing_keys = true},
    {.name = "phi3", .rope = NEOX, .has_fused_gate_up = true},
    {.name = "gemma2",
     .rope = NEOX,
     .gate = KIN_REF_GATE_GELU,
     .has_window = true,
     .period = 2,
     .full_at = 1,
     .read = read_gemma2},
    {.name = "gemma3",
     .rope = NEOX,
     .gate = KIN_REF_GATE_GELU,
     .has_window = true,
     .period = 6,
     .full_at = 5,
     .window_rope_unscaled = true,
     .window_freq_base = 10000,
     .read = read_gemma3},
    {.name = "gpt-oss",
     .rope = NEOX,
     .gate = KIN_REF_GATE_GPT_OSS,
     .ignores_routing_keys = true,
     .post_norm_is_ffn_norm = true,
     .has_window = true,
     .period = 2,
     .full_at = 1},
    {.name = "glm4moe", .rope = NEOX, .chooses_by_sigmoids = true, .post_norm_is_ffn_norm = true},
    {.name = "cohere2",
     .rope = NORMAL,
     .centers_norms = true,
     .has_window = true,
     .period = 4,
     .full_at = 3,
     .full_has_no_rope = true,
     .read = read_cohere2},
    {.name = "mistral3", .rope = NORMAL, .ignores_routing_keys = true, .read = read_mistral3},
    {.name = "muse-glimmer",
     .rope = NORMAL,
     .has_window = true,
     .period = 4,
     .full_at = 3,
     .full_has_no_rope = true,
     .read = read_muse_glimmer},
    {.name = "laguna",
     .rope = NEOX,
     .chooses_by_sigmoids = true,
     .has_window = true,
     .period = 4,
     .full_at = 0,
     .window_rope_unscaled = true,
     .read = read_laguna},
    {.name = "step35",
     .rope = NEOX,
     .chooses_by_sigmoids = true,
     .has_window = true,
     .window_rope_unscaled = true,
     .read = read_step35,
     .read_layer = read_step35_layer},
    {.name = "deepseek2", .rope = NORMAL, .has_latents = true, .keeps_shares = true, .read = read_deepseek2},
    {.name = "mistral4", .rope = NORMAL, .has_latents = true, .keeps_shares = true, .read = read_deepseek2},
    {.name = "deepseek32",
     .rope = NORMAL,
     .has_latents = true,
     .chooses_by_sigmoids = true,
     .keeps_shares = true,
     .read = read_deepseek2,
     .read_layer = read_deepseek32_layer},
    {.name = "glm-dsa",
     .rope = NORMAL,
     .has_latents = true,
     .chooses_by_sigmoids = true,
     .keeps_shares = true,
     .read = read_deepseek2,
     .read_layer = read_glm_dsa_layer},
    {.name = "lfm2", .rope = NEOX, .has_window = true},
    {.name = "lfm2moe", .rope = NEOX, .chooses_by_sigmoids = true},
    {.name = "qwen35", .rope = NEOX, .post_norm_is_ffn_norm = true, .has_query_gates = true},
    {.name = "qwen35moe", .rope = NEOX, .ignores_routing_keys = true, .post_norm_is_ffn_norm = true, .has_query_gates = true},
    {.name = "qwen3next",
     .rope = NEOX,
     .ignores_routing_keys = true,
     .post_norm_is_ffn_norm = true,
     .has_query_gates = true,
     .has_grouped_keys = true},
    {.name = "gemma4",
     .rope = NEOX,
     .gate = KIN_REF_GATE_GELU,
     .has_window = true,
     .window_rope_unscaled = true,
     .window_freq_base = 10000,
     .read = read_gemma4,
     .read_layer = read_gemma4_layer},
    {.name = "nemotron_h",
     .rope = NEOX,
     .gate = KIN_REF_GATE_NONE,
     .never_rotates = true,
     .read = read_nemotron_h,
     .read_layer = read_nemotron_h_layer},
    {.name = "nemotron_h_moe",
     .rope = NEOX,
     .gate = KIN_REF_GATE_NONE,
     .never_rotates = true,
     .chooses_by_sigmoids = true,
     .keeps_shares = true,
     .read = read_nemotron_h,
     .read_layer = read_nemotron_h_layer},
    {.name = "deepseek4",
     .rope = NORMAL,
     .gate = KIN_REF_GATE_CLAMPED,
     .has_window = true,
     .window_rope_unscaled = true,
     .read = read_deepseek4,
     .read_layer = read_deepseek4_layer},
    {.name = "qwen4exp",
     .rope = NEOX,
     .chooses_blocks = true,
     .ignores_routing_keys = true,
     .has_query_gates = true,
     .read = read_qwen4exp,
     .read_layer = read_qwen4exp_layer},
    {.name = "hy_v3", .rope = NEOX, .chooses_by_sigmoids = true, .keeps_shares = true},
    {.name = "mimo2",
     .rope = NEOX,
     .chooses_by_sigmoids = true,
     .has_window = true,
     .read = read_mimo2,
     .read_layer = read_pattern},
};

const kin_ref_family *kin_ref_family_find(kin_str name) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (kin_str_eq(name, families[i].name)) return &families[i];
    return NULL;
}
