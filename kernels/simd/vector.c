// The small operators between products: norms, sums, gates, rotations, routing.
#include <string.h>

#include "kernels/simd/backend.h"
#include "kernels/simd/sigmoid.h"

void SIMD_FN(kin_rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y) {
    vf squares = vf_zero();
    for (int64_t i = 0; i < n; i += 16) squares = vf_add(squares, vf_mul(vf_load(x + i), vf_load(x + i)));
    vf scale = vf_set1(1 / __builtin_sqrtf(vf_sum(squares) / (float)n + eps));
    for (int64_t i = 0; i < n && weight; i += 16) vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(weight + i)));
    for (int64_t i = 0; i < n && !weight; i += 16) vf_store(y + i, vf_mul(vf_load(x + i), scale));
}

void SIMD_FN(kin_center)(int64_t n, const float *x, float *y) {
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += 16) sum = vf_add(sum, vf_load(x + i));
    vf mean = vf_set1(vf_sum(sum) / (float)n);
    for (int64_t i = 0; i < n; i += 16) vf_store(y + i, vf_sub(vf_load(x + i), mean));
}

void SIMD_FN(kin_add)(int64_t n, const float *x, float *y) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(y + i, vf_add(vf_load(y + i), vf_load(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

void SIMD_FN(kin_add_scaled)(int64_t n, float share, const float *x, float *y) {
    vf scale = vf_set1(share);
    for (int64_t i = 0; i < n; i += 16) vf_store(y + i, vf_add(vf_load(y + i), vf_mul(scale, vf_load(x + i))));
}

static void gate_silu(int64_t n, const float *gate, const float *up, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        vf g = vf_load(gate + i);
        vf_store(y + i, vf_mul(by_sigmoid(g, g), vf_load(up + i)));
    }
}

// 0.5 g (1 + tanh(u)) = g / (1 + e^-2u) with u = sqrt(2 / pi) (g + 0.044715 g^3)
static void gate_gelu(int64_t n, const float *gate, const float *up, float *y) {
    const vf c = vf_set1(2 * 0.7978845608f), c3 = vf_set1(0.044715f);
    for (int64_t i = 0; i < n; i += 16) {
        vf g = vf_load(gate + i), cube = vf_mul(vf_mul(g, g), vf_mul(g, c3));
        vf_store(y + i, vf_mul(by_sigmoid(g, vf_mul(c, vf_add(g, cube))), vf_load(up + i)));
    }
}

SIMD_INLINE vf at_most(vf x, float limit) { return vf_sub(vf_zero(), vf_max(vf_sub(vf_zero(), x), vf_set1(-limit))); }

static void gate_oai(int64_t n, const float *gate, const float *up, float *y) {
    const float limit = 7;
    for (int64_t i = 0; i < n; i += 16) {
        vf g = at_most(vf_load(gate + i), limit), u = vf_max(at_most(vf_load(up + i), limit), vf_set1(-limit));
        vf_store(y + i, vf_mul(by_sigmoid(g, vf_mul(g, vf_set1(1.702f))), vf_add(u, vf_set1(1))));
    }
}

static void gate_limited(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        vf g = vf_load(gate + i), u = vf_max(at_most(vf_load(up + i), limit), vf_set1(-limit));
        if (kind == KIN_GATE_CLAMPED) g = at_most(g, limit); // so that its SiLU is at most the limit, too
        vf_store(y + i, vf_mul(at_most(by_sigmoid(g, g), limit), u));
    }
}

// limit > 0: instead of `kind`. n: a multiple of 16
static void gate_vectors(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y) {
    if (limit > 0) return gate_limited(kind, limit, n, gate, up, y);
    switch (kind) {
    case KIN_GATE_CLAMPED:
    case KIN_GATE_SILU: gate_silu(n, gate, up, y); break;
    case KIN_GATE_GELU: gate_gelu(n, gate, up, y); break;
    case KIN_GATE_OAI: gate_oai(n, gate, up, y); break;
    }
}

static void gate_any(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y) {
    const int64_t whole = n / 16 * 16;
    gate_vectors(kind, limit, whole, gate, up, y);
    if (whole == n) return;
    const size_t rest = (size_t)(n - whole) * sizeof *y;
    float g[16] = {0}, u[16] = {0};
    memcpy(g, gate + whole, rest);
    memcpy(u, up + whole, rest);
    gate_vectors(kind, limit, 16, g, u, g);
    memcpy(y + whole, g, rest);
}

void SIMD_FN(kin_gate)(kin_gate kind, int64_t n, const float *gate, const float *up, float *y) {
    gate_any(kind, 0, n, gate, up, y);
}

void SIMD_FN(kin_gate_limited)(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y) {
    gate_any(kind, limit, n, gate, up, y);
}

void SIMD_FN(kin_scale_sigmoid)(int64_t n, float g, const float *x, float *y) {
    const vf all = vf_set1(g);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(y + i, by_sigmoid(vf_load(x + i), all));
    for (float rest[16]; i < n; i++) {
        vf_store(rest, by_sigmoid(vf_set1(x[i]), all));
        y[i] = rest[0];
    }
}

SIMD_INLINE vf gate_factor(kin_head_gate kind, vf a) {
    return kind == KIN_HEAD_GATE_SIGMOID ? by_sigmoid(vf_set1(1), a) : softplus(a);
}

void SIMD_FN(kin_gate_heads)(kin_head_gate kind, bool is_each, int n_head, int head_dim, const float *gate, float *x) {
    for (int h = 0; h < n_head; h++, x += head_dim) {
        vf factor = is_each ? vf_zero() : gate_factor(kind, vf_set1(gate[h]));
        for (int d = 0; d < head_dim; d += 16) {
            if (is_each) factor = gate_factor(kind, vf_load(gate + h * head_dim + d));
            vf_store(x + d, vf_mul(vf_load(x + d), factor));
        }
    }
}

// Returns NaN where x is NaN, otherwise 0.
SIMD_INLINE vf nan_of(vf x) {
    const vf low = vf_set1(-1), most = vf_max(low, vf_sub(vf_zero(), x)); // of NaN vf_max returns its second argument
    return vf_mul(vf_max(low, vf_sub(vf_zero(), most)), vf_zero());
}

// tanh(a) = 1 - 2 / (e^2a + 1). NaN stays NaN, so that logits that were computed wrongly are noticed.
SIMD_INLINE vf cap_of(vf x, float scale, float cap) {
    if (cap == 0) return vf_mul(x, vf_set1(scale));
    vf e = exp_at_most(vf_mul(x, vf_set1(2 * scale / cap)));
    return vf_add(vf_mul(vf_set1(cap), vf_sub(vf_set1(1), vf_div(vf_set1(2), vf_add(e, vf_set1(1))))), nan_of(x));
}

void SIMD_FN(kin_cap)(int64_t n, float scale, float cap, float *x) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(x + i, cap_of(vf_load(x + i), scale, cap));
    for (float rest[16]; i < n; i++) {
        vf_store(rest, cap_of(vf_set1(x[i]), scale, cap));
        x[i] = rest[0];
    }
}

void SIMD_FN(kin_rope)(bool neox, int n_rot, const float *cos_sin, float *head) {
    const int half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;
    for (int i = 0; i < half; i++) {
        float *a = head + step * i, *b = a + apart, a0 = *a, b0 = *b;
        *a = a0 * cos_sin[i] - b0 * cos_sin[half + i];
        *b = a0 * cos_sin[half + i] + b0 * cos_sin[i];
    }
}

// Inserts into the n largest so far.
static void insert(int32_t *chosen, float *value, int n, int32_t i, float x) {
    for (; n > 0 && value[n - 1] < x; n--) {
        chosen[n] = chosen[n - 1];
        value[n] = value[n - 1];
    }
    chosen[n] = i;
    value[n] = x;
}

static float exp_of(float x) {
    float e[16];
    vf_store(e, vf_exp(vf_set1(x)));
    return e[0];
}

static float softplus_of(float x) {
    float y[16];
    vf_store(y, softplus(vf_set1(x)));
    return y[0];
}

// Selects the n_used best by `value`, with their values.
static void choose(const kin_routing *r, const float *value, int32_t *chosen, float *best) {
    int n = 0;
    for (int i = 0; i < r->n_expert; i++) {
        if (n == r->n_used && !(value[i] > best[n - 1])) continue;
        if (n < r->n_used) n++;
        insert(chosen, best, n - 1, i, value[i]);
    }
}

// Computes the softmax of n values in place; `most` is the greatest of them.
static void soften_values(int n, float most, float *x) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] = exp_of(x[i] - most);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

// Logits -> probabilities
static void weigh_all(const kin_routing *r, const float *logits, float *p) {
    float most = logits[0];
    for (int i = 0; i < r->n_expert; i++) {
        most = logits[i] > most ? logits[i] : most;
        p[i] = logits[i];
    }
    if (r->gating == KIN_GATING_SOFTMAX) {
        soften_values(r->n_expert, most, p);
        return;
    }
    for (int i = 0; i < r->n_expert && r->gating == KIN_GATING_SOFTPLUS; i++) p[i] = __builtin_sqrtf(softplus_of(logits[i]));
    for (int i = 0; i < r->n_expert && r->gating == KIN_GATING_SIGMOID; i++)
        p[i] = 1 / (1 + exp_of(logits[i] < -87 ? 87 : -logits[i]));
}

// Gives experts outside the best groups the lowest value.
static void keep_groups(const kin_routing *r, float *value) {
    int size = r->n_expert / r->n_group;
    int32_t chosen[KIN_ROUTE_GROUPS];
    float score[KIN_ROUTE_GROUPS], best[KIN_ROUTE_GROUPS];
    for (int g = 0; g < r->n_group; g++) {
        float first = -__builtin_inff(), second = -__builtin_inff();
        for (int i = g * size; i < (g + 1) * size; i++) {
            second = value[i] > first ? first : value[i] > second ? value[i] : second;
            first = value[i] > first ? value[i] : first;
        }
        score[g] = size > 1 ? first + second : first;
    }
    choose(&(kin_routing){.n_expert = r->n_group, .n_used = r->n_group_used}, score, chosen, best);
    for (int g = 0; g < r->n_group; g++) {
        bool is_kept = false;
        for (int i = 0; i < r->n_group_used; i++) is_kept = is_kept || chosen[i] == g;
        for (int i = g * size; i < (g + 1) * size && !is_kept; i++) value[i] = -__builtin_inff();
    }
}

// Routes by the probabilities of all experts.
static void route_by_all(const kin_routing *r, const float *logits, int32_t *chosen, float *share) {
    float p[KIN_ROUTE_EXPERTS], value[KIN_ROUTE_EXPERTS], sum = 0;
    weigh_all(r, logits, p);
    for (int i = 0; i < r->n_expert; i++) value[i] = r->bias ? p[i] + r->bias[i] : p[i];
    if (r->n_group > 1) keep_groups(r, value);
    if (r->given)
        memcpy(chosen, r->given, (size_t)r->n_used * sizeof *chosen);
    else
        choose(r, value, chosen, share);
    for (int i = 0; i < r->n_used; i++) sum += share[i] = p[chosen[i]];
    for (int i = 0; i < r->n_used && r->normalize; i++) share[i] /= sum > 0x1p-14f ? sum : 0x1p-14f;
}

void SIMD_FN(kin_route)(const kin_routing *r, const float *logits, int32_t *chosen, float *share) {
    if (r->gating == KIN_GATING_CHOSEN) {
        choose(r, logits, chosen, share);
        soften_values(r->n_used, share[0], share);
    } else {
        route_by_all(r, logits, chosen, share);
    }
    for (int i = 0; i < r->n_used && r->scale != 1; i++) share[i] *= r->scale;
}
