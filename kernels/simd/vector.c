// The small operators between products: norms, sums, gates, rotations, routing.
#include "kernels/simd/backend.h"

void SIMD_FN(kin_rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y) {
    vf squares = vf_zero();
    for (int64_t i = 0; i < n; i += 16) squares = vf_add(squares, vf_mul(vf_load(x + i), vf_load(x + i)));
    vf scale = vf_set1(1 / __builtin_sqrtf(vf_sum(squares) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 16) vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(weight + i)));
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

// e^a, at most e^87.5.
SIMD_INLINE vf exp_at_most(vf a) { return vf_exp(vf_sub(vf_zero(), vf_max(vf_sub(vf_zero(), a), vf_set1(-87.5f)))); }

void SIMD_FN(kin_swiglu)(int64_t n, const float *gate, const float *up, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        vf g = vf_load(gate + i), e = exp_at_most(vf_sub(vf_zero(), g));
        vf_store(y + i, vf_mul(vf_div(g, vf_add(vf_set1(1), e)), vf_load(up + i)));
    }
}

void SIMD_FN(kin_rope)(bool neox, int n_rot, const float *turns, float *head) {
    const int half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;
    for (int i = 0; i < half; i++) {
        float *a = head + step * i, *b = a + apart, a0 = *a, b0 = *b;
        *a = a0 * turns[i] - b0 * turns[half + i];
        *b = a0 * turns[half + i] + b0 * turns[i];
    }
}

// Insertion into the n largest so far.
static void insert(int32_t *chosen, float *value, int n, int32_t i, float x) {
    for (; n > 0 && value[n - 1] < x; n--) {
        chosen[n] = chosen[n - 1];
        value[n] = value[n - 1];
    }
    chosen[n] = i;
    value[n] = x;
}

void SIMD_FN(kin_route)(int n_expert, int n_used, const float *logits, int32_t *chosen, float *share) {
    int n = 0;
    for (int i = 0; i < n_expert; i++) {
        if (n == n_used && !(logits[i] > share[n - 1])) continue;
        if (n < n_used) n++;
        insert(chosen, share, n - 1, i, logits[i]);
    }
    float most = share[0], sum = 0;
    for (int i = 0; i < n; i++) {
        float e[16];
        vf_store(e, vf_exp(vf_set1(share[i] - most)));
        share[i] = e[0];
        sum += e[0];
    }
    for (int i = 0; i < n; i++) share[i] /= sum;
}
