#include "testkit/ref/delta.h"

#include <math.h>

static int n_values(const kin_ref_delta *d) {
    return d->n_head * d->dim;
}

const char *kin_ref_delta_check(const kin_ref_delta *d, int n_embd) {
    const int n = n_values(d), dim = d->dim;
    if (d->n_taps < 1 || d->n_taps > KIN_REF_TAPS_MAX) return "n_taps";
    for (int i = 0; i < 3; i++) {
        if (!kin_ref_tensor_is(&d->qkv[i], 1, n, n_embd)) return "qkv";
        if (!kin_ref_tensor_is(&d->conv[i], n, 1, d->n_taps)) return "conv";
    }
    if (!kin_ref_tensor_is(&d->decay_a, 1, dim, n_embd) || !kin_ref_tensor_is(&d->decay_b, 1, n, dim)) return "decay";
    if (!kin_ref_tensor_is(&d->gate_a, 1, dim, n_embd) || !kin_ref_tensor_is(&d->gate_b, 1, n, dim)) return "gate";
    if (!kin_ref_tensor_is(&d->dt, 1, 1, n) || !kin_ref_tensor_is(&d->a, 1, d->n_head, 1)) return "dt";
    if (!kin_ref_tensor_is(&d->beta, 1, d->n_head, n_embd)) return "beta";
    if (!kin_ref_tensor_is(&d->norm, 1, 1, dim) || !kin_ref_tensor_is(&d->out, 1, n_embd, n)) return "out";
    return NULL;
}

// The last n_taps - 1 inputs of the convolutions // (n_taps - 1, 3, n_head*dim), then the matrices // (n_head, dim, dim).
static size_t history_floats(const kin_ref_delta *d) {
    return (size_t)(d->n_taps - 1) * 3 * (size_t)n_values(d);
}

size_t kin_ref_delta_state_floats(const kin_ref_delta *d) {
    return history_floats(d) + (size_t)n_values(d) * (size_t)d->dim;
}

size_t kin_ref_delta_scratch_floats(const kin_ref_delta *d) {
    return 8 * (size_t)n_values(d) + (size_t)d->dim;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

// Replaces x // (3, n) by what the convolutions make of it and of the tokens before, and remembers it.
static void convolve(const kin_ref_delta *d, float *history, float *x) {
    const int n = n_values(d);
    for (int c = 0; c < 3 * n; c++) {
        const kin_ref_tensor channel = kin_ref_tensor_matrix(&d->conv[c / n], c % n);
        float taps[KIN_REF_TAPS_MAX];
        kin_ref_tensor_row(&channel, 0, taps);
        const double sum = kin_ref_convolve(taps, d->n_taps, history + c, 3 * (size_t)n, x[c]);
        x[c] = (float)(sum * sigmoid(sum));
    }
}

void kin_ref_delta_make_unit(float *x, int n, float eps) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] / fmax(sqrt(sum), (double)eps));
}

void kin_ref_delta_advance(int dim, const float *q, const float *k, const float *v, const float *decays, double beta, float *m,
                           float *result) {
    for (int j = 0; j < dim; j++) { // a value
        double read = 0, sum = 0;
        for (int i = 0; i < dim; i++) read += (double)k[i] * (double)decays[i] * (double)m[i * dim + j];
        for (int i = 0; i < dim; i++) {
            float *at = m + i * dim + j;
            *at = (float)((double)decays[i] * (double)*at + beta * (double)k[i] * ((double)v[j] - read));
            sum += (double)q[i] * (double)*at;
        }
        result[j] = (float)(sum / sqrt(dim));
    }
}

// x = x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate); x, gate, weight // (n)
static void finish(int n, float eps, const float *weight, const float *gate, float *x) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] * scale * (double)weight[i] * sigmoid((double)gate[i]));
}

// The same without a least length, but with eps added to its square.
static void make_smooth_unit(float *x, int n, float eps) {
    double sum = (double)eps;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] / sqrt(sum));
}

static void make_unit(const kin_ref_delta *d, float eps, float *x) {
    if (d->unit_eps > 0)
        make_smooth_unit(x, d->dim, d->unit_eps);
    else
        kin_ref_delta_make_unit(x, d->dim, eps);
}

// decays = e^(a ln(1 + e^(x + dt))), or e^(least / (1 + e^(a (x + dt)))), of all heads; decays holds x
static void make_decays(const kin_ref_delta *d, float *dt, float *decays) {
    kin_ref_tensor_row(&d->dt, 0, dt);
    for (int i = 0; i < n_values(d); i++) {
        float a;
        kin_ref_tensor_row(&d->a, i / d->dim, &a);
        const double t = (double)decays[i] + (double)dt[i];
        decays[i] = (float)exp(d->least < 0 ? (double)d->least * sigmoid(-(double)a * t) : (double)a * log1p(exp(t)));
    }
}

void kin_ref_delta_step(const kin_ref_delta *d, float eps, const float *x, float *state, float *scratch, float *out) {
    const int n = n_values(d), dim = d->dim;
    float *q = scratch, *k = q + n, *v = k + n, *decays = v + n, *gates = decays + n, *result = gates + n, *beta = result + n,
          *weight = beta + n, *low = weight + n, *m = state + history_floats(d);
    for (int i = 0; i < 3; i++) kin_ref_matvec(&d->qkv[i], x, q + i * n);
    convolve(d, state, q);
    kin_ref_matvec(&d->decay_a, x, low);
    kin_ref_matvec(&d->decay_b, low, decays);
    make_decays(d, weight, decays);
    kin_ref_matvec(&d->gate_a, x, low);
    kin_ref_matvec(&d->gate_b, low, gates);
    kin_ref_matvec(&d->beta, x, beta);
    kin_ref_tensor_row(&d->norm, 0, weight);
    for (int h = 0; h < d->n_head; h++) {
        const int at = h * dim;
        make_unit(d, eps, q + at);
        make_unit(d, eps, k + at);
        kin_ref_delta_advance(dim, q + at, k + at, v + at, decays + at, sigmoid((double)beta[h]), m + at * dim, result + at);
        finish(dim, eps, weight, gates + at, result + at);
    }
    kin_ref_matvec(&d->out, result, out);
}
