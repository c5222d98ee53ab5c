// Attention with compressed rows: a softmax over the scores of a query and over several rows of a channel, and rows in F16.
#include "kernels/simd/backend.h"

void SIMD_FN(kin_softmax)(int64_t n, float scale, const float *sink, float *x) {
    float most = sink ? *sink : -__builtin_inff(), sums[16] = {0}, rest[16], sum = 0;
    const int64_t whole = n / 16 * 16;
    for (int64_t i = 0; i < n; i++) {
        x[i] *= scale;
        most = x[i] > most ? x[i] : most;
    }
    for (int64_t i = 0; i < n; i += 16) {
        for (int64_t k = 0; k < 16 && i >= whole; k++) rest[k] = i + k < n ? x[i + k] : most;
        float *at = i < whole ? x + i : rest;
        vf_store(at, vf_exp(vf_sub(vf_load(at), vf_set1(most))));
        for (int64_t k = 0; k < 16 && i + k < n; k++) {
            sums[k] += at[k];
            x[i + k] = at[k];
        }
    }
    for (int k = 0; k < 16; k++) sum += sums[k];
    if (sink) {
        vf_store(rest, vf_exp(vf_set1(*sink - most)));
        sum += rest[0];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

void SIMD_FN(kin_to_f16)(int64_t n, const float *x, uint16_t *y) {
    for (int64_t i = 0; i < n; i += 16) vf_store_f16(y + i, vf_load(x + i));
}

void SIMD_FN(kin_from_f16)(int64_t n, const uint16_t *x, float *y) {
    for (int64_t i = 0; i < n; i += 16) vf_store(y + i, vf_load_f16(x + i));
}

void SIMD_FN(kin_pool)(int64_t n, int n_rows, const float *const *gate, const float *const *x, float *y) {
    for (int64_t at = 0; at < n; at += 16) {
        vf most = vf_load(gate[0] + at), sum = vf_zero(), all = vf_zero();
        for (int i = 1; i < n_rows; i++) most = vf_max(most, vf_load(gate[i] + at));
        for (int i = 0; i < n_rows; i++) {
            vf part = vf_exp(vf_sub(vf_load(gate[i] + at), most));
            all = vf_add(all, part);
            sum = vf_add(sum, vf_mul(part, vf_load(x[i] + at)));
        }
        vf_store(y + at, vf_div(sum, all));
    }
}
