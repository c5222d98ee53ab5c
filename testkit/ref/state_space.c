#include "testkit/ref/state_space.h"

#include <math.h>

#include "testkit/ref/vector.h"

static int n_values(const kin_ref_state_space *s) {
    return s->n_head * s->dim;
}

static int n_channels(const kin_ref_state_space *s) {
    return n_values(s) + 2 * s->n_group * s->n_state;
}

static int n_inputs(const kin_ref_state_space *s) {
    return n_values(s) + n_channels(s) + s->n_head;
}

const char *kin_ref_state_space_check(const kin_ref_state_space *s, int n_embd) {
    if (s->n_taps < 1 || s->n_taps > KIN_REF_TAPS_MAX) return "n_taps";
    if (s->dim < 1 || s->n_state < 1 || s->n_group < 1 || s->n_head % s->n_group != 0) return "n_group";
    if (!kin_ref_tensor_is(&s->in, 1, n_inputs(s), n_embd)) return "in";
    if (!kin_ref_tensor_is(&s->conv, 1, n_channels(s), s->n_taps)) return "conv";
    if (!kin_ref_tensor_is(&s->conv_bias, 1, 1, n_channels(s))) return "conv_bias";
    if (!kin_ref_tensor_is(&s->dt, 1, 1, s->n_head)) return "dt";
    if (!kin_ref_tensor_is(&s->a, 1, s->n_head, 1) || !kin_ref_tensor_is(&s->d, 1, s->n_head, 1)) return "a";
    if (!kin_ref_tensor_is(&s->norm, 1, s->n_group, n_values(s) / s->n_group)) return "norm";
    return kin_ref_tensor_is(&s->out, 1, n_embd, n_values(s)) ? NULL : "out";
}

// The last n_taps - 1 inputs of the convolutions // (n_taps - 1, n_channels), then the matrices // (n_head, n_state, dim).
static size_t history_floats(const kin_ref_state_space *s) {
    return (size_t)(s->n_taps - 1) * (size_t)n_channels(s);
}

size_t kin_ref_state_space_state_floats(const kin_ref_state_space *s) {
    return history_floats(s) + (size_t)n_values(s) * (size_t)s->n_state;
}

size_t kin_ref_state_space_scratch_floats(const kin_ref_state_space *s) {
    return (size_t)(n_inputs(s) + n_channels(s) + n_values(s) + s->n_head);
}

static void convolve(const kin_ref_state_space *s, float *biases, float *history, float *x) {
    float taps[KIN_REF_TAPS_MAX];
    kin_ref_tensor_row(&s->conv_bias, 0, biases);
    for (int i = 0; i < n_channels(s); i++) {
        kin_ref_tensor_row(&s->conv, i, taps);
        x[i] = kin_ref_silu(
            (float)(kin_ref_convolve(taps, s->n_taps, history + i, (size_t)n_channels(s), x[i]) + (double)biases[i]));
    }
}

// One token of head h. m // (n_state, dim), b, c // (n_state), x, y // (dim)
static void advance(const kin_ref_state_space *s, int h, double t, const float *b, const float *c, const float *x, float *m,
                    float *y) {
    float a, d;
    kin_ref_tensor_row(&s->a, h, &a);
    kin_ref_tensor_row(&s->d, h, &d);
    for (int j = 0; j < s->dim; j++) {
        double sum = (double)d * (double)x[j];
        for (int i = 0; i < s->n_state; i++) {
            float *at = m + i * s->dim + j;
            *at = (float)(exp(t * (double)a) * (double)*at + t * (double)b[i] * (double)x[j]);
            sum += (double)c[i] * (double)*at;
        }
        y[j] = (float)sum;
    }
}

// y = the norm of silu(gates) y in each group
static void finish(const kin_ref_state_space *s, float eps, const float *gates, float *weights, float *y) {
    const int n = n_values(s) / s->n_group;
    for (int i = 0; i < n_values(s); i++) y[i] *= kin_ref_silu(gates[i]);
    for (int g = 0; g < s->n_group; g++) {
        kin_ref_tensor_row(&s->norm, g, weights);
        kin_ref_unit(y + g * n, n, (double)eps);
        for (int i = 0; i < n; i++) y[g * n + i] *= weights[i];
    }
}

void kin_ref_state_space_step(const kin_ref_state_space *s, float eps, const float *x, float *state, float *scratch, float *out) {
    const int n = n_values(s), n_bc = s->n_group * s->n_state;
    float *gates = scratch, *xs = gates + n, *b = xs + n, *c = b + n_bc, *steps = c + n_bc, *weights = steps + s->n_head,
          *y = weights + n_channels(s), *dt = y + n, *m = state + history_floats(s);
    kin_ref_matvec(&s->in, x, scratch);
    convolve(s, weights, state, xs);
    kin_ref_tensor_row(&s->dt, 0, dt);
    for (int h = 0; h < s->n_head; h++) {
        const int group = h / (s->n_head / s->n_group) * s->n_state, at = h * s->dim;
        const double t = log1p(exp((double)steps[h] + (double)dt[h]));
        advance(s, h, t, b + group, c + group, xs + at, m + at * s->n_state, y + at);
    }
    finish(s, eps, gates, weights, y);
    kin_ref_matvec(&s->out, y, out);
}
