#include "testkit/ref/attention.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/vector.h"

// Norm (if the model has one) and rope (unless the layer has none) of each head, in place. heads // (n_head, head_dim)
static void place_heads(kin_ref_session *s, const kin_ref_layer *w, const kin_ref_tensor *weight, float *heads, int n_head) {
    const kin_ref_model *m = s->model;
    const int dim = kin_ref_heads_of(m, w).k_dim;
    const bool has_own = w->is_windowed && m->window_rope.n_rot > 0, is_of_all = weight->data && weight->n_cols > dim;
    if (is_of_all) kin_ref_norm_by_row(s, weight, 0, m->rms_eps, heads, heads);
    for (int h = 0; h < n_head; h++) {
        float *head = heads + h * dim;
        if (weight->data && !is_of_all) kin_ref_norm_by_row(s, weight, weight->n_rows > 1 ? h : 0, m->rms_eps, head, head);
        if (w->has_no_rope) continue;
        kin_ref_rope_apply(has_own ? &m->window_rope : &m->rope, has_own ? s->window_cos_sin : s->cos_sin, head);
    }
}

// out = sum_t softmax_t(q . k_t / sqrt(k_dim)) v_t over positions first <= t <= pos that are seen, for one query head.
// q // (k_dim); out // (v_dim); seen // (pos + 1), NULL: all; k, v // (pos + 1, stride), each row begins with this head's
static void attend(kin_ref_session *s, kin_ref_heads heads, const float *q, const float *k, const float *v, int first, int pos,
                   const bool *seen, float sink, float *out) {
    const kin_ref_model *m = s->model;
    const size_t stride = (size_t)m->n_head_kv * (size_t)m->head_dim;
    const double by = m->attn_scale != 0 ? (double)m->attn_scale : 1 / sqrt(heads.k_dim);
    for (int t = first; t <= pos; t++) {
        const double score = kin_ref_dot(q, k + (size_t)t * stride, heads.k_dim) * by;
        s->scores[t] = !seen || seen[t] ? kin_ref_capped((float)score, m->score_cap) : -INFINITY;
    }
    kin_ref_softmax(s->scores + first, pos + 1 - first, sink);
    for (int i = 0; i < heads.v_dim; i++) {
        double sum = 0;
        for (int t = first; t <= pos; t++) sum += (double)s->scores[t] * (double)v[(size_t)t * stride + (size_t)i];
        out[i] = (float)sum;
    }
}

// Multiplies the heads' results by their gates: one for each head, or for each of its values.
static void gate_heads(kin_ref_session *s, const kin_ref_layer *w) {
    if (!w->head_gate.data && !w->wq_has_gates) return;
    const kin_ref_heads heads = kin_ref_heads_of(s->model, w);
    const int n_head = heads.n, dim = heads.v_dim;
    const bool is_of_head = w->head_gate.data && w->head_gate.n_rows == n_head;
    if (w->head_gate.data) kin_ref_matvec(&w->head_gate, s->normed, s->gates);
    for (int i = 0; i < n_head * dim; i++) {
        const float gate = s->gates[is_of_head ? i / dim : i];
        s->heads[i] *= s->model->gates_heads_by_softplus ? log1pf(expf(gate)) : kin_ref_sigmoid(gate);
    }
}

// Moves what stands after each query of s->q to s->gates.
static void take_gates(kin_ref_session *s, kin_ref_heads heads) {
    const size_t n = (size_t)heads.k_dim;
    for (size_t h = 0; h < (size_t)heads.n; h++) {
        memcpy(s->gates + h * n, s->q + (2 * h + 1) * n, n * sizeof *s->gates);
        memmove(s->q + h * n, s->q + 2 * h * n, n * sizeof *s->q);
    }
}

// Returns the factor of queries at a position.
static double temperature(const kin_ref_model *m, int pos) {
    if (m->query_temperature == 0) return 1;
    return 1 + (double)m->query_temperature * log(1 + floor((double)pos / m->temperature_length));
}

// s->heads = the results of the query heads s->q. k, v // (pos + 1, stride)
static void attend_all(kin_ref_session *s, const kin_ref_layer *w, const float *k, const float *v, int pos) {
    const kin_ref_model *m = s->model;
    const kin_ref_heads heads = kin_ref_heads_of(m, w);
    const int first = w->is_windowed && pos >= m->window ? pos + 1 - m->window : 0;
    kin_ref_scale(s->q, (float)temperature(m, pos), heads.n * heads.k_dim);
    if (w->sinks.data) kin_ref_tensor_row(&w->sinks, 0, s->weights);
    for (int h = 0; h < heads.n; h++) {
        const int i_kv = h / (heads.n / heads.n_kv);
        const bool *of_head = w->indexer.pools ? s->seen : s->seen + (size_t)i_kv * (size_t)(pos + 1);
        const bool *seen = w->indexer.n_head > 0 ? of_head : NULL;
        attend(s, heads, s->q + h * heads.k_dim, k + i_kv * heads.k_dim, v + i_kv * heads.v_dim, first, pos, seen,
               w->sinks.data ? s->weights[h] : -INFINITY, s->heads + h * heads.v_dim);
    }
    kin_ref_scale(s->heads, kin_ref_factor(m->value_scale), heads.n * heads.v_dim);
    gate_heads(s, w);
}

// What is kept of the tokens for layer il // (n_ctx, n_kept).
static float *kept_of(kin_ref_session *s, int il) {
    return s->kept + (size_t)(il - s->layer_begin) * (size_t)s->n_ctx * s->n_kept;
}

// s->added = latent attention of s->normed. rows // (n_ctx, head_dim)
static void latent_attention(kin_ref_session *s, int il, int pos, float *rows) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const double by = m->attn_scale != 0 ? (double)m->attn_scale : 1 / sqrt(w->latent.k_dim + w->latent.n_rot);
    const kin_ref_latent_token token = {
        .pos = pos,
        .rope = w->has_no_rope ? NULL : &m->rope,
        .cos_sin = s->cos_sin,
        .scale = by * temperature(m, pos),
        .eps = m->rms_eps,
        .seen = s->seen,
        .keys = {kept_of(s, il), s->n_kept, m->rounds_rows},
    };
    kin_ref_latent_step(&w->latent, &token, s->normed, rows, s->scratch, s->added);
}

// Stores the key and the value of s->normed. k, v // (n_head_kv*head_dim), each
static void make_row(kin_ref_session *s, const kin_ref_layer *w, float *k, float *v) {
    const kin_ref_heads heads = kin_ref_heads_of(s->model, w);
    kin_ref_project(s, &w->wk, &w->bk, 0, s->normed, k);
    if (w->wv.data)
        kin_ref_project(s, &w->wv, &w->bv, 0, s->normed, v);
    else
        memcpy(v, k, (size_t)(heads.n_kv * heads.v_dim) * sizeof *v);
    place_heads(s, w, &w->k_norm, k, heads.n_kv);
    for (int h = 0; h < heads.n_kv && s->model->norms_values; h++)
        kin_ref_unit(v + h * heads.v_dim, heads.v_dim, (double)s->model->rms_eps);
    if (!s->model->rounds_rows) return;
    kin_ref_round(k, heads.n_kv * heads.k_dim);
    kin_ref_round(v, heads.n_kv * heads.v_dim);
}

// s->added = attention of s->normed to a window and to compressed rows
static void compressed_attention(kin_ref_session *s, int il, int pos, float *rows, float *blocks) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const kin_ref_compressed_token token = {
        .pos = pos,
        .rope = w->is_windowed ? &m->window_rope : &m->rope,
        .seen = s->seen,
        .eps = m->rms_eps,
        .rounds = m->rounds_rows,
    };
    const kin_ref_compressed_cache cache = {
        .rows = rows,
        .blocks = blocks,
        .kept = kept_of(s, il),
        .kept_apart = s->n_kept,
    };
    kin_ref_compressed_step(&w->compressed, &token, s->normed, &cache, s->scratch, s->added);
}

// Sets s->seen for s->normed if the layer has an indexer of blocks.
static void choose_blocks(kin_ref_session *s, int il, int pos) {
    const kin_ref_model *m = s->model;
    const kin_ref_indexer_keys keys = {kept_of(s, il), s->n_kept, m->rounds_rows};
    if (m->layers[il].indexer.n_head == 0) return;
    kin_ref_block_indexer_choose(&m->layers[il].indexer, &m->rope, s->cos_sin, pos, m->rms_eps, s->normed, &keys, s->scratch,
                                 s->seen);
}

void kin_ref_attention(kin_ref_session *s, int il, int pos, float *x) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const size_t stride = (size_t)m->n_head_kv * (size_t)m->head_dim;
    const size_t layer_at = (size_t)(il - w->kv_back - s->layer_begin) * (size_t)s->n_ctx * stride;
    float *k = s->k + layer_at, *v = s->v + layer_at; // (n_ctx, n_head_kv*head_dim)

    kin_ref_norm(s, &w->attn_norm, &w->attn_norm_bias, m->n_embd, x, s->normed);
    if (w->latent.n_head > 0 || w->compressed.n_head > 0) {
        if (w->latent.n_head > 0)
            latent_attention(s, il, pos, k);
        else
            compressed_attention(s, il, pos, k, v);
        kin_ref_add_block(s, &w->attn_out_norm, x);
        return;
    }
    kin_ref_project(s, &w->wq, &w->bq, 0, s->normed, s->q);
    if (w->wq_has_gates) take_gates(s, kin_ref_heads_of(m, w));
    place_heads(s, w, &w->q_norm, s->q, kin_ref_heads_of(m, w).n);
    if (w->kv_back == 0) make_row(s, w, k + (size_t)pos * stride, v + (size_t)pos * stride);
    choose_blocks(s, il, pos);
    attend_all(s, w, k, v, pos);
    kin_ref_project(s, &w->wo, &w->bo, 0, s->heads, s->added);
    kin_ref_add_block(s, &w->attn_out_norm, x);
}
