#include "testkit/model_gen.h"

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/family_gen.h"
#include "testkit/gguf_write.h"
#include "testkit/model_tensors.h"
#include "testkit/random_rows.h"

// Presets

static const char preset_names[] = "tiny, 25m, 551m-32l, 1b, 8b";

#define LLAMA .arch = "llama", .mix = "q4_k_m", .seed = 1, .state_dim = 32
#define LLAMA3 LLAMA, .n_ctx = 131072, .n_vocab = 128256, .rope_freq_base = 500000, .rope_freqs = true

static const struct {
    const char *name;
    kin_model_spec spec;
} presets[] = {
    {"tiny",
     {LLAMA, .n_layer = 4, .n_embd = 256, .n_ff = 768, .n_head = 8, .n_head_kv = 2, .n_vocab = 512, .n_ctx = 2048,
      .rope_freq_base = 10000}},
    {"25m",
     {LLAMA, .n_layer = 8, .n_embd = 512, .n_ff = 1536, .n_head = 8, .n_head_kv = 2, .n_vocab = 1024, .n_ctx = 4096,
      .rope_freq_base = 10000}},
    {"551m-32l",
     {LLAMA, .n_layer = 32, .n_embd = 1536, .n_ff = 4096, .n_head = 12, .n_head_kv = 4, .n_vocab = 32000, .n_ctx = 4096,
      .rope_freq_base = 10000}}, // 551 MB, many small layers
    {"1b", {LLAMA3, .n_layer = 16, .n_embd = 2048, .n_ff = 8192, .n_head = 32, .n_head_kv = 8, .tied = true}}, // Llama 3.2 1B
    {"8b", {LLAMA3, .n_layer = 32, .n_embd = 4096, .n_ff = 14336, .n_head = 32, .n_head_kv = 8}},              // Llama 3.1 8B
};

kin_model_spec kin_model_spec_defaults(void) {
    return presets[0].spec;
}

int kin_model_spec_preset(kin_model_spec *spec, const char *name, kin_err *err) {
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *spec = presets[i].spec;
        return 0;
    }
    return kin_err_set(err, "there is no preset '%s' (%s)", name, preset_names);
}

const char *kin_model_presets(void) {
    return preset_names;
}

// What the parts of a model are made from.
typedef struct maker {
    const kin_model_spec *spec;
    int64_t head_dim, n_ff_exp;
    int i_draft; // the draft block being made
    kin_generator *tensors;
} maker;

static float *add_norm(maker *g, const char *name, int64_t n) {
    return kin_gen_add_vector(g->tensors, name, 1, n);
}

static const float SMALL_CHANGE = 0.02f;

// The norm before a sub-layer. Scaled down, what the sub-layer adds to its input is small, or next to nothing if the text is to
// be known. change: with routes_by_token.
static void add_block_norm(maker *g, const char *name, float change) {
    const int64_t n = g->spec->n_embd;
    const float factor = g->spec->draft_right > 0 ? 1 / 1024.0f : g->spec->routes_by_token ? change : 1;
    float *at = add_norm(g, name, n);
    for (int64_t i = 0; i < n; i++) at[i] *= factor;
}

static void add_bias(maker *g, const char *name, int64_t n) {
    kin_gen_add_vector(g->tensors, name, 0, n);
}

// Adds the divisors of rotation frequencies that stretch Llama 3's context: 8 for long waves, 1 for short ones, smooth in
// between.
static void add_rope_freqs(maker *g) {
    const double stretch = 8, n_ctx_old = 8192, wave_short = n_ctx_old / 4, wave_long = n_ctx_old;
    float *at = kin_gen_add_vector(g->tensors, "rope_freqs.weight", 0, g->head_dim / 2);
    for (int64_t i = 0; i < g->head_dim / 2; i++) {
        double wave = 2 * 3.14159265358979 * pow(g->spec->rope_freq_base, 2.0 * (double)i / (double)g->head_dim);
        double smooth = (n_ctx_old / wave - 1) / (4 - 1);
        at[i] = (float)(wave < wave_short ? 1 : wave > wave_long ? stretch : 1 / ((1 - smooth) / stretch + smooth));
    }
}

// Tensors of one layer, named blk.IL.NAME

typedef struct tensor_name {
    char text[64];
} tensor_name;

static tensor_name in_layer(int il, const char *name) {
    tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%d.%s", il, name);
    return n;
}

// The gated delta net of qwen35: as many key heads as attention has, and as many value heads as it has query heads.
enum { DELTA_TAPS = 4, MAX_DRAFT_BLOCKS = 64 };

static bool is_qwen35(const kin_model_spec *s) {
    return strcmp(s->arch, "qwen35") == 0;
}

static bool is_delta_net(const kin_model_spec *s, int il) {
    return il < s->n_layer && s->attention_interval > 1 && (il + 1) % s->attention_interval != 0;
}

static void add_delta_net(maker *g, int il) {
    const kin_model_spec *s = g->spec;
    const int64_t n_values = (int64_t)s->state_dim * s->n_head, n_channels = 2 * (int64_t)s->state_dim * s->n_head_kv + n_values;
    add_block_norm(g, in_layer(il, "attn_norm.weight").text, SMALL_CHANGE);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "attn_qkv.weight").text, s->n_embd, n_channels, 0);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "attn_gate.weight").text, s->n_embd, n_values, 0);
    kin_gen_add_floats(g->tensors, in_layer(il, "ssm_conv1d.weight").text, DELTA_TAPS, n_channels, 0);
    kin_gen_add_floats(g->tensors, in_layer(il, "ssm_beta.weight").text, s->n_embd, s->n_head, 0);
    kin_gen_add_floats(g->tensors, in_layer(il, "ssm_alpha.weight").text, s->n_embd, s->n_head, 0);
    add_bias(g, in_layer(il, "ssm_dt.bias").text, s->n_head);
    float *decay = add_norm(g, in_layer(il, "ssm_a").text, s->n_head);
    for (int i = 0; i < s->n_head; i++) decay[i] *= -1;
    add_norm(g, in_layer(il, "ssm_norm.weight").text, s->state_dim);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_ATTN_OUTPUT, il, in_layer(il, "ssm_out.weight").text, n_values, s->n_embd, 0);
}

static void add_attention(maker *g, int il) {
    const kin_model_spec *s = g->spec;
    int64_t n_q = g->head_dim * s->n_head, n_kv = g->head_dim * s->n_head_kv;
    bool is_qwen2 = strcmp(s->arch, "qwen2") == 0, is_qwen3 = strncmp(s->arch, "qwen3", 5) == 0;
    add_block_norm(g, in_layer(il, "attn_norm.weight").text, SMALL_CHANGE);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "attn_q.weight").text, s->n_embd,
                       is_qwen35(s) ? 2 * n_q : n_q, 0);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_ATTN_K, il, in_layer(il, "attn_k.weight").text, s->n_embd, n_kv, 0);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_ATTN_V, il, in_layer(il, "attn_v.weight").text, s->n_embd, n_kv, 0);
    if (is_qwen2) {
        add_bias(g, in_layer(il, "attn_q.bias").text, n_q);
        add_bias(g, in_layer(il, "attn_k.bias").text, n_kv);
        add_bias(g, in_layer(il, "attn_v.bias").text, n_kv);
    }
    if (is_qwen3) {
        add_norm(g, in_layer(il, "attn_q_norm.weight").text, g->head_dim);
        add_norm(g, in_layer(il, "attn_k_norm.weight").text, g->head_dim);
    }
    kin_gen_add_matrix(g->tensors, KIN_ROLE_ATTN_OUTPUT, il, in_layer(il, "attn_output.weight").text, n_q, s->n_embd, 0);
    if (s->attn_out_bias) add_bias(g, in_layer(il, "attn_output.bias").text, s->n_embd);
}

static void add_ffn(maker *g, int il) {
    const kin_model_spec *s = g->spec;
    // Attention averages over the text; only what the feed-forward block adds differs from token to token.
    const float change = s->layer_change > 0 ? s->layer_change : SMALL_CHANGE;
    add_block_norm(g, in_layer(il, is_qwen35(s) ? "post_attention_norm.weight" : "ffn_norm.weight").text, change);
    if (s->n_expert == 0) {
        kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "ffn_gate.weight").text, s->n_embd, s->n_ff, 0);
        kin_gen_add_matrix(g->tensors, KIN_ROLE_FFN_UP, il, in_layer(il, "ffn_up.weight").text, s->n_embd, s->n_ff, 0);
        kin_gen_add_matrix(g->tensors, KIN_ROLE_FFN_DOWN, il, in_layer(il, "ffn_down.weight").text, s->n_ff, s->n_embd, 0);
        return;
    }
    kin_gen_add_floats(g->tensors, in_layer(il, "ffn_gate_inp.weight").text, s->n_embd, s->n_expert, s->router_skew);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "ffn_gate_exps.weight").text, s->n_embd, g->n_ff_exp,
                       s->n_expert);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_FFN_UP, il, in_layer(il, "ffn_up_exps.weight").text, s->n_embd, g->n_ff_exp,
                       s->n_expert);
    kin_gen_add_matrix(g->tensors, KIN_ROLE_FFN_DOWN, il, in_layer(il, "ffn_down_exps.weight").text, g->n_ff_exp, s->n_embd,
                       s->n_expert);
}

// A known text: words are the tokens after the special ones and the bytes.

static uint64_t first_word(const kin_model_spec *s) {
    return KIN_GEN_TOKENS_SPECIAL + (s->n_vocab >= KIN_GEN_TOKENS_SPECIAL + KIN_GEN_TOKENS_BYTE ? KIN_GEN_TOKENS_BYTE : 0);
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// Returns the distance from a word to the next one of the text, so that all words come before one is repeated.
static uint64_t word_step(uint64_t n_words) {
    uint64_t step = n_words * 618 / 1000 + 1;
    while (greatest_divisor(step, n_words) != 1) step++;
    return step;
}

// A token that is no word is like one of them.
static uint64_t word_of(const maker *g, uint64_t token) {
    const uint64_t first = first_word(g->spec), n_words = (uint64_t)g->spec->n_vocab - first;
    return (token < first ? token : token - first) % n_words;
}

static uint64_t row_of_embedding(const void *user, uint64_t token) {
    const maker *g = user;
    return word_of(g, token);
}

// The output's row of a word is the embedding's of the word before it; of other tokens it is like none.
static uint64_t row_of_output(const void *user, uint64_t token) {
    const maker *g = user;
    const uint64_t first = first_word(g->spec), n_words = (uint64_t)g->spec->n_vocab - first;
    return token < first ? n_words + token : (token - first + n_words - word_step(n_words) % n_words) % n_words;
}

static uint64_t row_of_draft(const void *user, uint64_t token) {
    const maker *g = user;
    const uint64_t n_words = (uint64_t)g->spec->n_vocab - first_word(g->spec), word = word_of(g, token);
    const double drawn = (double)(kin_random_mix(g->spec->seed + (uint64_t)g->i_draft, word) >> 11) / (double)(UINT64_C(1) << 53);
    return drawn < (double)g->spec->draft_right ? word : (word + n_words / 2) % n_words;
}

static void add_known(maker *g, const char *name, uint64_t (*row_of)(const void *user, uint64_t row)) {
    kin_gen_add_known(g->tensors, name, g->spec->n_embd, g->spec->n_vocab, row_of, g);
}

static void add_ends(maker *g) {
    const kin_model_spec *s = g->spec;
    const bool is_known = s->draft_right > 0;
    if (is_known)
        add_known(g, "output.weight", row_of_output);
    else if (!s->tied)
        kin_gen_add_matrix(g->tensors, KIN_ROLE_OUTPUT, -1, "output.weight", s->n_embd, s->n_vocab, 0);
    add_norm(g, "output_norm.weight", s->n_embd);
    if (s->rope_freqs) add_rope_freqs(g);
    if (is_known)
        add_known(g, "token_embd.weight", row_of_embedding);
    else
        kin_gen_add_matrix(g->tensors, KIN_ROLE_EMBD, -1, "token_embd.weight", s->n_embd, s->n_vocab, 0);
}

// Row i takes number i of the token's embedding, and nothing of the hidden state.
static void fill_identity(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const size_t n_in = 2 * (size_t)((const maker *)user)->spec->n_embd;
    const ggml_bf16_t one = ggml_fp32_to_bf16(1);
    memset(out, 0, n_rows * n_in * sizeof one);
    for (uint64_t i = 0; i < n_rows; i++) memcpy(out + (i * n_in + row_begin + i) * sizeof one, &one, sizeof one);
}

static void add_draft_block(maker *g) {
    const kin_model_spec *s = g->spec;
    const int il = s->n_layer + g->i_draft;
    const int64_t ne[] = {2 * (int64_t)s->n_embd, s->n_embd};
    add_attention(g, il);
    add_ffn(g, il);
    add_norm(g, in_layer(il, "nextn.enorm.weight").text, s->n_embd);
    add_norm(g, in_layer(il, "nextn.hnorm.weight").text, s->n_embd);
    float *norm = add_norm(g, in_layer(il, "nextn.shared_head_norm.weight").text, s->n_embd);
    for (int i = 0; i < s->n_embd; i++) norm[i] = 1 + 5 * (norm[i] - 1); // not to be mistaken for another
    if (s->draft_right > 0) {
        kin_gguf_writer_add_filled(kin_gen_writer(g->tensors), in_layer(il, "nextn.eh_proj.weight").text, GGML_TYPE_BF16, 2, ne,
                                   fill_identity, g);
        add_known(g, in_layer(il, "nextn.embed_tokens.weight").text, row_of_draft);
    } else {
        kin_gen_add_matrix(g->tensors, KIN_ROLE_OTHER, il, in_layer(il, "nextn.eh_proj.weight").text, ne[0], ne[1], 0);
    }
}

// The tensors of a file of draft blocks that belong to no block.
static void add_draft_ends(maker *g) {
    const kin_model_spec *s = g->spec;
    add_norm(g, "output_norm.weight", s->n_embd);
    if (s->draft_right > 0)
        add_known(g, "token_embd.weight", row_of_embedding);
    else
        kin_gen_add_matrix(g->tensors, KIN_ROLE_EMBD, -1, "token_embd.weight", s->n_embd, s->n_vocab, 0);
}

static void add_tensors(maker *g) {
    const kin_model_spec *s = g->spec;
    const bool has_layers = s->part != KIN_MODEL_DRAFTS;
    if (has_layers)
        add_ends(g);
    else
        add_draft_ends(g);
    for (int il = 0; il < s->n_layer && has_layers; il++) {
        if (is_delta_net(s, il))
            add_delta_net(g, il);
        else
            add_attention(g, il);
        add_ffn(g, il);
    }
    if (s->part != KIN_MODEL_WITHOUT_DRAFTS)
        for (g->i_draft = 0; g->i_draft < s->draft_blocks; g->i_draft++) add_draft_block(g);
}

// Metadata

static void put_arch_u32(maker *g, const char *key, int64_t value) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", g->spec->arch, key);
    kin_gguf_writer_put_int(kin_gen_writer(g->tensors), full, KIN_GGUF_U32, value);
}

static void put_arch_f32(maker *g, const char *key, double value) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", g->spec->arch, key);
    kin_gguf_writer_put_float(kin_gen_writer(g->tensors), full, KIN_GGUF_F32, value);
}

// Returns how many draft blocks the file has.
static int n_drafts(const kin_model_spec *s) {
    return s->part == KIN_MODEL_WITHOUT_DRAFTS ? 0 : s->draft_blocks;
}

static void put_qwen35(maker *g) {
    const kin_model_spec *s = g->spec;
    const int32_t quarter = (int32_t)(g->head_dim / 4 / 2), sections[] = {quarter, quarter, quarter, quarter};
    put_arch_u32(g, "ssm.conv_kernel", DELTA_TAPS);
    put_arch_u32(g, "ssm.state_size", s->state_dim);
    put_arch_u32(g, "ssm.group_count", s->n_head_kv);
    put_arch_u32(g, "ssm.time_step_rank", s->n_head);
    put_arch_u32(g, "ssm.inner_size", (int64_t)s->state_dim * s->n_head);
    put_arch_u32(g, "full_attention_interval", s->attention_interval > 1 ? s->attention_interval : 1);
    kin_gguf_writer_put_array(kin_gen_writer(g->tensors), "qwen35.rope.dimension_sections", KIN_GGUF_I32, 4, sections);
    if (n_drafts(s) > 0) put_arch_u32(g, "nextn_predict_layers", n_drafts(s));
}

static void put_hparams(maker *g) {
    const kin_model_spec *s = g->spec;
    put_arch_u32(g, "vocab_size", s->n_vocab);
    put_arch_u32(g, "context_length", s->n_ctx);
    put_arch_u32(g, "embedding_length", s->n_embd);
    put_arch_u32(g, "block_count", s->n_layer + n_drafts(s));
    put_arch_u32(g, "feed_forward_length", s->n_ff);
    put_arch_u32(g, "attention.head_count", s->n_head);
    put_arch_u32(g, "attention.head_count_kv", s->n_head_kv);
    put_arch_f32(g, "attention.layer_norm_rms_epsilon", strcmp(s->arch, "llama") == 0 ? 1e-5 : 1e-6);
    put_arch_f32(g, "rope.freq_base", s->rope_freq_base);
    put_arch_u32(g, "rope.dimension_count", g->head_dim);
    if (g->head_dim * s->n_head != s->n_embd || is_qwen35(s)) {
        put_arch_u32(g, "attention.key_length", g->head_dim);
        put_arch_u32(g, "attention.value_length", g->head_dim);
    }
    if (is_qwen35(s)) put_qwen35(g);
    if (s->pooling_type > 0) put_arch_u32(g, "pooling_type", s->pooling_type);
    if (s->n_expert > 0) {
        put_arch_u32(g, "expert_count", s->n_expert);
        put_arch_u32(g, "expert_used_count", s->n_expert_used);
        if (strcmp(s->arch, "llama") != 0) put_arch_u32(g, "expert_feed_forward_length", g->n_ff_exp);
    }
}

static void put_metadata(maker *g) {
    kin_gguf_writer_put_str(kin_gen_writer(g->tensors), "general.architecture", g->spec->arch);
    kin_gguf_writer_put_str(kin_gen_writer(g->tensors), "general.name", "random");
    put_hparams(g);
    kin_gen_put_types(g->tensors);
    kin_gen_put_vocab(g->tensors);
}

// Making

static int check_spec(const kin_model_spec *s, kin_err *err) {
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "qwen3moe", "qwen35"};
    bool known = false;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) known |= strcmp(s->arch, archs[i]) == 0;
    if (!known) return kin_err_set(err, "'%s' is not one of llama, qwen2, qwen3, qwen3moe, qwen35", s->arch);
    if ((s->attention_interval > 0 || s->draft_blocks > 0) && !is_qwen35(s))
        return kin_err_set(err, "%s has neither delta nets nor a draft block", s->arch);
    if (s->state_dim < 16 || s->state_dim % 16 != 0)
        return kin_err_set(err, "states of %d values cannot be made: multiples of 16 can", s->state_dim);
    if (s->draft_right < 0 || s->draft_right > 1 || (s->draft_right > 0 && (s->draft_blocks == 0 || s->tied)))
        return kin_err_set(err, "draft_right is a share, of the drafts of a model with a draft block and an output of its own");
    if (s->draft_blocks < 0 || s->draft_blocks > MAX_DRAFT_BLOCKS || (s->part != KIN_MODEL_WHOLE && s->draft_blocks == 0))
        return kin_err_set(err, "a model has up to %d draft blocks, and one without them has no other parts", MAX_DRAFT_BLOCKS);
    if (s->n_layer < 1 || s->n_embd < 1 || s->n_ff < 1 || s->n_head < 1 || s->n_head_kv < 1 || s->n_ctx < 1) {
        return kin_err_set(err, "layers, widths, heads and context must be at least 1");
    }
    if (s->n_vocab < KIN_GEN_TOKENS_SPECIAL + 1)
        return kin_err_set(err, "a vocabulary needs at least %d tokens", KIN_GEN_TOKENS_SPECIAL + 1);
    if (s->n_head % s->n_head_kv != 0)
        return kin_err_set(err, "%d heads do not share %d KV heads evenly", s->n_head, s->n_head_kv);
    if (s->endless && s->tied) return kin_err_set(err, "a model whose output is its embedding cannot be endless");
    if (s->head_dim < 0 || s->head_dim % 2 != 0 || (s->head_dim == 0 && s->n_embd % (2 * s->n_head) != 0)) {
        return kin_err_set(err, "a head's dimension must be even; give head_dim or an n_embd that is a multiple of 2 * n_head");
    }
    if (s->n_expert < 0 || s->n_expert_used < 0 || s->n_expert_used > s->n_expert || (s->n_expert > 0 && s->n_expert_used == 0)) {
        return kin_err_set(err, "%d of %d experts cannot be used", s->n_expert_used, s->n_expert);
    }
    bool moe_only = strcmp(s->arch, "qwen3moe") == 0, moe_able = moe_only || strcmp(s->arch, "llama") == 0;
    if (moe_only && s->n_expert == 0) return kin_err_set(err, "qwen3moe needs experts");
    if (!moe_able && s->n_expert > 0) return kin_err_set(err, "%s has no experts", s->arch);
    if (!moe_only && s->n_ff_exp && s->n_ff_exp != s->n_ff) return kin_err_set(err, "%s has no n_ff_exp of its own", s->arch);
    return 0;
}

// About; a delta net counts as attention.
static int64_t count_weights(const kin_model_spec *s, int64_t head_dim, int64_t n_ff_exp) {
    int64_t attention = 2 * head_dim * (s->n_head + s->n_head_kv) * s->n_embd;
    int64_t ffn = 3 * (s->n_expert ? n_ff_exp * s->n_expert : s->n_ff) * s->n_embd;
    return (s->n_layer + s->draft_blocks) * (attention + ffn) + (s->tied ? 1 : 2) * (int64_t)s->n_vocab * s->n_embd;
}

static kin_generator *make(maker *g) {
    const kin_model_spec *s = g->spec;
    g->head_dim = s->head_dim ? s->head_dim : s->n_embd / s->n_head;
    g->n_ff_exp = s->n_ff_exp ? s->n_ff_exp : s->n_ff;
    const kin_gen_facts facts = {.mix = s->mix,
                                 .n_layer = s->n_layer,
                                 .n_vocab = s->n_vocab,
                                 .tied = s->tied,
                                 .is_mixtral = s->n_expert == 8,
                                 .endless = s->endless,
                                 .pooled = count_weights(s, g->head_dim, g->n_ff_exp) > KIN_GEN_POOLED_MIN,
                                 .seed = s->seed};
    g->tensors = kin_gen_new(&facts);
    put_metadata(g);
    add_tensors(g);
    return g->tensors;
}

static int save(const kin_model_spec *spec, const char *path, int n_parts, kin_err *err) {
    maker g = {.spec = spec};
    kin_family *family = NULL;
    if (!kin_model_has_mix(spec->mix)) return kin_err_set(err, "'%s' is not one of %s", spec->mix, kin_model_mixes());
    int rc = spec->keys ? kin_family_read(&family, spec->keys, spec->n_vocab, err) : check_spec(spec, err);
    if (family && spec->part != KIN_MODEL_WHOLE && kin_family_n_drafts(family) == 0)
        rc = kin_err_set(err, "%s: the model has no draft blocks, and so no parts", spec->keys);
    kin_generator *tensors = rc != 0 ? NULL : family ? kin_family_make(family, spec->mix, spec->seed, spec->part) : make(&g);
    if (rc == 0) {
        kin_gguf_writer *w = kin_gen_writer(tensors);
        if (spec->hollow) kin_gguf_writer_hollow(w);
        rc = n_parts > 0 ? kin_gguf_writer_save_split(w, path, n_parts, err) : kin_gguf_writer_save(w, path, err);
    }
    kin_gen_free(tensors);
    kin_family_free(family);
    return rc;
}

int kin_model_gen(const kin_model_spec *spec, const char *path, kin_err *err) {
    return save(spec, path, 0, err);
}

int kin_model_gen_split(const kin_model_spec *spec, const char *prefix, int n_parts, kin_err *err) {
    return save(spec, prefix, n_parts, err);
}
