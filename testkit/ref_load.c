#include "testkit/ref_load.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/ref/dequant.h"
#include "testkit/ref_families.h"

enum { BY_SOFTMAX = 1, BY_SIGMOIDS = 2, BY_SOFTPLUS = 4 }; // values of expert_gating_func

typedef struct loader {
    kin_ref_keys keys;
    const kin_ref_family *family;
    size_t n_found; // tensors that have been assigned
    int n_blocks;   // layers, and blocks that draft
} loader;

static int get_int(const loader *l, const char *name, int absent, int *value) {
    return kin_ref_get_int(&l->keys, name, absent, value);
}

static int get_float(const loader *l, const char *name, float absent, float *value) {
    return kin_ref_get_float(&l->keys, name, absent, value);
}

// The largest of a key's values, which may differ between layers.
static int get_largest(const loader *l, const char *name, int n_layer, int *value) {
    *value = 0;
    for (int il = 0; il < n_layer; il++) {
        int of_layer;
        if (kin_ref_get_int_at(&l->keys, name, il, 0, &of_layer) < 0) return KIN_FAIL;
        if (of_layer > *value) *value = of_layer;
    }
    return 0;
}

static int find_family(loader *l) {
    kin_str name = {"", 0};
    if (kin_gguf_get_str(l->keys.gguf, "general.architecture", &name, l->keys.err) < 0) return KIN_FAIL;
    l->family = kin_ref_family_find(name);
    if (!l->family)
        return kin_err_set(l->keys.err, "architecture \"%.*s\": not one of the reference engine's", (int)name.len, name.at);
    l->keys.family = l->family->name;
    return 0;
}

// Latent attention stores one key for all heads.
static int load_latent_sizes(const loader *l, kin_ref_model *m) {
    int n_latent, n_rot;
    if (get_int(l, "attention.kv_lora_rank", 0, &n_latent) < 0) return KIN_FAIL;
    if (get_int(l, "rope.dimension_count", 0, &n_rot) < 0) return KIN_FAIL;
    m->n_head_kv = 1;
    m->head_dim = n_latent + n_rot;
    return 0;
}

static int load_sizes(loader *l, kin_ref_model *m) {
    int n_drafts;
    if (get_int(l, "block_count", 0, &l->n_blocks) < 0) return KIN_FAIL;
    if (get_int(l, "nextn_predict_layers", 0, &n_drafts) < 0) return KIN_FAIL;
    m->n_layer = l->n_blocks - n_drafts;
    if (m->n_layer < 1 || m->n_layer > KIN_REF_HEAD_MAX) return kin_err_set(l->keys.err, "%d layers", m->n_layer);
    if (get_int(l, "embedding_length", 0, &m->n_embd) < 0) return KIN_FAIL;
    for (int il = 0; il < m->n_layer; il++) {
        int n_head, n_head_kv = 1;
        if (kin_ref_get_int_at(&l->keys, "attention.head_count", il, 0, &n_head) < 0) return KIN_FAIL;
        if (!l->family->has_latents && kin_ref_get_int_at(&l->keys, "attention.head_count_kv", il, n_head, &n_head_kv) < 0)
            return KIN_FAIL;
        if (n_head > m->n_head) m->n_head = n_head;
        if (n_head_kv > m->n_head_kv) m->n_head_kv = n_head_kv;
    }
    if (l->family->has_latents) return load_latent_sizes(l, m);
    if (get_int(l, "attention.key_length", m->n_head ? m->n_embd / m->n_head : 0, &m->head_dim) < 0) return KIN_FAIL;
    return get_int(l, "attention.value_length", m->head_dim, &m->value_dim);
}

static int load_numbers(const loader *l, kin_ref_model *m) {
    const kin_ref_family *f = l->family;
    int n_shared;
    if (get_int(l, "expert_count", 0, &m->n_expert) < 0) return KIN_FAIL;
    if (get_int(l, "expert_used_count", 0, &m->n_expert_used) < 0) return KIN_FAIL;
    if (get_largest(l, "feed_forward_length", m->n_layer, &m->n_ff_dense) < 0) return KIN_FAIL;
    m->n_ff = m->n_ff_dense;
    if (m->n_expert > 0 && get_int(l, "expert_feed_forward_length", m->n_ff_dense, &m->n_ff) < 0) return KIN_FAIL;
    if (get_int(l, "expert_shared_count", 0, &n_shared) < 0) return KIN_FAIL;
    if (get_int(l, "expert_shared_feed_forward_length", n_shared * m->n_ff, &m->n_ff_shared) < 0) return KIN_FAIL;
    if (f->has_window && get_int(l, "attention.sliding_window", 0, &m->window) < 0) return KIN_FAIL;
    m->centers_norms = f->centers_norms;
    m->gate = f->gate;
    m->window_rope_has_no_freqs = f->window_rope_unscaled;
    return get_float(l, f->centers_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0, &m->rms_eps);
}

// How experts are chosen, and what becomes of their shares.
static int load_routing(const loader *l, kin_ref_model *m) {
    bool normalizes;
    int how;
    const int usual = l->family->chooses_by_sigmoids ? BY_SIGMOIDS : BY_SOFTMAX;
    m->routing = l->family->chooses_by_sigmoids ? KIN_REF_ROUTE_SIGMOID : KIN_REF_ROUTE_SOFTMAX;
    if (m->n_expert == 0 || l->family->ignores_routing_keys) return 0;
    if (kin_ref_get_bool(&l->keys, "expert_weights_norm", !l->family->keeps_shares, &normalizes) < 0) return KIN_FAIL;
    if (get_int(l, "expert_group_count", 0, &m->n_group) < 0) return KIN_FAIL;
    if (get_int(l, "expert_group_used_count", 0, &m->n_group_used) < 0) return KIN_FAIL;
    if (get_int(l, "expert_gating_func", usual, &how) < 0) return KIN_FAIL;
    m->routing = how == BY_SOFTMAX ? KIN_REF_ROUTE_SOFTMAX : how == BY_SIGMOIDS ? KIN_REF_ROUTE_SIGMOID : KIN_REF_ROUTE_SOFTPLUS;
    if (how != BY_SIGMOIDS && how != BY_SOFTMAX && how != BY_SOFTPLUS)
        return kin_err_set(l->keys.err, "expert_gating_func %d: not known to the reference engine", how);
    m->keeps_shares = !normalizes;
    return get_float(l, "expert_weights_scale", 1, &m->expert_scale);
}

static int load_rope(const loader *l, kin_ref_rope *rope, int head_dim) {
    int n_ctx;
    float factor, old_factor;
    kin_str scaling;
    rope->kind = l->family->rope;
    if (get_int(l, "rope.dimension_count", head_dim, &rope->n_rot) < 0) return KIN_FAIL;
    if (get_float(l, "rope.freq_base", 10000, &rope->freq_base) < 0) return KIN_FAIL;
    if (kin_ref_get_str(&l->keys, "rope.scaling.type", (kin_str){"linear", 6}, &scaling) < 0) return KIN_FAIL;
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
        return kin_err_set(l->keys.err, "rope scaling \"%.*s\": not known to the reference engine", (int)scaling.len, scaling.at);
    rope->freq_scale = none || factor == 0 ? 1 : 1 / factor;
    return 0;
}

// The rope of windowed layers differs from the other one.
static int load_window_rope(const loader *l, const kin_ref_rope *rope, kin_ref_rope *own) {
    const kin_ref_family *f = l->family;
    if (!f->has_window) return 0;
    *own = *rope;
    if (f->window_rope_unscaled) {
        own->freq_scale = own->attn_factor = 1;
        own->yarn = false;
    }
    if (get_int(l, "rope.dimension_count_swa", rope->n_rot, &own->n_rot) < 0) return KIN_FAIL;
    return get_float(l, "rope.freq_base_swa", f->window_freq_base > 0 ? f->window_freq_base : rope->freq_base, &own->freq_base);
}

// Returns the tensor of this name, or an absent one.
static kin_ref_tensor find_tensor(loader *l, const char *name) {
    const kin_gguf_tensor *t = kin_gguf_find_tensor(l->keys.gguf, name);
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

static bool has_layer_tensor(const loader *l, int il, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", il, name);
    return kin_gguf_find_tensor(l->keys.gguf, full) != NULL;
}

// Finds the tensors of indexers that are not computed: contexts are as short as they must be.
static void skip_indexer(loader *l, const kin_ref_layer *w, int il) {
    static const char *const names[] = {"indexer.q_proj.weight",   "indexer.k_proj.weight", "indexer.q_norm.weight",
                                        "indexer.k_norm.weight",   "indexer.k_norm.bias",   "indexer.proj.weight",
                                        "indexer.attn_q_b.weight", "indexer.attn_k.weight"};
    if (w->latent.indexer.n_head > 0 || w->compressed.indexer.n_head > 0 || w->indexer.n_head > 0) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) find_layer_tensor(l, il, names[i]);
}

static kin_ref_sinkhorn load_sinkhorn(loader *l, int il, const char *block) {
    static const char *const parts[] = {"fn", "base", "scale"};
    kin_ref_tensor found[3];
    char name[32];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s_%s.weight", block, parts[i]);
        found[i] = il < 0 ? find_tensor(l, name) : find_layer_tensor(l, il, name);
    }
    return (kin_ref_sinkhorn){found[0], found[1], found[2]};
}

static kin_ref_mixer load_mixer(loader *l, int il, const char *block) {
    static const char *const parts[] = {"norm", "down", "up", "inject"};
    kin_ref_tensor found[4];
    char name[32];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s_%s.weight", block, parts[i]);
        found[i] = il < 0 ? find_tensor(l, name) : find_layer_tensor(l, il, name);
    }
    return (kin_ref_mixer){found[0], found[1], found[2], found[3]};
}

// The numbers follow from the family's keys.
static void load_ngram(loader *l, const kin_ref_model *m, kin_ref_ngram *g, int il) {
    g->table = m->ngram_table;
    g->key = find_layer_tensor(l, il, "ple_key.weight");
    g->value = find_layer_tensor(l, il, "ple_value.weight");
    g->key_norm = find_layer_tensor(l, il, "ple_norm_key.weight");
    g->query_norm = find_layer_tensor(l, il, "ple_norm_query.weight");
    g->conv_norm = find_layer_tensor(l, il, "ple_norm_conv.weight");
    g->taps = find_layer_tensor(l, il, "ple_conv1d.weight");
}

// How the layer reads and writes several streams, if there are such.
static void load_streams(loader *l, const kin_ref_model *m, kin_ref_layer *w, int il) {
    static const char *const names[] = {[KIN_REF_ATTENTION] = "hc_attn", [KIN_REF_FEED_FORWARD] = "hc_ffn"};
    for (int i = 0; i < 2; i++) {
        if (m->n_sinkhorn > 0) w->sinkhorn[i] = load_sinkhorn(l, il, names[i]);
        if (kin_ref_has_mixers(m)) w->mixers[i] = load_mixer(l, il, names[i]);
    }
    load_ngram(l, m, &w->ngram, il);
}

static void load_experts(loader *l, kin_ref_layer *w, int il) {
    w->ffn_router = find_layer_tensor(l, il, "ffn_gate_inp.weight");
    w->router_bias = find_layer_tensor(l, il, "ffn_gate_inp.bias");
    w->ffn_choice = find_layer_tensor(l, il, has_layer_tensor(l, il, "exp_probs_b") ? "exp_probs_b" : "exp_probs_b.bias");
    w->gate_bias = find_layer_tensor(l, il, "ffn_gate_exps.bias");
    w->up_bias = find_layer_tensor(l, il, "ffn_up_exps.bias");
    w->down_bias = find_layer_tensor(l, il, "ffn_down_exps.bias");
    w->shared_router = find_layer_tensor(l, il, "ffn_gate_inp_shexp.weight");
    w->shared_gate = find_layer_tensor(l, il, "ffn_gate_shexp.weight");
    w->shared_up = find_layer_tensor(l, il, "ffn_up_shexp.weight");
    w->shared_down = find_layer_tensor(l, il, "ffn_down_shexp.weight");
    w->latent_down = find_layer_tensor(l, il, "ffn_latent_down.weight");
    w->latent_up = find_layer_tensor(l, il, "ffn_latent_up.weight");
    w->token_experts = find_layer_tensor(l, il, "ffn_gate_tid2eid.weight");
    w->router_norm = find_layer_tensor(l, il, "ffn_gate_inp.scale");
    w->expert_scales = find_layer_tensor(l, il, "ffn_down_exps.scale");
    w->experts_norm = find_layer_tensor(l, il, "pre_ffw_norm_2.weight");
    w->experts_out_norm = find_layer_tensor(l, il, "post_ffw_norm_2.weight");
    w->shared_out_norm = find_layer_tensor(l, il, "post_ffw_norm_1.weight");
    skip_indexer(l, w, il);
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
    if (d->a.n_rows == 1) d->a = (kin_ref_tensor){d->a.data, d->a.n_bytes, d->a.type, 1, d->a.n_cols, 1}; // a row of numbers
    d->beta = find_layer_tensor(l, il, "ssm_beta.weight");
    d->gate_a = find_layer_tensor(l, il, "ssm_g_a.weight");
    d->gate_b = find_layer_tensor(l, il, "ssm_g_b.weight");
    d->norm = find_layer_tensor(l, il, "ssm_norm.weight");
    d->out = find_layer_tensor(l, il, "attn_output.weight");
    d->n_head = m->n_head;
    d->dim = d->norm.n_cols;
    d->n_taps = d->conv[0].n_cols;
}

static void load_gated(loader *l, kin_ref_gated *g, int il) {
    g->qkv = find_layer_tensor(l, il, "attn_qkv.weight");
    g->gate = find_layer_tensor(l, il, "attn_gate.weight");
    g->all = find_layer_tensor(l, il, "ssm_in.weight");
    g->beta = find_layer_tensor(l, il, "ssm_beta.weight");
    g->alpha = find_layer_tensor(l, il, "ssm_alpha.weight");
    g->both = find_layer_tensor(l, il, "ssm_ba.weight");
    g->conv = find_layer_tensor(l, il, "ssm_conv1d.weight");
    g->dt = find_layer_tensor(l, il, "ssm_dt.bias");
    g->a = find_layer_tensor(l, il, "ssm_a");
    g->norm = find_layer_tensor(l, il, "ssm_norm.weight");
    g->out = find_layer_tensor(l, il, "ssm_out.weight");
    g->n_value = g->a.n_cols;
    g->dim = g->norm.n_cols;
    g->n_taps = g->conv.n_cols;
    g->n_key = g->dim > 0 ? (g->conv.n_rows / g->dim - g->n_value) / 2 : 0;
    g->is_grouped = l->family->has_grouped_keys;
}

static void load_state_space(loader *l, kin_ref_state_space *s, int il) {
    s->in = find_layer_tensor(l, il, "ssm_in.weight");
    s->conv = find_layer_tensor(l, il, "ssm_conv1d.weight");
    s->conv_bias = find_layer_tensor(l, il, "ssm_conv1d.bias");
    s->dt = find_layer_tensor(l, il, "ssm_dt.bias");
    s->a = find_layer_tensor(l, il, "ssm_a");
    s->d = find_layer_tensor(l, il, "ssm_d");
    s->norm = find_layer_tensor(l, il, "ssm_norm.weight");
    s->out = find_layer_tensor(l, il, "ssm_out.weight");
    s->n_head = s->a.n_rows;
    s->n_group = s->norm.n_rows;
    s->n_taps = s->conv.n_cols;
    s->dim = s->n_head > 0 ? s->out.n_cols / s->n_head : 0;
    s->n_state = s->n_group > 0 ? (s->conv.n_rows - s->out.n_cols) / (2 * s->n_group) : 0;
}

static void load_convolution(loader *l, kin_ref_convolution *c, int il) {
    c->in = find_layer_tensor(l, il, "shortconv.in_proj.weight");
    c->taps = find_layer_tensor(l, il, "shortconv.conv.weight");
    c->out = find_layer_tensor(l, il, "shortconv.out_proj.weight");
    c->n = c->taps.n_rows;
    c->n_taps = c->taps.n_cols;
}

static kin_ref_compressor load_compressor(loader *l, int il, const char *of) {
    static const char *const parts[] = {"kv", "gate", "ape", "norm"};
    kin_ref_tensor found[4];
    char name[40];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s_compressor_%s.weight", of, parts[i]);
        found[i] = find_layer_tensor(l, il, name);
    }
    return (kin_ref_compressor){found[3].n_cols, found[0], found[1], found[2], found[3]};
}

// The rest follows from the family's keys.
static void load_compressed(loader *l, const kin_ref_model *m, kin_ref_compressed *c, int il) {
    c->q_a = find_layer_tensor(l, il, "attn_q_a.weight");
    c->q_norm = find_layer_tensor(l, il, "attn_q_a_norm.weight");
    c->q_b = find_layer_tensor(l, il, "attn_q_b.weight");
    c->kv = find_layer_tensor(l, il, "attn_kv.weight");
    c->kv_norm = find_layer_tensor(l, il, "attn_kv_a_norm.weight");
    c->sinks = find_layer_tensor(l, il, "attn_sinks.weight");
    c->rows = load_compressor(l, il, "attn");
    c->keys = load_compressor(l, il, "indexer");
    if (c->keys.dim > 0) {
        c->indexer.q = find_layer_tensor(l, il, "indexer.attn_q_b.weight");
        c->indexer.weights = find_layer_tensor(l, il, "indexer.proj.weight");
        c->indexer.n_head = c->indexer.weights.n_rows;
        c->indexer.dim = c->keys.dim;
    }
    c->out_a = find_layer_tensor(l, il, "attn_output_a.weight");
    c->out_b = find_layer_tensor(l, il, "attn_output_b.weight");
    c->n_head = m->n_head;
    c->dim = m->head_dim;
    c->n_rot = m->rope.n_rot;
    c->window = m->window;
}

// The rest follows from the family's keys.
static void load_indexer(loader *l, kin_ref_indexer *x, int il) {
    if (!has_layer_tensor(l, il, "indexer.attn_k.weight")) return;
    x->q = find_layer_tensor(l, il, "indexer.attn_q_b.weight");
    x->k = find_layer_tensor(l, il, "indexer.attn_k.weight");
    x->k_norm = find_layer_tensor(l, il, "indexer.k_norm.weight");
    x->k_bias = find_layer_tensor(l, il, "indexer.k_norm.bias");
    x->weights = find_layer_tensor(l, il, "indexer.proj.weight");
    x->gate = find_layer_tensor(l, il, "indexer_compressor_gate.weight");
    x->place = find_layer_tensor(l, il, "indexer_compressor_ape.weight");
    x->n_head = x->weights.n_rows;
    x->dim = x->k.n_rows;
    x->n_pool = x->place.n_rows;
}

static void load_latent(loader *l, const kin_ref_model *m, kin_ref_latent *t, int il) {
    t->q_a = find_layer_tensor(l, il, "attn_q_a.weight");
    t->q_norm = find_layer_tensor(l, il, "attn_q_a_norm.weight");
    t->q = find_layer_tensor(l, il, t->q_a.data ? "attn_q_b.weight" : "attn_q.weight");
    t->kv_a = find_layer_tensor(l, il, "attn_kv_a_mqa.weight");
    t->kv_norm = find_layer_tensor(l, il, "attn_kv_a_norm.weight");
    t->k_b = find_layer_tensor(l, il, "attn_k_b.weight");
    t->v_b = find_layer_tensor(l, il, "attn_v_b.weight");
    t->kv_b = find_layer_tensor(l, il, "attn_kv_b.weight");
    t->out = find_layer_tensor(l, il, "attn_output.weight");
    load_indexer(l, &t->indexer, il);
    t->n_head = m->n_head;
    t->n_latent = t->kv_norm.n_cols;
    t->n_rot = m->rope.n_rot;
    t->k_dim = t->q.n_rows / m->n_head - t->n_rot;
    t->v_dim = t->out.n_cols / m->n_head;
}

// Takes the next n rows of *rest, which may be too few.
static kin_ref_tensor take_rows(kin_ref_tensor *rest, int n) {
    if (!rest->data || n < 1 || n > rest->n_rows || kin_ref_block_n(rest->type) == 0) return (kin_ref_tensor){0};
    const kin_ref_tensor rows = kin_ref_tensor_rows(rest, 0, n);
    *rest = kin_ref_tensor_rows(rest, n, rest->n_rows - n);
    return rows;
}

static void load_products(loader *l, const kin_ref_model *m, kin_ref_layer *w, int il) {
    kin_ref_tensor all = find_layer_tensor(l, il, "attn_qkv.weight");
    if (all.data) {
        w->wq = take_rows(&all, w->n_head * m->head_dim);
        w->wk = take_rows(&all, w->n_head_kv * m->head_dim);
        w->wv = all;
        return;
    }
    w->wq = find_layer_tensor(l, il, "attn_q.weight");
    w->wk = find_layer_tensor(l, il, "attn_k.weight");
    w->wv = find_layer_tensor(l, il, "attn_v.weight");
}

// The rest follows from the family's keys.
static void load_block_indexer(loader *l, kin_ref_block_indexer *x, int il) {
    if (!l->family->chooses_blocks || !has_layer_tensor(l, il, "indexer.k_proj.weight")) return;
    x->q = find_layer_tensor(l, il, "indexer.q_proj.weight");
    x->q_norm = find_layer_tensor(l, il, "indexer.q_norm.weight");
    x->k = find_layer_tensor(l, il, "indexer.k_proj.weight");
    x->k_norm = find_layer_tensor(l, il, "indexer.k_norm.weight");
    x->dim = x->k.n_rows;
    x->n_head = x->dim > 0 ? x->q.n_rows / x->dim : 0;
}

static void load_attention(loader *l, const kin_ref_model *m, kin_ref_layer *w, int il) {
    load_products(l, m, w, il);
    w->wq_has_gates = l->family->has_query_gates;
    w->wo = find_layer_tensor(l, il, "attn_output.weight");
    w->bq = find_layer_tensor(l, il, "attn_q.bias");
    w->bk = find_layer_tensor(l, il, "attn_k.bias");
    w->bv = find_layer_tensor(l, il, "attn_v.bias");
    w->bo = find_layer_tensor(l, il, "attn_output.bias");
    w->q_norm = find_layer_tensor(l, il, "attn_q_norm.weight");
    w->k_norm = find_layer_tensor(l, il, "attn_k_norm.weight");
    load_block_indexer(l, &w->indexer, il);
    w->head_gate = find_layer_tensor(l, il, "attn_gate.weight");
    w->sinks = find_layer_tensor(l, il, "attn_sinks.weight");
}

static void load_norms(loader *l, kin_ref_layer *w, int il) {
    w->attn_norm = find_layer_tensor(l, il, "attn_norm.weight");
    w->attn_norm_bias = find_layer_tensor(l, il, "attn_norm.bias");
    w->ffn_out_norm = find_layer_tensor(l, il, "post_ffw_norm.weight");
    if (l->family->post_norm_is_ffn_norm) {
        w->ffn_norm = find_layer_tensor(l, il, "post_attention_norm.weight");
        return;
    }
    w->attn_out_norm = find_layer_tensor(l, il, "post_attention_norm.weight");
    w->ffn_norm = find_layer_tensor(l, il, "ffn_norm.weight");
    w->ffn_norm_bias = find_layer_tensor(l, il, "ffn_norm.bias");
}

// A dense block beside the experts is a shared one.
static void load_dense_beside(loader *l, kin_ref_layer *w, int il) {
    if (!has_layer_tensor(l, il, "ffn_gate.weight")) return;
    w->shared_gate = find_layer_tensor(l, il, "ffn_gate.weight");
    w->shared_up = find_layer_tensor(l, il, "ffn_up.weight");
    w->shared_down = find_layer_tensor(l, il, "ffn_down.weight");
}

static void load_input(loader *l, kin_ref_layer *w, int il) {
    w->input_gate = find_layer_tensor(l, il, "inp_gate.weight");
    w->input_proj = find_layer_tensor(l, il, "proj.weight");
    w->input_norm = find_layer_tensor(l, il, "post_norm.weight");
    w->scale = find_layer_tensor(l, il, "layer_output_scale.weight");
}

static void load_feed_forward(loader *l, const kin_ref_model *m, kin_ref_layer *w, int il) {
    load_experts(l, w, il);
    const bool moe = m->n_expert > 0 && w->ffn_router.data;
    w->is_dense = m->n_expert > 0 && !moe;
    if (moe) load_dense_beside(l, w, il);
    w->ffn_gate_up = find_layer_tensor(l, il, "ffn_gate_up_exps.weight");
    w->ffn_gate = find_layer_tensor(l, il, moe ? "ffn_gate_exps.weight" : "ffn_gate.weight");
    w->ffn_up = find_layer_tensor(l, il, moe ? "ffn_up_exps.weight" : "ffn_up.weight");
    w->ffn_down = find_layer_tensor(l, il, moe ? "ffn_down_exps.weight" : "ffn_down.weight");
    if (l->family->has_fused_gate_up) w->ffn_gate = take_rows(&w->ffn_up, m->n_ff);
}

static int load_layer(loader *l, kin_ref_model *m, kin_ref_layer *w, int il) {
    const kin_ref_family *f = l->family;
    const bool is_full = f->period > 0 && il % f->period == f->full_at;
    w->is_windowed = m->window > 0 && !is_full;
    w->has_no_rope = f->never_rotates || (is_full && f->full_has_no_rope && (m->window > 0 || !f->has_window));
    w->n_head_kv = 1;
    if (kin_ref_get_int_at(&l->keys, "feed_forward_length", il, 0, &w->n_ff_dense) < 0) return KIN_FAIL;
    if (kin_ref_get_int_at(&l->keys, "attention.head_count", il, 0, &w->n_head) < 0) return KIN_FAIL;
    if (!l->family->has_latents && kin_ref_get_int_at(&l->keys, "attention.head_count_kv", il, w->n_head, &w->n_head_kv) < 0)
        return KIN_FAIL;
    load_norms(l, w, il);
    w->is_parallel = m->centers_norms && !w->ffn_norm.data;
    if (has_layer_tensor(l, il, "ssm_f_a.weight"))
        load_delta(l, m, &w->delta, il);
    else if (has_layer_tensor(l, il, "attn_kv_a_mqa.weight"))
        load_latent(l, m, &w->latent, il);
    else if (has_layer_tensor(l, il, "attn_kv.weight"))
        load_compressed(l, m, &w->compressed, il);
    else if (has_layer_tensor(l, il, "ssm_d"))
        load_state_space(l, &w->space, il);
    else if (has_layer_tensor(l, il, "ssm_out.weight"))
        load_gated(l, &w->gated, il);
    else if (has_layer_tensor(l, il, "shortconv.conv.weight"))
        load_convolution(l, &w->conv, il);
    else
        load_attention(l, m, w, il);
    load_feed_forward(l, m, w, il);
    load_input(l, w, il);
    load_streams(l, m, w, il);
    return f->read_layer ? f->read_layer(&l->keys, m, w, il) : 0;
}

// Counts the tensors of blocks that draft, which are not computed.
static size_t count_drafts(const loader *l, const kin_ref_model *m) {
    size_t n = 0;
    char prefix[32];
    for (int il = m->n_layer; il < l->n_blocks; il++) {
        const int length = snprintf(prefix, sizeof prefix, "blk.%d.", il);
        for (size_t i = 0; i < kin_gguf_n_tensors(l->keys.gguf); i++) {
            const kin_str name = kin_gguf_tensor_at(l->keys.gguf, i)->name;
            n += name.len > (size_t)length && memcmp(name.at, prefix, (size_t)length) == 0;
        }
    }
    return n;
}

static int load_tensors(loader *l, kin_ref_model *m) {
    m->layers = calloc((size_t)m->n_layer, sizeof *m->layers);
    if (!m->layers) return kin_err_set(l->keys.err, "out of memory");
    m->token_embd = find_tensor(l, "token_embd.weight");
    m->output_norm = find_tensor(l, "output_norm.weight");
    if (!m->output_norm.data) m->output_norm = find_tensor(l, "token_embd_norm.weight");
    m->output_norm_bias = find_tensor(l, "output_norm.bias");
    m->output = find_tensor(l, "output.weight");
    m->rope_freqs = find_tensor(l, "rope_freqs.weight");
    if (!m->rope_freqs.data) m->rope_freqs = find_tensor(l, "rope_factors_short.weight");
    m->rope_freqs_long = find_tensor(l, "rope_factors_long.weight");
    if (m->n_input > 0) {
        m->input_embd = find_tensor(l, "per_layer_token_embd.weight");
        m->input_proj = find_tensor(l, "per_layer_model_proj.weight");
        m->input_norm = find_tensor(l, "per_layer_proj_norm.weight");
    }
    if (m->n_sinkhorn > 0 && !m->averages_streams) m->end = load_sinkhorn(l, -1, "output_hc");
    if (kin_ref_has_mixers(m)) {
        m->end_mixer = load_mixer(l, -1, "output_hc");
        m->ngram_table = find_tensor(l, "per_layer_token_embd.weight");
    }
    m->n_vocab = m->token_embd.n_rows;
    for (int il = 0; il < m->n_layer; il++)
        if (load_layer(l, m, &m->layers[il], il) < 0) return KIN_FAIL;

    const size_t n_tensors = kin_gguf_n_tensors(l->keys.gguf);
    l->n_found += count_drafts(l, m);
    if (l->n_found == n_tensors) return 0;
    return kin_err_set(l->keys.err, "%zu of %zu tensors have no place in the reference engine", n_tensors - l->n_found,
                       n_tensors);
}

int kin_ref_load(kin_ref_model *model, const kin_gguf *gguf, kin_err *err) {
    loader l = {.keys = {.gguf = gguf, .err = err}};
    *model = (kin_ref_model){0};
    if (find_family(&l) < 0 || load_sizes(&l, model) < 0 || load_numbers(&l, model) < 0) goto fail;
    if (load_routing(&l, model) < 0 || load_rope(&l, &model->rope, model->head_dim) < 0) goto fail;
    if (load_window_rope(&l, &model->rope, &model->window_rope) < 0) goto fail;
    if (l.family->read && l.family->read(&l.keys, model) < 0) goto fail;
    if (load_tensors(&l, model) < 0) goto fail;
    return 0;
fail:
    kin_ref_unload(model);
    return kin_err_prefix(err, "reference engine");
}

void kin_ref_unload(kin_ref_model *model) {
    free(model->layers);
    *model = (kin_ref_model){0};
}
