#include "testkit/ref/convolution.h"

const char *kin_ref_convolution_check(const kin_ref_convolution *c, int n_embd) {
    if (c->n_taps < 1 || c->n_taps > KIN_REF_TAPS_MAX) return "n_taps";
    if (!kin_ref_tensor_is(&c->in, 1, 3 * c->n, n_embd)) return "in";
    if (!kin_ref_tensor_is(&c->taps, 1, c->n, c->n_taps)) return "taps";
    return kin_ref_tensor_is(&c->out, 1, n_embd, c->n) ? NULL : "out";
}

size_t kin_ref_convolution_state_floats(const kin_ref_convolution *c) {
    return (size_t)c->n * (size_t)(c->n_taps - 1);
}

size_t kin_ref_convolution_scratch_floats(const kin_ref_convolution *c) {
    return 3 * (size_t)c->n;
}

double kin_ref_convolve(const float *taps, int n_taps, float *history, size_t stride, float x) {
    double sum = (double)taps[n_taps - 1] * (double)x;
    for (int i = 0; i + 1 < n_taps; i++) {
        float *at = history + (size_t)i * stride;
        sum += (double)taps[i] * (double)*at;
        *at = i + 2 < n_taps ? at[stride] : x;
    }
    return sum;
}

void kin_ref_convolution_step(const kin_ref_convolution *c, const float *x, float *state, float *scratch, float *out) {
    const int n = c->n;
    float *b = scratch, *gates = b + n, *u = gates + n, taps[KIN_REF_TAPS_MAX];
    kin_ref_matvec(&c->in, x, scratch);
    for (int i = 0; i < n; i++) {
        kin_ref_tensor_row(&c->taps, i, taps);
        const double sum = kin_ref_convolve(taps, c->n_taps, state + i, (size_t)n, b[i] * u[i]);
        u[i] = (float)((double)gates[i] * sum);
    }
    kin_ref_matvec(&c->out, u, out);
}
