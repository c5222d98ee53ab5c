#include "testkit/ref/latent.h"

#include <math.h>

#include "testkit/ref/vector.h"

// Checks the matrices of keys and values, which are two or one.
static const char *check_both(const kin_ref_latent *l) {
    if (l->kv_b.data) return kin_ref_tensor_is(&l->kv_b, 1, l->n_head * (l->k_dim + l->v_dim), l->n_latent) ? NULL : "kv_b";
    if (!kin_ref_tensor_is(&l->k_b, l->n_head, l->n_latent, l->k_dim)) return "k_b";
    return kin_ref_tensor_is(&l->v_b, l->n_head, l->v_dim, l->n_latent) ? NULL : "v_b";
}

const char *kin_ref_latent_check(const kin_ref_latent *l, int n_embd) {
    const int n_query = l->q_a.data ? l->q_a.n_rows : n_embd;
    if (l->k_dim < 1 || l->v_dim < 1 || l->n_rot < 0) return "k_dim";
    if (l->q_a.data && !kin_ref_tensor_is(&l->q_a, 1, n_query, n_embd)) return "q_a";
    if (l->q_a.data && !kin_ref_tensor_is(&l->q_norm, 1, 1, n_query)) return "q_norm";
    if (!kin_ref_tensor_is(&l->q, 1, l->n_head * (l->k_dim + l->n_rot), n_query)) return "q";
    if (!kin_ref_tensor_is(&l->kv_a, 1, l->n_latent + l->n_rot, n_embd)) return "kv_a";
    if (!kin_ref_tensor_is(&l->kv_norm, 1, 1, l->n_latent)) return "kv_norm";
    if (check_both(l)) return check_both(l);
    if (l->indexer.n_head > 0 && !l->q_a.data) return "q_a";
    if (l->indexer.n_head > 0 && l->shares_choice) return "shares_choice";
    if (kin_ref_indexer_check(&l->indexer, n_query, n_embd, l->n_rot)) return "indexer";
    return kin_ref_tensor_is(&l->out, 1, n_embd, l->n_head * l->v_dim) ? NULL : "out";
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}

// Floats of the queries' latent, and of a norm's weights.
static size_t low_floats(const kin_ref_latent *l) {
    return (size_t)max_int(l->q_a.n_rows, l->n_latent);
}

size_t kin_ref_latent_scratch_floats(const kin_ref_latent *l, int n_ctx) {
    return (size_t)l->n_head * (size_t)(l->k_dim + l->n_rot + l->v_dim) + 2 * (size_t)l->n_latent + 2 * low_floats(l) +
           (size_t)n_ctx + kin_ref_indexer_scratch_floats(&l->indexer, n_ctx);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// x = x / sqrt(mean(x^2) + eps) * weight. x // (n), scratch // (n)
static void norm(const kin_ref_tensor *weight, float eps, float *x, int n, float *scratch) {
    kin_ref_tensor_row(weight, 0, scratch);
    const double scale = 1 / sqrt(dot(x, x, n) / n + (double)eps);
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] * scale * (double)scratch[i]);
}

static void rotate(const kin_ref_latent_token *token, float *head) {
    if (token->rope) kin_ref_rope_apply(token->rope, token->cos_sin, head);
}

// Writes the token's row: its normed latent, and its common key.
static void make_row(const kin_ref_latent *l, const kin_ref_latent_token *token, const float *x, float *scratch, float *row) {
    kin_ref_matvec(&l->kv_a, x, row);
    norm(&l->kv_norm, token->eps, row, l->n_latent, scratch);
    rotate(token, row + l->n_latent);
    if (token->keys.rounds) kin_ref_round(row, l->n_latent + l->n_rot);
}

// q // (n_head, k_dim + n_rot); low, scratch // (low_floats)
static void make_queries(const kin_ref_latent *l, const kin_ref_latent_token *token, const float *x, float *low, float *scratch,
                         float *q) {
    if (l->q_a.data) {
        kin_ref_matvec(&l->q_a, x, low);
        norm(&l->q_norm, token->eps, low, l->q_a.n_rows, scratch);
    }
    kin_ref_matvec(&l->q, l->q_a.data ? low : x, q);
    for (int h = 0; h < l->n_head; h++) rotate(token, q + h * (l->k_dim + l->n_rot) + l->k_dim);
}

// query = K^T own, where K is head h's matrix of keys. own // (k_dim), query, scratch // (n_latent)
static void make_latent_query(const kin_ref_latent *l, int h, const float *own, float *scratch, float *query) {
    if (!l->kv_b.data) {
        const kin_ref_tensor k_b = kin_ref_tensor_matrix(&l->k_b, h);
        kin_ref_matvec(&k_b, own, query);
        return;
    }
    for (int j = 0; j < l->n_latent; j++) query[j] = 0;
    for (int i = 0; i < l->k_dim; i++) {
        kin_ref_tensor_row(&l->kv_b, h * (l->k_dim + l->v_dim) + i, scratch);
        for (int j = 0; j < l->n_latent; j++) query[j] += own[i] * scratch[j];
    }
}

// mean = the mean of the latents of the positions 0 to pos that are seen, weighted by the softmax of their scores.
static void attend(const kin_ref_latent *l, const kin_ref_latent_token *token, const float *latent_query,
                   const float *common_query, const float *rows, float *scores, float *mean) {
    const int pos = token->pos, width = l->n_latent + l->n_rot;
    double top = -INFINITY, sum = 0;
    for (int t = 0; t <= pos; t++) {
        if (!token->seen[t]) continue;
        const float *row = rows + (size_t)t * (size_t)width;
        const double score = dot(latent_query, row, l->n_latent) + dot(common_query, row + l->n_latent, l->n_rot);
        scores[t] = (float)(score * token->scale);
        top = fmax(top, (double)scores[t]);
    }
    for (int t = 0; t <= pos; t++) sum += token->seen[t] ? exp((double)scores[t] - top) : 0;
    for (int i = 0; i < l->n_latent; i++) {
        double all = 0;
        for (int t = 0; t <= pos; t++)
            if (token->seen[t]) all += exp((double)scores[t] - top) * (double)rows[(size_t)t * (size_t)width + (size_t)i];
        mean[i] = (float)(all / sum);
    }
}

void kin_ref_latent_step(const kin_ref_latent *l, const kin_ref_latent_token *token, const float *x, float *rows, float *scratch,
                         float *out) {
    const int n_query = l->k_dim + l->n_rot;
    float *q = scratch, *heads = q + l->n_head * n_query, *query = heads + l->n_head * l->v_dim, *mean = query + l->n_latent,
          *low = mean + l->n_latent, *weight = low + low_floats(l), *scores = weight + low_floats(l);
    make_row(l, token, x, weight, rows + (size_t)token->pos * (size_t)(l->n_latent + l->n_rot));
    make_queries(l, token, x, low, weight, q);
    for (int t = 0; t <= token->pos && !l->shares_choice; t++) token->seen[t] = true;
    if (l->indexer.n_head > 0)
        kin_ref_indexer_choose(&l->indexer, token->rope, token->cos_sin, token->pos, low, x, &token->keys,
                               scores + token->pos + 1, token->seen);
    for (int h = 0; h < l->n_head; h++) {
        const kin_ref_tensor v_b = l->kv_b.data ? kin_ref_tensor_rows(&l->kv_b, h * (l->k_dim + l->v_dim) + l->k_dim, l->v_dim)
                                                : kin_ref_tensor_matrix(&l->v_b, h);
        const float *own = q + h * n_query;
        make_latent_query(l, h, own, weight, query);
        attend(l, token, query, own + l->k_dim, rows, scores, mean);
        kin_ref_matvec(&v_b, mean, heads + h * l->v_dim);
    }
    kin_ref_matvec(&l->out, heads, out);
}
