#include "testkit/ref/ngram.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/convolution.h"
#include "testkit/ref/mixer.h"
#include "testkit/ref/vector.h"

static int n_heads_of_all(const kin_ref_ngram *g) {
    return (g->size - 1) * g->n_heads;
}

const char *kin_ref_ngram_check(const kin_ref_ngram *g, int n_streams, int n_embd) {
    const int n = n_streams * n_embd;
    if (g->size < 2 || g->size > KIN_REF_NGRAM_SIZE_MAX) return "ngram.size";
    if (g->n_heads < 1 || n_heads_of_all(g) > KIN_REF_NGRAM_HEADS_MAX || n_embd % n_heads_of_all(g) != 0) return "ngram.n_heads";
    if (!kin_ref_tensor_is(&g->table, 1, g->table.n_rows, n_embd / n_heads_of_all(g))) return "ngram.table";
    for (int i = 0; i < n_heads_of_all(g); i++)
        if (g->n_rows[i] < 1 || g->n_rows[i] > INT32_MAX || g->first[i] + g->n_rows[i] > (uint64_t)g->table.n_rows)
            return "ngram.n_rows";
    if (g->taps.n_cols > KIN_REF_TAPS_MAX || !kin_ref_tensor_is(&g->taps, 1, n, g->taps.n_cols)) return "ngram.taps";
    if (!kin_ref_tensor_is(&g->key, 1, n, n_embd) || !kin_ref_tensor_is(&g->value, 1, n_embd, n_embd)) return "ngram.key";
    if (!kin_ref_tensor_is(&g->key_norm, 1, 1, n) || !kin_ref_tensor_is(&g->query_norm, 1, 1, n)) return "ngram.key_norm";
    return kin_ref_tensor_is(&g->conv_norm, 1, 1, n) ? NULL : "ngram.conv_norm";
}

size_t kin_ref_ngram_scratch_floats(const kin_ref_ngram *g) {
    return 3 * (size_t)g->key.n_rows + 2 * (size_t)g->value.n_rows;
}

// Writes the table's rows for the token ids[pos]. e // (n_embd)
static void embed(const kin_ref_ngram *g, const int *ids, int pos, float *e) {
    uint64_t joined = (uint64_t)ids[pos] * g->factors[0];
    bool has_ended = false;
    for (int back = 1; back < g->size; back++) {
        has_ended = has_ended || pos < back || ids[pos - back] == g->end_id;
        joined ^= (uint64_t)(has_ended ? g->end_id : ids[pos - back]) * g->factors[back];
        for (int i = (back - 1) * g->n_heads; i < back * g->n_heads; i++, e += g->table.n_cols)
            kin_ref_tensor_row(&g->table, (int)(g->first[i] + joined % g->n_rows[i]), e);
    }
}

// Returns the gate of a stream x and its key, both normed. // (n_embd)
static double gate_of(const float *key, const float *x, int n_embd) {
    const double score = kin_ref_dot(key, x, n_embd) / sqrt(n_embd), root = sqrt(fmax(fabs(score), 1e-6));
    return 1 / (1 + exp(score > 0 ? -root : score < 0 ? root : 0));
}

void kin_ref_ngram_step(const kin_ref_ngram *g, int n_embd, float eps, const int *ids, int pos, float *kept, size_t apart,
                        float *scratch, float *x) {
    const int n = g->key.n_rows;
    float *keys = scratch, *added = keys + n, *weights = added + n, *e = weights + n, *value = e + n_embd;
    float *here = kept + (size_t)pos * apart, taps[KIN_REF_TAPS_MAX];
    embed(g, ids, pos, e);
    kin_ref_matvec(&g->key, e, keys);
    kin_ref_matvec(&g->value, e, value);
    kin_ref_norm_streams(&g->key_norm, n_embd, eps, weights, keys);
    memcpy(here, x, (size_t)n * sizeof *here);
    kin_ref_norm_streams(&g->query_norm, n_embd, eps, weights, here);
    for (int at = 0; at < n; at += n_embd) {
        const double gate = gate_of(keys + at, here + at, n_embd);
        for (int i = 0; i < n_embd; i++) added[at + i] = (float)(gate * (double)value[i]);
    }
    memcpy(here, added, (size_t)n * sizeof *here);
    kin_ref_norm_streams(&g->conv_norm, n_embd, eps, weights, here);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        kin_ref_tensor_row(&g->taps, i, taps);
        for (int k = 0; k < g->taps.n_cols && pos >= k * g->size; k++)
            sum += (double)taps[g->taps.n_cols - 1 - k] * (double)here[i - (ptrdiff_t)((size_t)(k * g->size) * apart)];
        x[i] += added[i] + kin_ref_silu((float)sum);
    }
}
