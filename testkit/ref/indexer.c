#include "testkit/ref/indexer.h"

#include <math.h>

#include "testkit/ref/vector.h"

const char *kin_ref_indexer_check(const kin_ref_indexer *x, int n_query, int n_embd, int n_rot) {
    if (x->n_head == 0) return NULL;
    if (x->n_head < 1 || x->n_chosen < 1 || x->dim < n_rot) return "indexer.n_chosen";
    if (!kin_ref_tensor_is(&x->q, 1, x->n_head * x->dim, n_query)) return "indexer.q";
    if (!kin_ref_tensor_is(&x->k, 1, x->dim, n_embd)) return "indexer.k";
    if (!kin_ref_tensor_is(&x->k_norm, 1, 1, x->dim) || !kin_ref_tensor_is(&x->k_bias, 1, 1, x->dim)) return "indexer.k_norm";
    if (x->n_pool > 0 && !kin_ref_tensor_is(&x->gate, 1, x->dim, n_embd)) return "indexer.gate";
    if (x->n_pool > 0 && !kin_ref_tensor_is(&x->place, 1, x->n_pool, x->dim)) return "indexer.place";
    return kin_ref_tensor_is(&x->weights, 1, x->n_head, n_embd) ? NULL : "indexer.weights";
}

size_t kin_ref_indexer_kept_floats(const kin_ref_indexer *x) {
    return (size_t)(x->n_pool > 0 ? 3 : 1) * (size_t)x->dim;
}

size_t kin_ref_indexer_scratch_floats(const kin_ref_indexer *x, int n_ctx) {
    return (size_t)x->n_head * (size_t)(x->dim + 1) + 2 * (size_t)x->dim + (size_t)n_ctx;
}

// key = (key - mean) / sqrt(mean of squares + eps) * weights + biases. weights // (2, dim)
static void norm_key(const kin_ref_indexer *x, float *weights, float *key) {
    double mean = 0;
    kin_ref_tensor_row(&x->k_norm, 0, weights);
    kin_ref_tensor_row(&x->k_bias, 0, weights + x->dim);
    for (int i = 0; i < x->dim; i++) mean += (double)key[i] / x->dim;
    for (int i = 0; i < x->dim; i++) key[i] = (float)((double)key[i] - mean);
    kin_ref_unit(key, x->dim, (double)x->eps);
    for (int i = 0; i < x->dim; i++) key[i] = key[i] * weights[i] + weights[x->dim + i];
}

static float score_of(const kin_ref_indexer *x, const float *q, const float *weights, const float *key) {
    double sum = 0;
    for (int h = 0; h < x->n_head; h++) sum += (double)weights[h] * fmax(0, kin_ref_dot(q + h * x->dim, key, x->dim));
    return (float)sum;
}

void kin_ref_choose_greatest(const float *scores, int n, int n_chosen, bool *chosen) {
    for (int t = 0; t < n; t++) {
        int n_greater = 0;
        for (int u = 0; u < n; u++) n_greater += scores[u] > scores[t] || (scores[u] == scores[t] && u < t);
        chosen[t] = n_greater < n_chosen;
    }
}

void kin_ref_indexer_see(const kin_ref_indexer *x, const float *q, const float *weights, const kin_ref_indexer_keys *keys, int n,
                         float *scores, bool *seen) {
    for (int t = 0; t < n; t++) scores[t] = score_of(x, q, weights, keys->keys + (size_t)t * keys->apart);
    kin_ref_choose_greatest(scores, n, x->n_chosen, seen);
}

static void rotate(const kin_ref_indexer *x, const kin_ref_rope *rope, const float *cos_sin, float *head) {
    if (!rope) return;
    kin_ref_rope own = *rope;
    own.kind = x->rope;
    kin_ref_rope_apply(&own, cos_sin, head);
}

// Makes the key of pool number i, whose tokens are all there. place // (dim), scratch
static void make_pool(const kin_ref_indexer *x, const kin_ref_indexer_keys *keys, int i, float *place) {
    float *key = keys->keys + (size_t)i * keys->apart;
    for (int column = 0; column < x->dim; column++) {
        double sum = 0, all = 0;
        for (int t = 0; t < x->n_pool; t++) {
            const float *own = keys->keys + (size_t)(i * x->n_pool + t) * keys->apart + x->dim;
            kin_ref_tensor_row(&x->place, t, place);
            const double weight = exp((double)own[x->dim + column] + (double)place[column]);
            sum += weight * (double)own[column];
            all += weight;
        }
        key[column] = (float)(sum / all);
    }
    if (keys->rounds) kin_ref_round(key, x->dim);
}

// Sets which of n tokens are seen if pools are chosen. scores // (n), scratch
static void see_pools(const kin_ref_indexer *x, const float *q, const float *weights, const kin_ref_indexer_keys *keys, int n,
                      float *scores, bool *seen) {
    const int n_pools = n / x->n_pool;
    kin_ref_indexer_see(x, q, weights, keys, n_pools, scores, seen);
    for (int t = n - 1; t >= 0; t--) seen[t] = t / x->n_pool >= n_pools || seen[t / x->n_pool];
}

void kin_ref_indexer_choose(const kin_ref_indexer *x, const kin_ref_rope *rope, const float *cos_sin, int pos, const float *low,
                            const float *normed, const kin_ref_indexer_keys *keys, float *scratch, bool *seen) {
    float *q = scratch, *weights = q + x->n_head * x->dim, *of_norm = weights + x->n_head, *scores = of_norm + 2 * x->dim;
    float *key = keys->keys + (size_t)pos * keys->apart + (x->n_pool > 0 ? x->dim : 0);
    kin_ref_matvec(&x->k, normed, key);
    norm_key(x, of_norm, key);
    rotate(x, rope, cos_sin, key);
    if (x->n_pool > 0) kin_ref_matvec(&x->gate, normed, key + x->dim);
    if (keys->rounds) kin_ref_round(key, x->n_pool > 0 ? 2 * x->dim : x->dim);
    if (x->n_pool > 0 && (pos + 1) % x->n_pool == 0) make_pool(x, keys, pos / x->n_pool, of_norm);
    kin_ref_matvec(&x->q, low, q);
    for (int h = 0; h < x->n_head; h++) rotate(x, rope, cos_sin, q + h * x->dim);
    kin_ref_matvec(&x->weights, normed, weights);
    if (x->n_pool > 0)
        see_pools(x, q, weights, keys, pos + 1, scores, seen);
    else
        kin_ref_indexer_see(x, q, weights, keys, pos + 1, scores, seen);
}
