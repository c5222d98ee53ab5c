#include "testkit/ref/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kin_ref_session {
    const kin_ref_model *model;
    int layer_begin, layer_end, n_ctx;
    int *n_held;         // (layers): positions that each layer holds
    float *k, *v;        // (layers, n_ctx, n_head_kv*head_dim)
    float *rope_factors; // (at least n_rot / 2), NULL if the model has none
    float *states;       // (layers, n_state): of delta attention
    size_t n_state;

    // Scratch for one token.
    float *cos_sin;        // (n_rot / 2, 2): cosines and sines of its position
    float *window_cos_sin; // the same of windowed layers
    float *normed;         // (n_embd): input of a block
    float *added;          // (n_embd): output of a block
    float *sum;            // (n_embd): of the experts
    float *q;              // (n_head*head_dim), and as many for their gates
    float *heads;          // (n_head*value_dim): attention output of each query head
    float *gates;          // (n_head*value_dim): of these outputs
    float *scores;         // (n_ctx): of one query head
    float *router;         // (max(n_expert, 1)): probability of each expert
    float *shares;         // (max(n_expert, 1)): its part in the sum
    float *choice;         // (n_expert)
    float *gate;           // (the widest n_ff)
    float *up;             // (n_ff)
    float *weights;        // (the widest of all): one norm or bias as floats
    float *scratch;        // of delta and latent attention
};

// Allocates zeroed floats // (a, b, c); NULL if out of memory.
static float *floats(int a, int b, int c) {
    const uint64_t n = (uint64_t)a * (uint64_t)b; // at most 2^36
    if (n > SIZE_MAX / sizeof(float) / (uint64_t)c) return NULL;
    return calloc((size_t)n * (size_t)c, sizeof(float));
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

// True if the layer has a state instead of keys and values.
static bool has_state(const kin_ref_layer *w) {
    return w->delta.n_head > 0 || w->gated.n_value > 0 || w->conv.n > 0;
}

// Allocates the states of such layers, and their scratch and that of latent attention.
static bool allocate_states(kin_ref_session *s) {
    size_t n_scratch = 1;
    s->n_state = 1;
    for (int il = s->layer_begin; il < s->layer_end; il++) {
        const kin_ref_layer *w = &s->model->layers[il];
        if (w->delta.n_head > 0) {
            s->n_state = max_size(s->n_state, kin_ref_delta_state_floats(&w->delta));
            n_scratch = max_size(n_scratch, kin_ref_delta_scratch_floats(&w->delta));
        }
        if (w->gated.n_value > 0) {
            s->n_state = max_size(s->n_state, kin_ref_gated_state_floats(&w->gated));
            n_scratch = max_size(n_scratch, kin_ref_gated_scratch_floats(&w->gated));
        }
        if (w->conv.n > 0) {
            s->n_state = max_size(s->n_state, kin_ref_convolution_state_floats(&w->conv));
            n_scratch = max_size(n_scratch, kin_ref_convolution_scratch_floats(&w->conv));
        }
        if (w->latent.n_head > 0) n_scratch = max_size(n_scratch, kin_ref_latent_scratch_floats(&w->latent, s->n_ctx));
    }
    s->states = calloc((size_t)max_int(s->layer_end - s->layer_begin, 1) * s->n_state, sizeof *s->states);
    s->scratch = calloc(n_scratch, sizeof *s->scratch);
    return s->states && s->scratch;
}

// Reads the rope factors, of which a model may have other ones for long contexts.
static bool read_factors(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const bool is_long = m->rope_freqs_long.data && s->n_ctx > m->rope.n_ctx_orig;
    const kin_ref_tensor *factors = is_long ? &m->rope_freqs_long : &m->rope_freqs;
    if (!factors->data) return true;
    s->rope_factors = floats(1, 1, factors->n_cols);
    if (!s->rope_factors) return false;
    kin_ref_tensor_row(factors, 0, s->rope_factors);
    return true;
}

static bool allocate(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const int n_layer = max_int(s->layer_end - s->layer_begin, 1), n_q = m->n_head * m->head_dim;
    const int n_ff = max_int(m->n_ff, max_int(m->n_ff_dense, m->n_ff_shared));
    s->n_held = calloc((size_t)n_layer, sizeof *s->n_held);
    s->k = floats(n_layer, s->n_ctx, m->n_head_kv * m->head_dim);
    s->v = floats(n_layer, s->n_ctx, m->n_head_kv * m->head_dim);
    s->cos_sin = floats(1, m->rope.n_rot / 2, 2);
    s->window_cos_sin = floats(1, max_int(m->window_rope.n_rot, 2) / 2, 2);
    s->normed = floats(1, 1, m->n_embd);
    s->added = floats(1, 1, m->n_embd);
    s->sum = floats(1, 1, m->n_embd);
    s->q = floats(2, 1, n_q);
    s->heads = floats(1, 1, n_q);
    s->gates = floats(1, 1, n_q);
    s->scores = floats(1, 1, s->n_ctx);
    s->router = floats(1, 1, max_int(m->n_expert, 1));
    s->shares = floats(1, 1, max_int(m->n_expert, 1));
    s->choice = floats(1, 1, max_int(m->n_expert, 1));
    s->gate = floats(1, 1, n_ff);
    s->up = floats(1, 1, n_ff);
    s->weights = floats(1, 1, max_int(max_int(m->n_embd, n_q), max_int(n_ff, m->n_expert)));
    return s->n_held && s->k && s->v && s->cos_sin && s->window_cos_sin && s->normed && s->added && s->sum && s->q && s->heads &&
           s->gates && s->scores && s->router && s->shares && s->choice && s->gate && s->up && s->weights && allocate_states(s) &&
           read_factors(s);
}

kin_ref_session *kin_ref_session_open(const kin_ref_model *model, int layer_begin, int layer_end, int n_ctx) {
    if (kin_ref_model_check(model, layer_begin, layer_end) || n_ctx < 1 || n_ctx > KIN_REF_CTX_MAX) return NULL;
    kin_ref_session *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->model = model;
    s->layer_begin = layer_begin;
    s->layer_end = layer_end;
    s->n_ctx = n_ctx;
    if (allocate(s)) return s;
    kin_ref_session_close(s);
    return NULL;
}

void kin_ref_session_close(kin_ref_session *session) {
    if (!session) return;
    free(session->scratch);
    free(session->states);
    free(session->weights);
    free(session->up);
    free(session->choice);
    free(session->gate);
    free(session->shares);
    free(session->router);
    free(session->scores);
    free(session->heads);
    free(session->q);
    free(session->gates);
    free(session->sum);
    free(session->added);
    free(session->normed);
    free(session->window_cos_sin);
    free(session->cos_sin);
    free(session->rope_factors);
    free(session->v);
    free(session->k);
    free(session->n_held);
    free(session);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) x[i] += y[i];
}

static void scale(float *x, float factor, int n) {
    for (int i = 0; i < n; i++) x[i] *= factor;
}

// Returns a factor of the model, where 0 stands for none.
static float factor_or_1(float factor) {
    return factor != 0 ? factor : 1;
}

// cap tanh(x / cap); x if cap is 0
static float capped(float x, float cap) {
    return cap != 0 ? cap * tanhf(x / cap) : x;
}

static float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

// x_i = exp(x_i) / (exp(sink) + sum_j exp(x_j)); sink -INFINITY: there is none
static void softmax(float *x, int n, float sink) {
    float top = sink;
    double sum = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, x[i]);
    for (int i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - top));
    sum += (double)expf(sink - top);
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] / sum);
}

static float silu(float x) {
    return x / (1 + expf(-x));
}

// out = x / sqrt(mean(x^2) + eps) * row of weight, after the mean is subtracted from x if the model says so.
// x, out // (n_cols of weight); out may be x.
static void norm_by_row(kin_ref_session *s, const kin_ref_tensor *weight, int row, float eps, const float *x, float *out) {
    const int n = weight->n_cols;
    double mean = 0;
    for (int i = 0; i < n && s->model->centers_norms; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) out[i] = (float)((double)x[i] - mean);
    const float length = (float)(1 / sqrt(dot(out, out, n) / n + (double)eps));
    kin_ref_tensor_row(weight, row, s->weights);
    for (int i = 0; i < n; i++) out[i] = out[i] * length * s->weights[i];
}

// The same with the only row, plus the bias; without weight: out = x. weight, bias, x, out // (n)
static void norm(kin_ref_session *s, const kin_ref_tensor *weight, const kin_ref_tensor *bias, int n, const float *x,
                 float *out) {
    if (!weight->data) {
        memcpy(out, x, (size_t)n * sizeof *out);
        return;
    }
    norm_by_row(s, weight, 0, s->model->rms_eps, x, out);
    if (!bias->data) return;
    kin_ref_tensor_row(bias, 0, s->weights);
    add(out, s->weights, n);
}

// out = w x + row i of b, without it if b is absent. w // (n_rows, n_cols), b // (at least i + 1, n_rows)
static void project(kin_ref_session *s, const kin_ref_tensor *w, const kin_ref_tensor *b, int i, const float *x, float *out) {
    kin_ref_matvec(w, x, out);
    if (!b->data) return;
    kin_ref_tensor_row(b, i, s->weights);
    add(out, s->weights, w->n_rows);
}

// Norm (if the model has one) and rope (unless the layer has none) of each head, in place. heads // (n_head, head_dim)
static void place_heads(kin_ref_session *s, const kin_ref_layer *w, const kin_ref_tensor *weight, float *heads, int n_head) {
    const kin_ref_model *m = s->model;
    const bool has_own = w->is_windowed && m->window_rope.n_rot > 0, is_of_all = weight->data && weight->n_cols > m->head_dim;
    if (is_of_all) norm_by_row(s, weight, 0, m->rms_eps, heads, heads);
    for (int h = 0; h < n_head; h++) {
        float *head = heads + h * m->head_dim;
        if (weight->data && !is_of_all) norm_by_row(s, weight, weight->n_rows > 1 ? h : 0, m->rms_eps, head, head);
        if (w->has_no_rope) continue;
        kin_ref_rope_apply(has_own ? &m->window_rope : &m->rope, has_own ? s->window_cos_sin : s->cos_sin, head);
    }
}

static int value_dim(const kin_ref_model *m) {
    return m->value_dim ? m->value_dim : m->head_dim;
}

// out = sum_t softmax_t(q . k_t / sqrt(head_dim)) v_t over positions first <= t <= pos, for one query head.
// q // (head_dim); out // (value_dim); k, v // (pos + 1, stride), each row begins with this head's
static void attend(kin_ref_session *s, const float *q, const float *k, const float *v, int first, int pos, float sink,
                   float *out) {
    const kin_ref_model *m = s->model;
    const size_t stride = (size_t)m->n_head_kv * (size_t)m->head_dim;
    const double by = m->attn_scale != 0 ? (double)m->attn_scale : 1 / sqrt(m->head_dim);
    for (int t = first; t <= pos; t++)
        s->scores[t] = capped((float)(dot(q, k + (size_t)t * stride, m->head_dim) * by), m->score_cap);
    softmax(s->scores + first, pos + 1 - first, sink);
    for (int i = 0; i < value_dim(m); i++) {
        double sum = 0;
        for (int t = first; t <= pos; t++) sum += (double)s->scores[t] * (double)v[(size_t)t * stride + (size_t)i];
        out[i] = (float)sum;
    }
}

// Adds a block's result, which has a norm of its own if the layer has that. x // (n_embd)
static void add_block(kin_ref_session *s, const kin_ref_tensor *out_norm, float *x) {
    const kin_ref_model *m = s->model;
    if (out_norm->data) norm_by_row(s, out_norm, 0, m->out_norm_eps != 0 ? m->out_norm_eps : m->rms_eps, s->added, s->added);
    scale(s->added, factor_or_1(m->residual_scale), m->n_embd);
    add(x, s->added, m->n_embd);
}

// x += what the layer makes of its state and norm(x). x // (n_embd)
static void recurrence(kin_ref_session *s, int il, int pos, float *x) {
    const kin_ref_layer *w = &s->model->layers[il];
    float *state = s->states + (size_t)(il - s->layer_begin) * s->n_state;
    if (pos == 0) memset(state, 0, s->n_state * sizeof *state);
    norm(s, &w->attn_norm, &w->attn_norm_bias, s->model->n_embd, x, s->normed);
    if (w->gated.n_value > 0)
        kin_ref_gated_step(&w->gated, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    else if (w->conv.n > 0)
        kin_ref_convolution_step(&w->conv, s->normed, state, s->scratch, s->added);
    else
        kin_ref_delta_step(&w->delta, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    add_block(s, &w->attn_out_norm, x);
}

// Multiplies the heads' results by their gates: one for each head, or for each of its values.
static void gate_heads(kin_ref_session *s, const kin_ref_layer *w, int n_head) {
    if (!w->head_gate.data && !w->wq_has_gates) return;
    const int dim = value_dim(s->model);
    const bool is_of_head = w->head_gate.data && w->head_gate.n_rows == n_head;
    if (w->head_gate.data) kin_ref_matvec(&w->head_gate, s->normed, s->gates);
    for (int i = 0; i < n_head * dim; i++) {
        const float gate = s->gates[is_of_head ? i / dim : i];
        s->heads[i] *= s->model->gates_heads_by_softplus ? log1pf(expf(gate)) : sigmoid(gate);
    }
}

// Moves what stands behind each query of s->q to s->gates.
static void take_gates(kin_ref_session *s, int n_head) {
    const size_t n = (size_t)s->model->head_dim;
    for (size_t h = 0; h < (size_t)n_head; h++) {
        memcpy(s->gates + h * n, s->q + (2 * h + 1) * n, n * sizeof *s->gates);
        memmove(s->q + h * n, s->q + 2 * h * n, n * sizeof *s->q);
    }
}

// What queries at a position are multiplied by.
static double temperature(const kin_ref_model *m, int pos) {
    if (m->query_temperature == 0) return 1;
    return 1 + (double)m->query_temperature * log(1 + floor((double)pos / m->temperature_length));
}

// s->heads = the results of the query heads s->q. k, v // (pos + 1, stride)
static void attend_all(kin_ref_session *s, const kin_ref_layer *w, const float *k, const float *v, int pos) {
    const kin_ref_model *m = s->model;
    const int n_head = w->n_head ? w->n_head : m->n_head, n_head_kv = w->n_head_kv ? w->n_head_kv : m->n_head_kv;
    const int first = w->is_windowed && pos >= m->window ? pos + 1 - m->window : 0;
    scale(s->q, (float)temperature(m, pos), n_head * m->head_dim);
    if (w->sinks.data) kin_ref_tensor_row(&w->sinks, 0, s->weights);
    for (int h = 0; h < n_head; h++) {
        const int i_kv = h / (n_head / n_head_kv);
        attend(s, s->q + h * m->head_dim, k + i_kv * m->head_dim, v + i_kv * value_dim(m), first, pos,
               w->sinks.data ? s->weights[h] : -INFINITY, s->heads + h * value_dim(m));
    }
    scale(s->heads, factor_or_1(m->value_scale), n_head * value_dim(m));
    gate_heads(s, w, n_head);
}

// s->added = latent attention of s->normed. rows // (n_ctx, head_dim)
static void latent_attention(kin_ref_session *s, const kin_ref_layer *w, int pos, float *rows) {
    const kin_ref_model *m = s->model;
    const double by = m->attn_scale != 0 ? (double)m->attn_scale : 1 / sqrt(w->latent.k_dim + w->latent.n_rot);
    const kin_ref_latent_token token = {
        .pos = pos,
        .rope = w->has_no_rope ? NULL : &m->rope,
        .cos_sin = s->cos_sin,
        .scale = by * temperature(m, pos),
        .eps = m->rms_eps,
    };
    kin_ref_latent_step(&w->latent, &token, s->normed, rows, s->scratch, s->added);
}

// x += wo attention(norm(x)). x // (n_embd)
static void attention(kin_ref_session *s, int il, int pos, float *x) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const size_t stride = (size_t)m->n_head_kv * (size_t)m->head_dim;
    const size_t layer_at = (size_t)(il - s->layer_begin) * (size_t)s->n_ctx * stride;
    float *k = s->k + layer_at, *v = s->v + layer_at;                             // (n_ctx, n_head_kv*head_dim)
    float *k_here = k + (size_t)pos * stride, *v_here = v + (size_t)pos * stride; // (n_head_kv*head_dim)

    norm(s, &w->attn_norm, &w->attn_norm_bias, m->n_embd, x, s->normed);
    if (w->latent.n_head > 0) {
        latent_attention(s, w, pos, k);
        add_block(s, &w->attn_out_norm, x);
        return;
    }
    project(s, &w->wq, &w->bq, 0, s->normed, s->q);
    if (w->wq_has_gates) take_gates(s, w->n_head ? w->n_head : m->n_head);
    project(s, &w->wk, &w->bk, 0, s->normed, k_here);
    project(s, &w->wv, &w->bv, 0, s->normed, v_here);
    place_heads(s, w, &w->q_norm, s->q, w->n_head ? w->n_head : m->n_head);
    place_heads(s, w, &w->k_norm, k_here, w->n_head_kv ? w->n_head_kv : m->n_head_kv);
    attend_all(s, w, k, v, pos);
    project(s, &w->wo, &w->bo, 0, s->heads, s->added);
    add_block(s, &w->attn_out_norm, x);
}

// shares_i = probs_i for the n_used of largest choice, 0 for the others; of equal ones the first counts as larger. Returns their
// sum.
// probs, choice, shares // (n_expert)
static double share_out(const float *probs, const float *choice, int n_expert, int n_used, float *shares) {
    double sum = 0;
    for (int i = 0; i < n_expert; i++) {
        int n_larger = 0;
        for (int j = 0; j < n_expert; j++) n_larger += choice[j] > choice[i] || (choice[j] == choice[i] && j < i);
        shares[i] = n_larger < n_used ? probs[i] : 0;
        sum += (double)shares[i];
    }
    return sum;
}

// Returns the sum of the two largest of n numbers; of one, that.
static double sum_of_two(const float *x, int n) {
    double first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        const double value = (double)x[i];
        second = fmax(second, fmin(first, value));
        first = fmax(first, value);
    }
    return n > 1 ? first + second : first;
}

// Makes choice // (n_expert) -INFINITY in all groups but the n_group_used whose two best experts have the largest sums.
static void choose_groups(const kin_ref_model *m, float *choice) {
    const int n = m->n_expert / m->n_group;
    bool is_used[KIN_REF_HEAD_MAX] = {false};
    for (int i = 0; i < m->n_group; i++) {
        int n_better = 0;
        for (int j = 0; j < m->n_group; j++) {
            const double own = sum_of_two(choice + i * n, n), other = sum_of_two(choice + j * n, n);
            n_better += other > own || (other == own && j < i);
        }
        is_used[i] = n_better < m->n_group_used;
    }
    for (int i = 0; i < m->n_expert; i++)
        if (!is_used[i / n]) choice[i] = -INFINITY;
}

// s->shares = the experts' shares in the result for s->normed
static void route(kin_ref_session *s, const kin_ref_layer *w) {
    const kin_ref_model *m = s->model;
    project(s, &w->ffn_router, &w->router_bias, 0, s->normed, s->router);
    if (m->chooses_by_sigmoids) {
        for (int i = 0; i < m->n_expert; i++) s->router[i] = sigmoid(s->router[i]);
    } else {
        softmax(s->router, m->n_expert, -INFINITY);
    }
    memset(s->choice, 0, (size_t)m->n_expert * sizeof *s->choice);
    if (w->ffn_choice.data) kin_ref_tensor_row(&w->ffn_choice, 0, s->choice);
    for (int i = 0; i < m->n_expert; i++) s->choice[i] += s->router[i];
    if (m->n_group > 1) choose_groups(m, s->choice);
    const double sum = share_out(s->router, s->choice, m->n_expert, m->n_expert_used, s->shares);
    for (int i = 0; i < m->n_expert && !m->keeps_shares; i++) s->shares[i] = (float)((double)s->shares[i] / sum);
    scale(s->shares, factor_or_1(m->expert_scale), m->n_expert);
}

static float gated(kin_ref_gate kind, float limit, float gate, float up) {
    if (kind == KIN_REF_GATE_GELU) {
        const double g = (double)gate;
        return (float)(0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)))) * up;
    }
    if (kind == KIN_REF_GATE_SILU) {
        if (limit == 0) return silu(gate) * up;
        return fminf(silu(gate), limit) * fmaxf(fminf(up, limit), -limit);
    }
    gate = fminf(gate, 7);
    up = fmaxf(fminf(up, 7), -7);
    return gate / (1 + expf(-1.702f * gate)) * (up + 1);
}

typedef struct experts {
    const kin_ref_tensor *gate, *up, *down;
    const kin_ref_tensor *gate_bias, *up_bias, *down_bias; // may be absent
    float limit;
} experts;

// added = down (silu(gate normed) * (up normed)) of expert i. normed, added // (n_embd)
static void expert(kin_ref_session *s, const experts *e, int i) {
    const kin_ref_tensor gate = kin_ref_tensor_matrix(e->gate, i); // (n_ff, n_embd)
    const kin_ref_tensor up = kin_ref_tensor_matrix(e->up, i);     // (n_ff, n_embd)
    const kin_ref_tensor down = kin_ref_tensor_matrix(e->down, i); // (n_embd, n_ff)
    project(s, &gate, e->gate_bias, i, s->normed, s->gate);
    project(s, &up, e->up_bias, i, s->normed, s->up);
    for (int j = 0; j < gate.n_rows; j++) s->gate[j] = gated(s->model->gate, e->limit, s->gate[j], s->up[j]);
    project(s, &down, e->down_bias, i, s->gate, s->added);
}

// added = the result of the shared expert
static void shared_expert(kin_ref_session *s, const kin_ref_layer *w) {
    const kin_ref_tensor none = {0};
    expert(s, &(experts){&w->shared_gate, &w->shared_up, &w->shared_down, &none, &none, &none, w->shared_limit}, 0);
    if (!w->shared_router.data) return;
    float share;
    kin_ref_matvec(&w->shared_router, s->normed, &share);
    scale(s->added, sigmoid(share), s->model->n_embd);
}

// x += feed-forward of norm(x). With experts: a weighted sum of the n_expert_used that are chosen, and the shared one.
// x // (n_embd)
static void feed_forward(kin_ref_session *s, int il, float *x) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const experts e = {&w->ffn_gate, &w->ffn_up, &w->ffn_down, &w->gate_bias, &w->up_bias, &w->down_bias, w->expert_limit};
    if (!w->is_parallel) norm(s, &w->ffn_norm, &w->ffn_norm_bias, m->n_embd, x, s->normed);
    if (m->n_expert == 0 || w->is_dense) {
        expert(s, &e, 0);
        add_block(s, &w->ffn_out_norm, x);
        return;
    }
    route(s, w);
    memset(s->sum, 0, (size_t)m->n_embd * sizeof *s->sum);
    for (int i = 0; i < m->n_expert; i++) {
        if (!(s->shares[i] > 0)) continue;
        expert(s, &e, i);
        scale(s->added, s->shares[i], m->n_embd);
        add(s->sum, s->added, m->n_embd);
    }
    if (w->shared_gate.data) {
        shared_expert(s, w);
        add(s->sum, s->added, m->n_embd);
    }
    memcpy(s->added, s->sum, (size_t)m->n_embd * sizeof *s->added);
    add_block(s, &w->ffn_out_norm, x);
}

int kin_ref_session_embed(kin_ref_session *session, int token, float *x) {
    const kin_ref_model *m = session->model;
    if (!m->token_embd.data || token < 0 || token >= m->n_vocab) return -1;
    kin_ref_tensor_row(&m->token_embd, token, x);
    scale(x, factor_or_1(m->embedding_scale), m->n_embd);
    if (m->norms_embedding) scale(x, (float)(1 / sqrt(dot(x, x, m->n_embd) / m->n_embd + (double)m->rms_eps)), m->n_embd);
    return 0;
}

// A state cannot go back, except to the first token.
static bool can_go_back(const kin_ref_session *s, int il, int pos) {
    return !has_state(&s->model->layers[il]) || pos == 0 || pos == s->n_held[il - s->layer_begin];
}

int kin_ref_session_run(kin_ref_session *session, int layer_begin, int layer_end, int pos, float *x) {
    kin_ref_session *s = session;
    if (layer_begin < s->layer_begin || layer_begin > layer_end || layer_end > s->layer_end) return -1;
    if (pos < 0 || pos >= s->n_ctx) return -1;
    for (int il = layer_begin; il < layer_end; il++)
        if (pos > s->n_held[il - s->layer_begin] || !can_go_back(s, il, pos)) return -1;

    kin_ref_rope_cos_sin(&s->model->rope, s->rope_factors, pos, s->cos_sin);
    kin_ref_rope_cos_sin(&s->model->window_rope, s->model->window_rope_has_no_freqs ? NULL : s->rope_factors, pos,
                         s->window_cos_sin);
    for (int il = layer_begin; il < layer_end; il++) {
        if (has_state(&s->model->layers[il]))
            recurrence(s, il, pos, x);
        else
            attention(s, il, pos, x);
        feed_forward(s, il, x);
        s->n_held[il - s->layer_begin] = pos + 1;
    }
    return 0;
}

int kin_ref_session_output(kin_ref_session *session, const float *x, float *logits) {
    const kin_ref_model *m = session->model;
    const kin_ref_tensor *output = m->output.data ? &m->output : &m->token_embd;
    if (!m->output_norm.data || !output->data) return -1;
    norm(session, &m->output_norm, &m->output_norm_bias, m->n_embd, x, session->normed);
    kin_ref_matvec(output, session->normed, logits);
    scale(logits, factor_or_1(m->logit_scale), m->n_vocab);
    for (int i = 0; i < m->n_vocab; i++) logits[i] = capped(logits[i], m->logit_cap);
    return 0;
}
