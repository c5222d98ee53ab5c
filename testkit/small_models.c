#include "testkit/small_models.h"

#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "testkit/gguf_write.h"

enum {
    N_LAYER = 6,
    N_EMBD = 64,
    N_WINDOWED_LAYER = 12,
    N_WINDOWED_EMBD = 32,
    N_OWN = N_WINDOWED_LAYER / 2, // layers of the model with shared keys that have keys of their own
    N_INPUT = 16,
    DIM = KIN_SMALL_DIM,
    N_STATE = 32, // numbers of a state space's state for each value
    N_VALUES = DIM * KIN_SMALL_VALUE_HEADS,
    N_CHANNELS = 2 * DIM * KIN_SMALL_KEY_HEADS + N_VALUES,
    MAX_TENSORS = 256,
};

static const float SIZE = 0.3f, WINDOWED_SIZE = 0.5f;

typedef struct model {
    kin_gguf_writer *w;
    const char *family;
    int n_embd;
    float *data[MAX_TENSORS];
    int n_data;
} model;

int kin_small_model_n_layer(kin_small_model kind) {
    return kind == KIN_SMALL_WINDOWED || kind == KIN_SMALL_SHARED ? N_WINDOWED_LAYER : N_LAYER;
}

int kin_small_model_n_embd(kin_small_model kind) {
    return kind == KIN_SMALL_WINDOWED || kind == KIN_SMALL_SHARED ? N_WINDOWED_EMBD : N_EMBD;
}

// Adds a tensor of random numbers around `mean`.
static void add(model *m, const char *name, int64_t ne0, int64_t ne1, float mean, float size) {
    const int64_t ne[] = {ne0, ne1};
    float *x = malloc((size_t)(ne0 * ne1) * sizeof *x);
    kin_rng rng;
    kin_assert(x && m->n_data < MAX_TENSORS);
    kin_rng_seed(&rng, kin_hash64(name, strlen(name), 1));
    for (int64_t i = 0; i < ne0 * ne1; i++) x[i] = mean + size * (float)(2 * kin_rng_unit(&rng) - 1);
    kin_gguf_writer_add(m->w, name, GGML_TYPE_F32, ne1 > 1 ? 2 : 1, ne, x);
    m->data[m->n_data++] = x;
}

static void add_of_layer(model *m, int il, const char *name, int64_t ne0, int64_t ne1, float mean, float size) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", il, name);
    add(m, full, ne0, ne1, mean, size);
}

typedef struct number {
    const char *key;
    int value;
} number;

static void put_numbers(model *m, const number *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", m->family, keys[i].key);
        kin_gguf_writer_put_int(m->w, key, KIN_GGUF_U32, keys[i].value);
    }
}

static void add_ffn(model *m, int il, int n_ff, float size) {
    add_of_layer(m, il, "ffn_gate.weight", m->n_embd, n_ff, 0, size);
    add_of_layer(m, il, "ffn_up.weight", m->n_embd, n_ff, 0, size);
    add_of_layer(m, il, "ffn_down.weight", n_ff, m->n_embd, 0, size);
}

// n_query: width of the queries, with gates
static void add_attention(model *m, int il, int n_query) {
    add_of_layer(m, il, "attn_q.weight", N_EMBD, n_query, 0, SIZE);
    add_of_layer(m, il, "attn_k.weight", N_EMBD, DIM, 0, SIZE);
    add_of_layer(m, il, "attn_v.weight", N_EMBD, DIM, 0, SIZE);
    add_of_layer(m, il, "attn_q_norm.weight", DIM, 1, 1, 0);
    add_of_layer(m, il, "attn_k_norm.weight", DIM, 1, 1, 0);
    add_of_layer(m, il, "attn_output.weight", 2 * DIM, N_EMBD, 0, SIZE);
}

static void add_delta_layer(model *m, int il) {
    add_of_layer(m, il, "attn_norm.weight", N_EMBD, 1, 1, 0);
    add_of_layer(m, il, "post_attention_norm.weight", N_EMBD, 1, 1, 0);
    add_ffn(m, il, N_EMBD, SIZE);
    if (il % 3 == 2) {
        add_attention(m, il, 4 * DIM);
        return;
    }
    add_of_layer(m, il, "attn_qkv.weight", N_EMBD, N_CHANNELS, 0, SIZE);
    add_of_layer(m, il, "attn_gate.weight", N_EMBD, N_VALUES, 0, SIZE);
    add_of_layer(m, il, "ssm_conv1d.weight", 4, N_CHANNELS, 0, 1);
    add_of_layer(m, il, "ssm_alpha.weight", N_EMBD, KIN_SMALL_VALUE_HEADS, 0, SIZE);
    add_of_layer(m, il, "ssm_beta.weight", N_EMBD, KIN_SMALL_VALUE_HEADS, 0, SIZE);
    add_of_layer(m, il, "ssm_dt.bias", KIN_SMALL_VALUE_HEADS, 1, 0, 1);
    add_of_layer(m, il, "ssm_a", KIN_SMALL_VALUE_HEADS, 1, -0.02f, 0.01f); // long memories
    add_of_layer(m, il, "ssm_norm.weight", DIM, 1, 1, 0);
    add_of_layer(m, il, "ssm_out.weight", N_VALUES, N_EMBD, 0, SIZE);
}

static void fill_delta(model *m) {
    static const number keys[] = {{"context_length", KIN_SMALL_CTX},
                                  {"embedding_length", N_EMBD},
                                  {"block_count", N_LAYER},
                                  {"attention.head_count", 2},
                                  {"attention.head_count_kv", 1},
                                  {"attention.key_length", DIM},
                                  {"attention.value_length", DIM},
                                  {"rope.dimension_count", 8},
                                  {"feed_forward_length", N_EMBD},
                                  {"ssm.conv_kernel", 4},
                                  {"ssm.state_size", DIM},
                                  {"ssm.group_count", KIN_SMALL_KEY_HEADS},
                                  {"ssm.time_step_rank", KIN_SMALL_VALUE_HEADS},
                                  {"ssm.inner_size", N_VALUES},
                                  {"full_attention_interval", 3}};
    put_numbers(m, keys, sizeof keys / sizeof *keys);
    add(m, "output.weight", N_EMBD, KIN_SMALL_VOCAB, 0, 1);
    add(m, "output_norm.weight", N_EMBD, 1, 1, 0);
    for (int il = 0; il < N_LAYER; il++) add_delta_layer(m, il);
}

static void add_conv_layer(model *m, int il) {
    add_of_layer(m, il, "attn_norm.weight", N_EMBD, 1, 1, 0);
    add_of_layer(m, il, "ffn_norm.weight", N_EMBD, 1, 1, 0);
    add_ffn(m, il, N_EMBD, SIZE);
    if (il % 3 == 2) {
        add_attention(m, il, 2 * DIM);
        return;
    }
    add_of_layer(m, il, "shortconv.in_proj.weight", N_EMBD, 3 * N_EMBD, 0, SIZE);
    add_of_layer(m, il, "shortconv.conv.weight", 3, N_EMBD, 0, 1);
    add_of_layer(m, il, "shortconv.out_proj.weight", N_EMBD, N_EMBD, 0, SIZE);
}

static void fill_conv(model *m) {
    static const number keys[] = {{"context_length", KIN_SMALL_CTX}, {"embedding_length", N_EMBD},
                                  {"block_count", N_LAYER},          {"attention.head_count", 2},
                                  {"attention.key_length", DIM},     {"attention.value_length", DIM},
                                  {"feed_forward_length", N_EMBD},   {"shortconv.l_cache", 3}};
    static const int32_t n_head_kv[N_LAYER] = {0, 0, 1, 0, 0, 1};
    put_numbers(m, keys, sizeof keys / sizeof *keys);
    kin_gguf_writer_put_array(m->w, "lfm2.attention.head_count_kv", KIN_GGUF_I32, N_LAYER, n_head_kv);
    add(m, "token_embd_norm.weight", N_EMBD, 1, 1, 0);
    for (int il = 0; il < N_LAYER; il++) add_conv_layer(m, il);
}

static void add_state_layer(model *m, int il) {
    const int n_groups = KIN_SMALL_KEY_HEADS, n_channels = N_VALUES + 2 * n_groups * N_STATE;
    add_of_layer(m, il, "attn_norm.weight", N_EMBD, 1, 1, 0);
    if (il % 3 == 1) {
        add_of_layer(m, il, "ffn_up.weight", N_EMBD, N_EMBD, 0, SIZE);
        add_of_layer(m, il, "ffn_down.weight", N_EMBD, N_EMBD, 0, SIZE);
    } else if (il == 2) {
        add_of_layer(m, il, "attn_q.weight", N_EMBD, 2 * DIM, 0, SIZE);
        add_of_layer(m, il, "attn_k.weight", N_EMBD, DIM, 0, SIZE);
        add_of_layer(m, il, "attn_v.weight", N_EMBD, DIM, 0, SIZE);
        add_of_layer(m, il, "attn_output.weight", 2 * DIM, N_EMBD, 0, SIZE);
    } else {
        add_of_layer(m, il, "ssm_in.weight", N_EMBD, N_VALUES + n_channels + KIN_SMALL_VALUE_HEADS, 0, SIZE);
        add_of_layer(m, il, "ssm_conv1d.weight", 4, n_channels, 0, 1);
        add_of_layer(m, il, "ssm_conv1d.bias", n_channels, 1, 0, 0.2f);
        add_of_layer(m, il, "ssm_dt.bias", KIN_SMALL_VALUE_HEADS, 1, 0, 1);
        add_of_layer(m, il, "ssm_a", 1, KIN_SMALL_VALUE_HEADS, -0.02f, 0.01f); // long memories
        add_of_layer(m, il, "ssm_d", 1, KIN_SMALL_VALUE_HEADS, 1, 0.2f);
        add_of_layer(m, il, "ssm_norm.weight", N_VALUES / n_groups, n_groups, 1, 0.2f);
        add_of_layer(m, il, "ssm_out.weight", N_VALUES, N_EMBD, 0, SIZE);
    }
}

static void fill_state(model *m) {
    static const number keys[] = {{"context_length", KIN_SMALL_CTX},
                                  {"embedding_length", N_EMBD},
                                  {"block_count", N_LAYER},
                                  {"attention.head_count", 2},
                                  {"attention.key_length", DIM},
                                  {"attention.value_length", DIM},
                                  {"ssm.conv_kernel", 4},
                                  {"ssm.state_size", N_STATE},
                                  {"ssm.inner_size", N_VALUES},
                                  {"ssm.group_count", KIN_SMALL_KEY_HEADS},
                                  {"ssm.time_step_rank", KIN_SMALL_VALUE_HEADS}};
    static const int32_t n_head_kv[N_LAYER] = {0, 0, 1, 0, 0, 0}, n_ff[N_LAYER] = {0, N_EMBD, 0, 0, N_EMBD, 0};
    put_numbers(m, keys, sizeof keys / sizeof *keys);
    kin_gguf_writer_put_array(m->w, "nemotron_h.attention.head_count_kv", KIN_GGUF_I32, N_LAYER, n_head_kv);
    kin_gguf_writer_put_array(m->w, "nemotron_h.feed_forward_length", KIN_GGUF_I32, N_LAYER, n_ff);
    add(m, "output.weight", N_EMBD, KIN_SMALL_VOCAB, 0, 1);
    add(m, "output_norm.weight", N_EMBD, 1, 1, 0);
    for (int il = 0; il < N_LAYER; il++) add_state_layer(m, il);
}

static void add_windowed_layer(model *m, int il) {
    const int n_embd = N_WINDOWED_EMBD;
    const float size = WINDOWED_SIZE;
    add_of_layer(m, il, "attn_q.weight", n_embd, 2 * DIM, 0, size);
    add_of_layer(m, il, "attn_k.weight", n_embd, DIM, 0, size);
    add_of_layer(m, il, "attn_v.weight", n_embd, DIM, 0, size);
    add_of_layer(m, il, "attn_output.weight", 2 * DIM, n_embd, 0, size);
    add_of_layer(m, il, "attn_q_norm.weight", 2 * DIM, 1, 1, 0.2f);
    add_of_layer(m, il, "attn_k_norm.weight", DIM, 1, 1, 0.2f);
    add_of_layer(m, il, "post_attention_norm.weight", n_embd, 1, 1, 0.2f);
    add_ffn(m, il, n_embd, size);
    add_of_layer(m, il, "post_ffw_norm.weight", n_embd, 1, 1, 0.2f);
}

static void fill_windowed(model *m) {
    static const number keys[] = {{"context_length", KIN_SMALL_CTX}, {"embedding_length", N_WINDOWED_EMBD},
                                  {"block_count", N_WINDOWED_LAYER}, {"attention.head_count", 2},
                                  {"attention.head_count_kv", 1},    {"attention.key_length", DIM},
                                  {"attention.value_length", DIM},   {"attention.sliding_window", KIN_SMALL_WINDOW},
                                  {"rope.dimension_count", DIM},     {"feed_forward_length", N_WINDOWED_EMBD}};
    put_numbers(m, keys, sizeof keys / sizeof *keys);
    add(m, "output.weight", N_WINDOWED_EMBD, KIN_SMALL_VOCAB, 0, 1);
    add(m, "output_norm.weight", N_WINDOWED_EMBD, 1, 1, 0);
    for (int il = 0; il < N_WINDOWED_LAYER; il++) add_windowed_layer(m, il);
}

// Values of layers without a window are made of their keys' products.
static void add_shared_layer(model *m, int il) {
    const int n_embd = N_WINDOWED_EMBD;
    const float size = WINDOWED_SIZE;
    add_of_layer(m, il, "attn_norm.weight", n_embd, 1, 1, 0.2f);
    add_of_layer(m, il, "attn_q.weight", n_embd, 2 * DIM, 0, size);
    add_of_layer(m, il, "attn_q_norm.weight", DIM, 1, 1, 0.2f);
    if (il < N_OWN) add_of_layer(m, il, "attn_k.weight", n_embd, DIM, 0, size);
    if (il < N_OWN) add_of_layer(m, il, "attn_k_norm.weight", DIM, 1, 1, 0.2f);
    if (il < N_OWN && il % 3 != 2) add_of_layer(m, il, "attn_v.weight", n_embd, DIM, 0, size);
    add_of_layer(m, il, "attn_output.weight", 2 * DIM, n_embd, 0, size);
    add_of_layer(m, il, "post_attention_norm.weight", n_embd, 1, 1, 0.2f);
    add_of_layer(m, il, "ffn_norm.weight", n_embd, 1, 1, 0.2f);
    add_ffn(m, il, n_embd, size);
    add_of_layer(m, il, "post_ffw_norm.weight", n_embd, 1, 1, 0.2f);
    add_of_layer(m, il, "inp_gate.weight", n_embd, N_INPUT, 0, size);
    add_of_layer(m, il, "proj.weight", N_INPUT, n_embd, 0, size);
    add_of_layer(m, il, "post_norm.weight", n_embd, 1, 1, 0.2f);
}

static void fill_shared(model *m) {
    static const number keys[] = {{"context_length", KIN_SMALL_CTX},
                                  {"embedding_length", N_WINDOWED_EMBD},
                                  {"block_count", N_WINDOWED_LAYER},
                                  {"attention.head_count", 2},
                                  {"attention.head_count_kv", 1},
                                  {"attention.key_length", DIM},
                                  {"attention.value_length", DIM},
                                  {"attention.sliding_window", KIN_SMALL_WINDOW},
                                  {"attention.shared_kv_layers", N_WINDOWED_LAYER - N_OWN},
                                  {"embedding_length_per_layer_input", N_INPUT},
                                  {"rope.dimension_count", DIM},
                                  {"feed_forward_length", N_WINDOWED_EMBD}};
    static const int32_t is_windowed[N_WINDOWED_LAYER] = {1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0};
    put_numbers(m, keys, sizeof keys / sizeof *keys);
    kin_gguf_writer_put_array(m->w, "gemma4.attention.sliding_window_pattern", KIN_GGUF_I32, N_WINDOWED_LAYER, is_windowed);
    add(m, "output.weight", N_WINDOWED_EMBD, KIN_SMALL_VOCAB, 0, 1);
    add(m, "output_norm.weight", N_WINDOWED_EMBD, 1, 1, 0);
    add(m, "per_layer_token_embd.weight", N_INPUT * N_WINDOWED_LAYER, KIN_SMALL_VOCAB, 0, 1);
    add(m, "per_layer_model_proj.weight", N_WINDOWED_EMBD, N_INPUT * N_WINDOWED_LAYER, 0, 1);
    add(m, "per_layer_proj_norm.weight", N_INPUT, 1, 1, 0.2f);
    for (int il = 0; il < N_WINDOWED_LAYER; il++) add_shared_layer(m, il);
}

int kin_small_model_make(kin_small_model kind, char *path, kin_err *err) {
    static const struct {
        const char *family;
        void (*fill)(model *m);
    } kinds[] = {{"qwen35", fill_delta},
                 {"lfm2", fill_conv},
                 {"olmo2", fill_windowed},
                 {"nemotron_h", fill_state},
                 {"gemma4", fill_shared}};
    model m = {.w = kin_gguf_writer_new(), .family = kinds[kind].family, .n_embd = kin_small_model_n_embd(kind)};
    kin_gguf_writer_put_str(m.w, "general.architecture", m.family);
    add(&m, "token_embd.weight", m.n_embd, KIN_SMALL_VOCAB, 0, 1);
    kinds[kind].fill(&m);
    const int fd = mkstemp(path);
    int rc = fd < 0 ? kin_err_set(err, "%s: cannot be made", path) : kin_gguf_writer_save(m.w, path, err);
    if (fd >= 0) close(fd);
    kin_gguf_writer_free(m.w);
    while (m.n_data > 0) free(m.data[--m.n_data]);
    return rc;
}
