#include "testkit/ref_load.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    const kin_gguf *gguf;
    char family[16];
    size_t n_found; // tensors that have been assigned
    int n_dense;    // layers before the first one with experts
    kin_err *err;
} loader;

// Makes "llama.rope.freq_base" from "llama" and "rope.freq_base", in key.
static const char *key_of(const loader *l, const char *name, char key[64]) {
    snprintf(key, 64, "%s.%s", l->family, name);
    return key;
}

// Gets the value of FAMILY.name, or `absent` if the key is absent.
static int get_int(const loader *l, const char *name, int absent, int *value) {
    char key[64];
    uint32_t read = (uint32_t)absent;
    if (kin_gguf_get_u32(l->gguf, key_of(l, name, key), &read, l->err) < 0) return KIN_FAIL;
    if (read > INT_MAX) return kin_err_set(l->err, "%s: %u is too large", key, (unsigned)read);
    *value = (int)read;
    return 0;
}

static int get_float(const loader *l, const char *name, float absent, float *value) {
    char key[64];
    *value = absent;
    return kin_gguf_get_f32(l->gguf, key_of(l, name, key), value, l->err) < 0 ? KIN_FAIL : 0;
}

static int find_family(loader *l, kin_ref_model *m) {
    static const struct {
        const char *name;
        kin_ref_rope_kind rope;
    } families[] = {
        {"llama", KIN_REF_ROPE_NORMAL},  {"qwen2", KIN_REF_ROPE_NEOX},      {"qwen3", KIN_REF_ROPE_NEOX},
        {"qwen3moe", KIN_REF_ROPE_NEOX}, {"exaone", KIN_REF_ROPE_NEOX},     {"exaone4", KIN_REF_ROPE_NEOX},
        {"stablelm", KIN_REF_ROPE_NEOX}, {"minimax-m3", KIN_REF_ROPE_NEOX}, {"kimi-linear", KIN_REF_ROPE_NORMAL},
    };
    kin_str name = {"", 0};
    if (kin_gguf_get_str(l->gguf, "general.architecture", &name, l->err) < 0) return KIN_FAIL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (!kin_str_eq(name, families[i].name)) continue;
        strcpy(l->family, families[i].name);
        m->rope.kind = families[i].rope;
        return 0;
    }
    return kin_err_set(l->err, "architecture \"%.*s\": not one of the reference engine's", (int)name.len, name.at);
}

static bool is_kimi(const loader *l) {
    return strcmp(l->family, "kimi-linear") == 0;
}

static int load_numbers(const loader *l, kin_ref_model *m) {
    int value_dim, n_ff_expert;
    if (get_int(l, "block_count", 0, &m->n_layer) < 0) return KIN_FAIL;
    if (get_int(l, "embedding_length", 0, &m->n_embd) < 0) return KIN_FAIL;
    if (get_int(l, "attention.head_count", 0, &m->n_head) < 0) return KIN_FAIL;
    m->n_head_kv = 1; // of latents, for which files have a number for each layer
    if (!is_kimi(l) && get_int(l, "attention.head_count_kv", m->n_head, &m->n_head_kv) < 0) return KIN_FAIL;
    if (get_int(l, "attention.key_length", m->n_head ? m->n_embd / m->n_head : 0, &m->head_dim) < 0) return KIN_FAIL;
    if (get_int(l, "attention.value_length", m->head_dim, &value_dim) < 0) return KIN_FAIL;
    if (value_dim != m->head_dim && !is_kimi(l))
        return kin_err_set(l->err, "keys of %d but values of %d elements", m->head_dim, value_dim);
    if (get_int(l, "feed_forward_length", 0, &m->n_ff) < 0) return KIN_FAIL;
    if (get_int(l, "expert_count", 0, &m->n_expert) < 0) return KIN_FAIL;
    if (get_int(l, "expert_used_count", 0, &m->n_expert_used) < 0) return KIN_FAIL;
    if (get_int(l, "expert_feed_forward_length", m->n_ff, &n_ff_expert) < 0) return KIN_FAIL;
    if (m->n_expert > 0) m->n_ff = n_ff_expert;
    m->centers_norms = strcmp(l->family, "stablelm") == 0;
    if (strcmp(l->family, "exaone4") == 0 && get_int(l, "attention.sliding_window", 0, &m->window) < 0) return KIN_FAIL;
    return get_float(l, m->centers_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0, &m->rms_eps);
}

// The experts of MiniMax M3 and Kimi Linear: how they are chosen, and those that every token uses.
static int load_routing(const loader *l, kin_ref_model *m) {
    char key[64];
    int n_shared;
    bool normalizes = false;
    if (get_int(l, "feed_forward_length", 0, &m->n_ff_dense) < 0) return KIN_FAIL;
    if (get_int(l, "expert_shared_count", 0, &n_shared) < 0) return KIN_FAIL;
    if (get_float(l, "expert_weights_scale", 1, &m->expert_scale) < 0) return KIN_FAIL;
    if (kin_gguf_get_bool(l->gguf, key_of(l, "expert_weights_norm", key), &normalizes, l->err) < 0) return KIN_FAIL;
    if (!normalizes) return kin_err_set(l->err, "%s: shares that are not normalised are not known", key);
    m->n_ff_shared = n_shared * m->n_ff;
    m->chooses_by_sigmoids = true;
    m->gates_as_gpt_oss = !is_kimi(l);
    return 0;
}

static int load_rope(const loader *l, kin_ref_rope *rope, int head_dim) {
    char key[64];
    int n_ctx;
    float factor, old_factor;
    kin_str scaling = {"linear", 6};
    if (get_int(l, "rope.dimension_count", head_dim, &rope->n_rot) < 0) return KIN_FAIL;
    if (get_float(l, "rope.freq_base", 10000, &rope->freq_base) < 0) return KIN_FAIL;
    if (kin_gguf_get_str(l->gguf, key_of(l, "rope.scaling.type", key), &scaling, l->err) < 0) return KIN_FAIL;
    if (get_float(l, "rope.scale_linear", 1, &old_factor) < 0) return KIN_FAIL;
    if (get_float(l, "rope.scaling.factor", old_factor, &factor) < 0) return KIN_FAIL;
    if (get_float(l, "rope.scaling.attn_factor", 1, &rope->attn_factor) < 0) return KIN_FAIL;
    if (get_float(l, "rope.scaling.yarn_beta_fast", 32, &rope->beta_fast) < 0) return KIN_FAIL;
    if (get_float(l, "rope.scaling.yarn_beta_slow", 1, &rope->beta_slow) < 0) return KIN_FAIL;
    if (get_int(l, "context_length", 0, &n_ctx) < 0) return KIN_FAIL;
    if (get_int(l, "rope.scaling.original_context_length", n_ctx, &rope->n_ctx_orig) < 0) return KIN_FAIL;

    rope->yarn = kin_str_eq(scaling, "yarn");
    const bool none = kin_str_eq(scaling, "none");
    if (!rope->yarn && !none && !kin_str_eq(scaling, "linear"))
        return kin_err_set(l->err, "rope scaling \"%.*s\": not known to the reference engine", (int)scaling.len, scaling.at);
    rope->freq_scale = none || factor == 0 ? 1 : 1 / factor;
    return 0;
}

// Returns the tensor of this name, or an absent one.
static kin_ref_tensor find_tensor(loader *l, const char *name) {
    const kin_gguf_tensor *t = kin_gguf_find_tensor(l->gguf, name);
    if (!t || t->ne[0] > INT_MAX || t->ne[1] > INT_MAX || t->ne[2] > INT_MAX || t->ne[3] != 1) return (kin_ref_tensor){0};
    l->n_found++;
    return (kin_ref_tensor){
        .data = t->data,
        .n_bytes = (size_t)t->n_bytes,
        .type = t->type,
        .n_mats = (int)t->ne[2],
        .n_rows = (int)t->ne[1],
        .n_cols = (int)t->ne[0],
    };
}

// The same for blk.IL.NAME.
static kin_ref_tensor find_layer_tensor(loader *l, int il, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", il, name);
    return find_tensor(l, full);
}

// Finds what decides nothing in contexts as short as those of the tests.
static void skip_indexer(loader *l, int il) {
    static const char *const names[] = {"q_proj", "k_proj", "q_norm", "k_norm"};
    char name[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "indexer.%s.weight", names[i]);
        find_layer_tensor(l, il, name);
    }
}

static void load_experts(loader *l, kin_ref_layer *w, int il) {
    w->ffn_router = find_layer_tensor(l, il, "ffn_gate_inp.weight");
    w->ffn_choice = find_layer_tensor(l, il, "exp_probs_b.bias");
    w->shared_gate = find_layer_tensor(l, il, "ffn_gate_shexp.weight");
    w->shared_up = find_layer_tensor(l, il, "ffn_up_shexp.weight");
    w->shared_down = find_layer_tensor(l, il, "ffn_down_shexp.weight");
    skip_indexer(l, il);
}

static void load_delta(loader *l, const kin_ref_model *m, kin_ref_delta *d, int il) {
    static const char *const products[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    static const char *const convolutions[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"};
    for (int i = 0; i < 3; i++) {
        d->qkv[i] = find_layer_tensor(l, il, products[i]);
        d->conv[i] = find_layer_tensor(l, il, convolutions[i]);
    }
    d->decay_a = find_layer_tensor(l, il, "ssm_f_a.weight");
    d->decay_b = find_layer_tensor(l, il, "ssm_f_b.weight");
    d->dt = find_layer_tensor(l, il, "ssm_dt.bias");
    d->a = find_layer_tensor(l, il, "ssm_a");
    d->beta = find_layer_tensor(l, il, "ssm_beta.weight");
    d->gate_a = find_layer_tensor(l, il, "ssm_g_a.weight");
    d->gate_b = find_layer_tensor(l, il, "ssm_g_b.weight");
    d->norm = find_layer_tensor(l, il, "ssm_norm.weight");
    d->out = find_layer_tensor(l, il, "attn_output.weight");
    d->n_head = m->n_head;
    d->dim = d->norm.n_cols;
    d->n_taps = d->conv[0].n_cols;
}

static void load_latent(loader *l, const kin_ref_model *m, kin_ref_latent *t, int il) {
    t->q = find_layer_tensor(l, il, "attn_q.weight");
    t->kv_a = find_layer_tensor(l, il, "attn_kv_a_mqa.weight");
    t->kv_norm = find_layer_tensor(l, il, "attn_kv_a_norm.weight");
    t->k_b = find_layer_tensor(l, il, "attn_k_b.weight");
    t->v_b = find_layer_tensor(l, il, "attn_v_b.weight");
    t->out = find_layer_tensor(l, il, "attn_output.weight");
    t->n_head = m->n_head;
    t->n_latent = t->kv_norm.n_cols;
    t->n_rot = m->rope.n_rot;
    t->k_dim = t->k_b.n_cols;
    t->v_dim = t->v_b.n_rows;
}

static bool has_layer_tensor(const loader *l, int il, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", il, name);
    return kin_gguf_find_tensor(l->gguf, full) != NULL;
}

static void load_attention(loader *l, kin_ref_layer *w, int il) {
    w->wq = find_layer_tensor(l, il, "attn_q.weight");
    w->wk = find_layer_tensor(l, il, "attn_k.weight");
    w->wv = find_layer_tensor(l, il, "attn_v.weight");
    w->wo = find_layer_tensor(l, il, "attn_output.weight");
    w->bq = find_layer_tensor(l, il, "attn_q.bias");
    w->bk = find_layer_tensor(l, il, "attn_k.bias");
    w->bv = find_layer_tensor(l, il, "attn_v.bias");
    w->q_norm = find_layer_tensor(l, il, "attn_q_norm.weight");
    w->k_norm = find_layer_tensor(l, il, "attn_k_norm.weight");
}

static void load_layer(loader *l, const kin_ref_model *m, kin_ref_layer *w, int il) {
    const bool moe = m->n_expert > 0 && il >= l->n_dense;
    w->is_dense = m->n_expert > 0 && !moe;
    w->is_windowed = m->window > 0 && il % 4 < 3;
    w->has_no_rope = m->window > 0 && !w->is_windowed;
    w->attn_norm = find_layer_tensor(l, il, "attn_norm.weight");
    w->attn_norm_bias = find_layer_tensor(l, il, "attn_norm.bias");
    w->attn_out_norm = find_layer_tensor(l, il, "post_attention_norm.weight");
    w->ffn_out_norm = find_layer_tensor(l, il, "post_ffw_norm.weight");
    if (has_layer_tensor(l, il, "ssm_f_a.weight"))
        load_delta(l, m, &w->delta, il);
    else if (has_layer_tensor(l, il, "attn_kv_a_mqa.weight"))
        load_latent(l, m, &w->latent, il);
    else
        load_attention(l, w, il);
    w->ffn_norm = find_layer_tensor(l, il, "ffn_norm.weight");
    w->ffn_norm_bias = find_layer_tensor(l, il, "ffn_norm.bias");
    w->is_parallel = m->centers_norms && !w->ffn_norm.data;
    load_experts(l, w, il);
    w->ffn_gate = find_layer_tensor(l, il, moe ? "ffn_gate_exps.weight" : "ffn_gate.weight");
    w->ffn_up = find_layer_tensor(l, il, moe ? "ffn_up_exps.weight" : "ffn_up.weight");
    w->ffn_down = find_layer_tensor(l, il, moe ? "ffn_down_exps.weight" : "ffn_down.weight");
}

static int load_tensors(loader *l, kin_ref_model *m) {
    if (m->n_layer < 1 || m->n_layer > KIN_REF_HEAD_MAX) return kin_err_set(l->err, "%d layers", m->n_layer);
    m->layers = calloc((size_t)m->n_layer, sizeof *m->layers);
    if (!m->layers) return kin_err_set(l->err, "out of memory");
    m->token_embd = find_tensor(l, "token_embd.weight");
    m->output_norm = find_tensor(l, "output_norm.weight");
    m->output_norm_bias = find_tensor(l, "output_norm.bias");
    m->output = find_tensor(l, "output.weight");
    m->rope_freqs = find_tensor(l, "rope_freqs.weight");
    m->n_vocab = m->token_embd.n_rows;
    for (int il = 0; il < m->n_layer; il++) load_layer(l, m, &m->layers[il], il);

    const size_t n_tensors = kin_gguf_n_tensors(l->gguf);
    if (l->n_found == n_tensors) return 0;
    return kin_err_set(l->err, "%zu of %zu tensors have no place in the reference engine", n_tensors - l->n_found, n_tensors);
}

int kin_ref_load(kin_ref_model *model, const kin_gguf *gguf, kin_err *err) {
    loader l = {.gguf = gguf, .err = err};
    *model = (kin_ref_model){0};
    if (find_family(&l, model) < 0 || load_numbers(&l, model) < 0) goto fail;
    if (get_int(&l, "leading_dense_block_count", 0, &l.n_dense) < 0) goto fail;
    if ((strcmp(l.family, "minimax-m3") == 0 || is_kimi(&l)) && load_routing(&l, model) < 0) goto fail;
    if (load_rope(&l, &model->rope, model->head_dim) < 0 || load_tensors(&l, model) < 0) goto fail;
    return 0;
fail:
    kin_ref_unload(model);
    return kin_err_prefix(err, "reference engine");
}

void kin_ref_unload(kin_ref_model *model) {
    free(model->layers);
    *model = (kin_ref_model){0};
}
