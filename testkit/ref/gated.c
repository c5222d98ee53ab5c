#include "testkit/ref/gated.h"

#include <math.h>
#include <string.h>

static int n_channels(const kin_ref_gated *g) {
    return (2 * g->n_key + g->n_value) * g->dim;
}

static int n_values(const kin_ref_gated *g) {
    return g->n_value * g->dim;
}

const char *kin_ref_gated_check(const kin_ref_gated *g, int n_embd) {
    if (g->n_taps < 1 || g->n_taps > KIN_REF_TAPS_MAX) return "n_taps";
    if (g->n_key < 1 || g->dim < 1 || g->n_value % g->n_key != 0) return "n_value";
    if (g->all.data && !kin_ref_tensor_is(&g->all, 1, n_channels(g) + n_values(g), n_embd)) return "all";
    if (!g->all.data && !kin_ref_tensor_is(&g->qkv, 1, n_channels(g), n_embd)) return "qkv";
    if (!g->all.data && !kin_ref_tensor_is(&g->gate, 1, n_values(g), n_embd)) return "gate";
    if (g->both.data && !kin_ref_tensor_is(&g->both, 1, 2 * g->n_value, n_embd)) return "both";
    if (!g->both.data && !kin_ref_tensor_is(&g->beta, 1, g->n_value, n_embd)) return "beta";
    if (!g->both.data && !kin_ref_tensor_is(&g->alpha, 1, g->n_value, n_embd)) return "alpha";
    if (!kin_ref_tensor_is(&g->conv, 1, n_channels(g), g->n_taps)) return "conv";
    if (!kin_ref_tensor_is(&g->dt, 1, 1, g->n_value) || !kin_ref_tensor_is(&g->a, 1, 1, g->n_value)) return "dt";
    return kin_ref_tensor_is(&g->norm, 1, 1, g->dim) && kin_ref_tensor_is(&g->out, 1, n_embd, n_values(g)) ? NULL : "out";
}

// The last n_taps - 1 inputs of the convolutions // (n_taps - 1, n_channels), then the matrices // (n_value, dim, dim).
static size_t history_floats(const kin_ref_gated *g) {
    return (size_t)(g->n_taps - 1) * (size_t)n_channels(g);
}

size_t kin_ref_gated_state_floats(const kin_ref_gated *g) {
    return history_floats(g) + (size_t)n_values(g) * (size_t)g->dim;
}

size_t kin_ref_gated_scratch_floats(const kin_ref_gated *g) {
    return 2 * (size_t)n_channels(g) + 3 * (size_t)n_values(g) + 6 * (size_t)g->n_value + 2 * (size_t)g->dim;
}

// Splits x // (n_key, n_fields parts), a part of each key head after another, into all heads' first parts, then their second, ...
static void regroup(int n_key, const int *widths, int n_fields, const float *x, float *out) {
    int width = 0;
    for (int i = 0; i < n_fields; i++) width += widths[i];
    for (int i = 0, at = 0; i < n_fields; at += widths[i++])
        for (int h = 0; h < n_key; h++, out += widths[i]) memcpy(out, x + h * width + at, (size_t)widths[i] * sizeof *out);
}

// Queries, keys, values and gates // (n_channels + n_values), before the convolution. scratch has the same size.
static void make_inputs(const kin_ref_gated *g, const float *x, float *scratch, float *inputs) {
    if (!g->all.data) {
        kin_ref_matvec(&g->qkv, x, inputs);
        kin_ref_matvec(&g->gate, x, inputs + n_channels(g));
        return;
    }
    const int n = g->n_value / g->n_key * g->dim, widths[] = {g->dim, g->dim, n, n};
    kin_ref_matvec(&g->all, x, scratch);
    regroup(g->n_key, widths, 4, scratch, inputs);
}

// Betas and alphas // (2, n_value). scratch has the same size.
static void make_factors(const kin_ref_gated *g, const float *x, float *scratch, float *factors) {
    if (!g->both.data) {
        kin_ref_matvec(&g->beta, x, factors);
        kin_ref_matvec(&g->alpha, x, factors + g->n_value);
        return;
    }
    const int n = g->n_value / g->n_key, widths[] = {n, n};
    kin_ref_matvec(&g->both, x, scratch);
    regroup(g->n_key, widths, 2, scratch, factors);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void convolve(const kin_ref_gated *g, float *history, float *x) {
    float taps[KIN_REF_TAPS_MAX];
    for (int i = 0; i < n_channels(g); i++) {
        kin_ref_tensor_row(&g->conv, i, taps);
        const double sum = kin_ref_convolve(taps, g->n_taps, history + i, (size_t)n_channels(g), x[i]);
        x[i] = (float)(sum * sigmoid(sum));
    }
}

// x = x / sqrt(mean(x^2) + eps) * weight * silu(gate), or the gate's sigmoid; all // (n)
static void finish(bool by_sigmoid, int n, float eps, const float *weight, const float *gate, float *x) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++) {
        const double z = (double)gate[i];
        x[i] = (float)((double)x[i] * scale * (double)weight[i] * (by_sigmoid ? 1 : z) * sigmoid(z));
    }
}

void kin_ref_gated_step(const kin_ref_gated *g, float eps, const float *x, float *state, float *scratch, float *out) {
    const int dim = g->dim, n_value = g->n_value;
    float *inputs = scratch, *gates = inputs + n_channels(g), *other = gates + n_values(g),
          *result = other + n_channels(g) + n_values(g), *factors = result + n_values(g), *dt = factors + 2 * n_value,
          *a = dt + n_value, *decays = a + n_value, *weight = decays + dim, *rest = weight + dim;
    float *keys = inputs + g->n_key * dim, *values = keys + g->n_key * dim, *m = state + history_floats(g);
    make_inputs(g, x, other, inputs);
    make_factors(g, x, rest, factors);
    convolve(g, state, inputs);
    for (int h = 0; h < 2 * g->n_key; h++) kin_ref_delta_make_unit(inputs + h * dim, dim, eps);
    kin_ref_tensor_row(&g->dt, 0, dt);
    kin_ref_tensor_row(&g->a, 0, a);
    kin_ref_tensor_row(&g->norm, 0, weight);
    for (int h = 0; h < n_value; h++) {
        const int at = h * dim, key = (g->is_grouped ? h / (n_value / g->n_key) : h % g->n_key) * dim;
        const double slope = log1p(exp((double)factors[n_value + h] + (double)dt[h]));
        for (int i = 0; i < dim; i++) decays[i] = (float)exp((double)a[h] * slope);
        kin_ref_delta_advance(dim, inputs + key, keys + key, values + at, decays, sigmoid((double)factors[h]), m + at * dim,
                              result + at);
        finish(g->gates_by_sigmoid, dim, eps, weight, gates + at, result + at);
    }
    kin_ref_matvec(&g->out, result, out);
}
