#include "testkit/ref/latent.h"

#include <math.h>

const char *kin_ref_latent_check(const kin_ref_latent *l, int n_embd) {
    if (!kin_ref_tensor_is(&l->q, 1, l->n_head * (l->k_dim + l->n_rot), n_embd)) return "q";
    if (!kin_ref_tensor_is(&l->kv_a, 1, l->n_latent + l->n_rot, n_embd)) return "kv_a";
    if (!kin_ref_tensor_is(&l->kv_norm, 1, 1, l->n_latent)) return "kv_norm";
    if (!kin_ref_tensor_is(&l->k_b, l->n_head, l->n_latent, l->k_dim)) return "k_b";
    if (!kin_ref_tensor_is(&l->v_b, l->n_head, l->v_dim, l->n_latent)) return "v_b";
    return kin_ref_tensor_is(&l->out, 1, n_embd, l->n_head * l->v_dim) ? NULL : "out";
}

size_t kin_ref_latent_scratch_floats(const kin_ref_latent *l, int n_ctx) {
    return (size_t)l->n_head * (size_t)(l->k_dim + l->n_rot + l->v_dim) + 2 * (size_t)l->n_latent + (size_t)n_ctx;
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// Writes the token's row: its normed latent, and its common key.
static void make_row(const kin_ref_latent *l, float eps, const float *x, float *weight, float *row) {
    kin_ref_matvec(&l->kv_a, x, row);
    kin_ref_tensor_row(&l->kv_norm, 0, weight);
    const double scale = 1 / sqrt(dot(row, row, l->n_latent) / l->n_latent + (double)eps);
    for (int i = 0; i < l->n_latent; i++) row[i] = (float)((double)row[i] * scale * (double)weight[i]);
}

// mean = the mean of the latents of positions 0 to pos, weighted by the softmax of their scores.
static void attend(const kin_ref_latent *l, const float *latent_query, const float *common_query, const float *rows, int pos,
                   float *scores, float *mean) {
    const int width = l->n_latent + l->n_rot;
    double top = -INFINITY, sum = 0;
    for (int t = 0; t <= pos; t++) {
        const float *row = rows + (size_t)t * (size_t)width;
        const double score = dot(latent_query, row, l->n_latent) + dot(common_query, row + l->n_latent, l->n_rot);
        scores[t] = (float)(score / sqrt(l->k_dim + l->n_rot));
        top = fmax(top, (double)scores[t]);
    }
    for (int t = 0; t <= pos; t++) sum += exp((double)scores[t] - top);
    for (int i = 0; i < l->n_latent; i++) {
        double all = 0;
        for (int t = 0; t <= pos; t++) all += exp((double)scores[t] - top) * (double)rows[(size_t)t * (size_t)width + (size_t)i];
        mean[i] = (float)(all / sum);
    }
}

void kin_ref_latent_step(const kin_ref_latent *l, float eps, const float *x, int pos, float *rows, float *scratch, float *out) {
    const int n_query = l->k_dim + l->n_rot;
    float *q = scratch, *heads = q + l->n_head * n_query, *query = heads + l->n_head * l->v_dim, *mean = query + l->n_latent,
          *scores = mean + l->n_latent;
    make_row(l, eps, x, query, rows + (size_t)pos * (size_t)(l->n_latent + l->n_rot));
    kin_ref_matvec(&l->q, x, q);
    for (int h = 0; h < l->n_head; h++) {
        const kin_ref_tensor k_b = kin_ref_tensor_matrix(&l->k_b, h), v_b = kin_ref_tensor_matrix(&l->v_b, h);
        const float *own = q + h * n_query;
        kin_ref_matvec(&k_b, own, query);
        attend(l, query, own + l->k_dim, rows, pos, scores, mean);
        kin_ref_matvec(&v_b, mean, heads + h * l->v_dim);
    }
    kin_ref_matvec(&l->out, heads, out);
}
