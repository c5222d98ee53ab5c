// How several residual streams are mixed: a few numbers of each token, so one number at a time.
#include "kernels/simd/backend.h"
#include "kernels/simd/sigmoid.h"

static float first_of(vf x) {
    float all[16];
    vf_store(all, x);
    return all[0];
}

static float sigmoid_of(float a) { return first_of(by_sigmoid(vf_set1(1), vf_set1(a))); }

// m // f32 [n, n] -> each row of it becomes a softmax, plus eps
static void soften_rows(int n, float eps, float *m) {
    for (int row = 0; row < n; row++, m += n) {
        float most = m[0], sum = 0;
        for (int i = 1; i < n; i++) most = m[i] > most ? m[i] : most;
        for (int i = 0; i < n; i++) sum += m[i] = first_of(vf_exp(vf_set1(m[i] - most)));
        for (int i = 0; i < n; i++) m[i] = m[i] / sum + eps;
    }
}

// Divides the n numbers of each row, or of each column, by their sum plus eps.
static void divide(int n, int apart, int step, float eps, float *m) {
    for (int k = 0; k < n; k++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += m[k * apart + i * step];
        for (int i = 0; i < n; i++) m[k * apart + i * step] /= sum + eps;
    }
}

void SIMD_FN(kin_sinkhorn)(const kin_sinkhorn *s, const float *m, float *gates) {
    const int n = s->n_streams;
    for (int i = 0; i < n; i++) gates[i] = sigmoid_of(m[i] * s->scale[0] + s->base[i]) + s->eps;
    if (s->is_end) return;
    for (int i = n; i < 2 * n; i++) gates[i] = 2 * sigmoid_of(m[i] * s->scale[1] + s->base[i]);
    float *c = gates + 2 * n;
    for (int i = 0; i < n * n; i++) c[i] = m[2 * n + i] * s->scale[2] + s->base[2 * n + i];
    soften_rows(n, s->eps, c);
    divide(n, 1, n, s->eps, c);
    for (int k = 1; k < s->n_iterations; k++) {
        divide(n, n, 1, s->eps, c);
        divide(n, 1, n, s->eps, c);
    }
}
