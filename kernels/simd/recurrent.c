// Recurrent layers: the short convolution and the gated delta net. A token's result depends on the tokens before it only through
// the state, and each sum runs in one order, so it does not matter which tokens are in the same call.
#include <string.h>

#include "kernels/simd/backend.h"
#include "kernels/simd/sigmoid.h"

void SIMD_FN(kin_convolve)(const kin_convolution *c) {
    for (int64_t at = 0; at < c->n; at += 16) {
        float columns[KIN_CONVOLUTION_TAPS][16];
        vf taps[KIN_CONVOLUTION_TAPS];
        for (int lane = 0; lane < 16; lane++) {
            for (int i = 0; i < c->n_taps; i++) columns[i][lane] = c->taps[(at + lane) * c->n_taps + i];
        }
        for (int i = 0; i < c->n_taps; i++) taps[i] = vf_load(columns[i]);
        for (int row = 0; row < c->n_rows; row++) {
            vf sum = vf_mul(vf_load(c->x[row] + at), taps[0]);
            for (int i = 1; i < c->n_taps; i++) sum = vf_add(sum, vf_mul(vf_load(c->x[row + i] + at), taps[i]));
            if (c->bias) sum = vf_add(sum, vf_load(c->bias + at));
            vf_store(c->y[row] + at, c->is_plain ? sum : by_sigmoid(sum, sum));
        }
    }
}

void SIMD_FN(kin_unit)(int64_t n, float eps, float *x) {
    vf squares = vf_zero();
    for (int64_t i = 0; i < n; i += 16) squares = vf_add(squares, vf_mul(vf_load(x + i), vf_load(x + i)));
    const float length = __builtin_sqrtf(vf_sum(squares));
    vf scale = vf_set1(1 / (length > eps ? length : eps));
    for (int64_t i = 0; i < n; i += 16) vf_store(x + i, vf_mul(vf_load(x + i), scale));
}

void SIMD_FN(kin_delta_factors)(int64_t n, float a, float dt, const float *alpha, const float *b, float *decay, float *beta) {
    for (int64_t i = 0; i < n; i += 16) {
        vf rate = softplus(vf_add(vf_load(alpha + i), vf_set1(dt)));
        vf_store(decay + i, exp_at_most(vf_mul(vf_set1(a), rate)));
        vf_store(beta + i, b ? by_sigmoid(vf_set1(1), vf_load(b + i)) : rate);
    }
}

void SIMD_FN(kin_delta_decays)(int64_t n, float a, float least, const float *dt, const float *x, float *decays) {
    for (int64_t i = 0; i < n; i += 16) {
        const vf sum = vf_add(vf_load(x + i), vf_load(dt + i));
        const vf log = least < 0 ? by_sigmoid(vf_set1(least), vf_mul(vf_set1(-a), sum)) : vf_mul(vf_set1(a), softplus(sum));
        vf_store(decays + i, exp_at_most(log));
    }
}

// Blocks of 16 values that are advanced together: four chains of sums hide the latency of an addition.
enum { BLOCKS = 4 };

typedef enum rule { DELTA, ADDITIVE, DECAYS_ROWS } rule;

// One token of n blocks of 16 values, from value `at` on: m // f32 [n][n_key][16]
SIMD_INLINE void advance(const int n, const int n_key, const rule rule, const kin_delta_row *r, int at, float scale, float *m) {
    const vf decay = vf_set1(r->decay), beta = vf_set1(r->beta);
    float decayed[KIN_DELTA_KEYS];
    const float *k = rule == DECAYS_ROWS ? decayed : r->k;
    vf d[BLOCKS], out[BLOCKS];
    for (int i = 0; i < n_key && rule == DECAYS_ROWS; i += 16)
        vf_store(decayed + i, vf_mul(vf_load(r->decays + i), vf_load(r->k + i)));
    for (int b = 0; b < n; b++) d[b] = out[b] = vf_zero();
    for (int i = 0; i < n_key && rule != ADDITIVE; i++) {
        for (int b = 0; b < n; b++) d[b] = vf_add(d[b], vf_times(vf_load(m + (b * n_key + i) * 16), k + i));
    }
    for (int b = 0; b < n; b++) {
        const vf v = vf_load(r->v + at + 16 * b);
        d[b] = vf_mul(beta, rule == ADDITIVE ? v : vf_sub(v, rule == DECAYS_ROWS ? d[b] : vf_mul(decay, d[b])));
    }
    for (int i = 0; i < n_key; i++) {
        for (int b = 0; b < n; b++) {
            float *column = m + (b * n_key + i) * 16;
            const vf old = vf_load(column);
            vf x = vf_add(rule == DECAYS_ROWS ? vf_times(old, r->decays + i) : vf_mul(old, decay), vf_times(d[b], r->k + i));
            vf_store(column, x);
            if (r->out) out[b] = vf_add(out[b], vf_times(x, r->q + i));
        }
    }
    for (int b = 0; b < n && r->out; b++) vf_store(r->out + at + 16 * b, vf_mul(out[b], vf_set1(scale)));
}

SIMD_INLINE void advance_blocks(const int n, const rule rule, const kin_delta_rule *d, int at) {
    float copy[BLOCKS * KIN_DELTA_KEYS * 16], *m = d->m + (int64_t)at * d->n_key;
    for (int row = 0; row < d->n_stored; row++) advance(n, d->n_key, rule, &d->rows[row], at, d->scale, m);
    if (d->n_stored == d->n_rows) return;
    memcpy(copy, m, sizeof(float) * (size_t)(n * d->n_key * 16));
    for (int row = d->n_stored; row < d->n_rows; row++) advance(n, d->n_key, rule, &d->rows[row], at, d->scale, copy);
}

SIMD_INLINE void advance_all(const rule rule, const kin_delta_rule *d) {
    int at = 0;
    for (; at + 16 * BLOCKS <= d->n_value; at += 16 * BLOCKS) advance_blocks(BLOCKS, rule, d, at);
    for (; at < d->n_value; at += 16) advance_blocks(1, rule, d, at);
}

void SIMD_FN(kin_delta)(const kin_delta_rule *d) {
    if (d->is_additive)
        advance_all(ADDITIVE, d);
    else if (d->decays_rows)
        advance_all(DECAYS_ROWS, d);
    else
        advance_all(DELTA, d);
}
