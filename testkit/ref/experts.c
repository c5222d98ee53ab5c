#include "testkit/ref/experts.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/vector.h"

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

// s->router = the router's products for x, or for s->normed, which is the normed x
static void make_logits(kin_ref_session *s, const kin_ref_layer *w, const float *x) {
    const float *read = s->normed;
    if (w->router_norm.data) {
        kin_ref_norm_by_row(s, &w->router_norm, 0, s->model->rms_eps, x, s->added);
        kin_ref_scale(s->added, (float)(1 / sqrt(s->model->n_embd)), s->model->n_embd);
        read = s->added;
    }
    kin_ref_project(s, &w->ffn_router, &w->router_bias, 0, read, s->router);
}

// x // (n)
static void make_probabilities(kin_ref_routing routing, int n, float *x) {
    if (routing == KIN_REF_ROUTE_SOFTMAX) kin_ref_softmax(x, n, -INFINITY);
    for (int i = 0; i < n && routing == KIN_REF_ROUTE_SIGMOID; i++) x[i] = kin_ref_sigmoid(x[i]);
    for (int i = 0; i < n && routing == KIN_REF_ROUTE_SOFTPLUS; i++) x[i] = (float)sqrt(log1p(exp((double)x[i])));
}

// s->shares = the experts' shares in the result for x
static void route(kin_ref_session *s, const kin_ref_layer *w, const float *x) {
    const kin_ref_model *m = s->model;
    make_logits(s, w, x);
    make_probabilities(m->routing, m->n_expert, s->router);
    memset(s->choice, 0, (size_t)m->n_expert * sizeof *s->choice);
    if (w->ffn_choice.data) kin_ref_tensor_row(&w->ffn_choice, 0, s->choice);
    for (int i = 0; i < m->n_expert; i++) s->choice[i] += s->router[i];
    for (int i = 0; i < m->n_expert_used && w->token_experts.data; i++)
        s->choice[kin_ref_tensor_int(&w->token_experts, s->token, i)] = INFINITY;
    if (m->n_group > 1) choose_groups(m, s->choice);
    const double sum = share_out(s->router, s->choice, m->n_expert, m->n_expert_used, s->shares);
    for (int i = 0; i < m->n_expert && !m->keeps_shares; i++) s->shares[i] = (float)((double)s->shares[i] / sum);
    kin_ref_scale(s->shares, kin_ref_factor(m->expert_scale), m->n_expert);
    if (!w->expert_scales.data) return;
    kin_ref_tensor_row(&w->expert_scales, 0, s->weights);
    for (int i = 0; i < m->n_expert; i++) s->shares[i] *= s->weights[i];
}

static float gated(kin_ref_gate kind, float limit, float gate, float up) {
    if (kind == KIN_REF_GATE_NONE) return up > 0 ? up * up : 0;
    if (kind == KIN_REF_GATE_GELU) return kin_ref_gelu(gate) * up;
    if (kind == KIN_REF_GATE_CLAMPED && limit != 0) {
        gate = fminf(gate, limit);
        up = fmaxf(fminf(up, limit), -limit);
    }
    if (kind == KIN_REF_GATE_CLAMPED) return kin_ref_silu(gate) * up;
    if (kind == KIN_REF_GATE_SILU) {
        if (limit == 0) return kin_ref_silu(gate) * up;
        return fminf(kin_ref_silu(gate), limit) * fmaxf(fminf(up, limit), -limit);
    }
    gate = fminf(gate, 7);
    up = fmaxf(fminf(up, 7), -7);
    return gate / (1 + expf(-1.702f * gate)) * (up + 1);
}

typedef struct experts {
    const kin_ref_tensor *gate, *up, *down;
    const kin_ref_tensor *gate_up;                         // instead of gate and up, if it is present
    const kin_ref_tensor *gate_bias, *up_bias, *down_bias; // may be absent
    float limit;
} experts;

// The matrices of expert i: gate, which may be absent, and up // (n_ff, n_embd).
static void find_gate_and_up(const experts *e, int i, kin_ref_tensor *gate, kin_ref_tensor *up) {
    if (!e->gate_up->data) {
        if (e->gate->data) *gate = kin_ref_tensor_matrix(e->gate, i);
        *up = kin_ref_tensor_matrix(e->up, i);
        return;
    }
    const kin_ref_tensor both = kin_ref_tensor_matrix(e->gate_up, i);
    *gate = kin_ref_tensor_rows(&both, 0, both.n_rows / 2);
    *up = kin_ref_tensor_rows(&both, both.n_rows / 2, both.n_rows / 2);
}

// out = down (silu(gate x) * (up x)) of expert i. x, out // (n_embd), or as wide as a latent
static void expert(kin_ref_session *s, const experts *e, int i, const float *x, float *out) {
    const kin_ref_tensor down = kin_ref_tensor_matrix(e->down, i); // (n_embd, n_ff)
    kin_ref_tensor gate = {0}, up;
    find_gate_and_up(e, i, &gate, &up);
    if (gate.data) kin_ref_project(s, &gate, e->gate_bias, i, x, s->gate);
    kin_ref_project(s, &up, e->up_bias, i, x, s->up);
    for (int j = 0; j < up.n_rows; j++) s->gate[j] = gated(s->model->gate, e->limit, s->gate[j], s->up[j]);
    kin_ref_project(s, &down, e->down_bias, i, s->gate, out);
}

static const kin_ref_tensor none = {0};

// shared = the result of the shared expert
static void shared_expert(kin_ref_session *s, const kin_ref_layer *w) {
    const int n_embd = s->model->n_embd;
    const experts e = {&w->shared_gate, &w->shared_up, &w->shared_down, &none, &none, &none, &none, w->shared_limit};
    expert(s, &e, 0, s->normed, s->added);
    if (w->shared_router.data) {
        float share;
        kin_ref_matvec(&w->shared_router, s->normed, &share);
        kin_ref_scale(s->added, kin_ref_sigmoid(share), n_embd);
    }
    kin_ref_norm(s, &w->shared_out_norm, &none, n_embd, s->added, s->shared);
}

// added = the sum of the experts' results for s->normed, each with its share
static void sum_experts(kin_ref_session *s, const kin_ref_layer *w, const experts *e) {
    const kin_ref_model *m = s->model;
    const int width = w->latent_down.data ? w->latent_down.n_rows : m->n_embd;
    const float *x = w->latent_down.data ? s->latent : s->normed;
    if (w->latent_down.data) kin_ref_matvec(&w->latent_down, s->normed, s->latent);
    memset(s->sum, 0, (size_t)width * sizeof *s->sum);
    for (int i = 0; i < m->n_expert; i++) {
        if (!(s->shares[i] > 0)) continue;
        expert(s, e, i, x, s->added);
        kin_ref_scale(s->added, s->shares[i], width);
        kin_ref_add(s->sum, s->added, width);
    }
    if (w->latent_up.data)
        kin_ref_matvec(&w->latent_up, s->sum, s->added);
    else
        kin_ref_norm(s, &w->experts_out_norm, &none, m->n_embd, s->sum, s->added);
}

void kin_ref_feed_forward(kin_ref_session *s, int il, float *x) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    const experts e = {&w->ffn_gate,  &w->ffn_up,  &w->ffn_down,  &w->ffn_gate_up,
                       &w->gate_bias, &w->up_bias, &w->down_bias, w->expert_limit};
    if (!w->is_parallel) kin_ref_norm(s, &w->ffn_norm, &w->ffn_norm_bias, m->n_embd, x, s->normed);
    if (m->n_expert == 0 || w->is_dense) {
        expert(s, &e, 0, s->normed, s->added);
        kin_ref_add_block(s, &w->ffn_out_norm, x);
        return;
    }
    route(s, w, x);
    if (w->shared_up.data) shared_expert(s, w);
    if (w->experts_norm.data) kin_ref_norm(s, &w->experts_norm, &none, m->n_embd, x, s->normed);
    sum_experts(s, w, &e);
    if (w->shared_up.data) kin_ref_add(s->added, s->shared, m->n_embd);
    kin_ref_add_block(s, &w->ffn_out_norm, x);
}
