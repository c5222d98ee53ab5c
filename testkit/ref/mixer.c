#include "testkit/ref/mixer.h"

#include <string.h>

#include "testkit/ref/vector.h"

const char *kin_ref_mixer_check(const kin_ref_mixer *m, int n_streams, int n_embd, bool is_end) {
    const int n = n_streams * n_embd, rank = m->down.n_rows;
    if (!kin_ref_tensor_is(&m->norm, 1, 1, n)) return "mixer.norm";
    if (!kin_ref_tensor_is(&m->down, 1, rank, n) || rank < 1) return "mixer.down";
    if (!kin_ref_tensor_is(&m->up, 1, n, rank)) return "mixer.up";
    return is_end || kin_ref_tensor_is(&m->inject, 1, n_streams, n) ? NULL : "mixer.inject";
}

size_t kin_ref_mixer_scratch_floats(const kin_ref_mixer *m) {
    return 2 * (size_t)m->norm.n_cols + (size_t)m->down.n_rows;
}

void kin_ref_norm_streams(const kin_ref_tensor *weights, int n_embd, float eps, float *scratch, float *x) {
    kin_ref_tensor_row(weights, 0, scratch);
    for (int at = 0; at < weights->n_cols; at += n_embd) kin_ref_unit(x + at, n_embd, (double)eps);
    for (int i = 0; i < weights->n_cols; i++) x[i] *= scratch[i];
}

void kin_ref_mixer_read(const kin_ref_mixer *m, int n_streams, float eps, const float *x, float *scratch, float *block,
                        float *shares) {
    const int n = m->norm.n_cols, n_embd = n / n_streams, rank = m->down.n_rows;
    float *normed = scratch, *gates = normed + n, *low = gates + n;
    memcpy(normed, x, (size_t)n * sizeof *normed);
    kin_ref_norm_streams(&m->norm, n_embd, eps, gates, normed);
    kin_ref_matvec(&m->down, normed, low);
    for (int i = 0; i < rank; i++) low[i] = kin_ref_silu(low[i] / (float)n_streams);
    kin_ref_matvec(&m->up, low, gates);
    for (int i = 0; i < n_embd; i++) {
        double sum = 0;
        for (int s = 0; s < n_streams; s++)
            sum += (double)normed[s * n_embd + i] * (double)kin_ref_sigmoid(gates[s * n_embd + i]);
        block[i] = (float)(sum / n_streams);
    }
    if (!m->inject.data) return;
    kin_ref_matvec(&m->inject, normed, shares);
    for (int s = 0; s < n_streams; s++) shares[s] = 2 * kin_ref_sigmoid(shares[s] / (float)n_streams);
}
