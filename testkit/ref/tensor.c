#include "testkit/ref/tensor.h"

#include "testkit/ref/dequant.h"
#include "testkit/ref/vector.h"

static size_t row_bytes(const kin_ref_tensor *t) {
    return (size_t)(t->n_cols / kin_ref_block_n(t->type)) * kin_ref_block_bytes(t->type);
}

bool kin_ref_tensor_is(const kin_ref_tensor *t, int n_mats, int n_rows, int n_cols) {
    const int block_n = kin_ref_block_n(t->type);
    if (!t->data || t->n_mats != n_mats || t->n_rows != n_rows || t->n_cols != n_cols) return false;
    if (block_n == 0 || n_cols % block_n != 0) return false;
    const uint64_t n_rows_all = (uint64_t)n_mats * (uint64_t)n_rows; // below 2^62
    return t->n_bytes % row_bytes(t) == 0 && t->n_bytes / row_bytes(t) == n_rows_all;
}

kin_ref_tensor kin_ref_tensor_matrix(const kin_ref_tensor *t, int i) {
    kin_ref_tensor matrix = *t;
    matrix.n_mats = 1;
    matrix.n_bytes = row_bytes(t) * (size_t)t->n_rows;
    matrix.data = t->data + matrix.n_bytes * (size_t)i;
    return matrix;
}

kin_ref_tensor kin_ref_tensor_rows(const kin_ref_tensor *t, int i, int n) {
    kin_ref_tensor rows = *t;
    rows.n_rows = n;
    rows.n_bytes = row_bytes(t) * (size_t)n;
    rows.data = t->data + row_bytes(t) * (size_t)i;
    return rows;
}

void kin_ref_tensor_row(const kin_ref_tensor *t, int i, float *out) {
    kin_ref_dequant(t->type, t->data + row_bytes(t) * (size_t)i, t->n_cols, out);
}

void kin_ref_tensor_elements(const kin_ref_tensor *t, int i, int at, int n, float *out) {
    const uint8_t *row = t->data + row_bytes(t) * (size_t)i;
    kin_ref_dequant(t->type, row + (size_t)(at / kin_ref_block_n(t->type)) * kin_ref_block_bytes(t->type), n, out);
}

int kin_ref_tensor_int(const kin_ref_tensor *t, int i, int j) {
    const uint8_t *at = t->data + 4 * ((size_t)i * (size_t)t->n_cols + (size_t)j);
    return (int)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

// Four sums, because each addition waits for the one before it.
static double dot(const float *x, const float *y, int n) {
    double a = 0, b = 0, c = 0, d = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        a += (double)x[i] * (double)y[i];
        b += (double)x[i + 1] * (double)y[i + 1];
        c += (double)x[i + 2] * (double)y[i + 2];
        d += (double)x[i + 3] * (double)y[i + 3];
    }
    for (; i < n; i++) a += (double)x[i] * (double)y[i];
    return a + b + (c + d);
}

// Processes a row in pieces, so that no row-sized buffer is needed.
static float dot_row(int type, const uint8_t *row, const float *x, int n) {
    const size_t piece_bytes = KIN_REF_BLOCK_MAX / (size_t)kin_ref_block_n(type) * kin_ref_block_bytes(type);
    float piece[KIN_REF_BLOCK_MAX];
    double sum = 0;
    for (int at = 0; at < n; at += KIN_REF_BLOCK_MAX, row += piece_bytes) {
        const int n_piece = n - at < KIN_REF_BLOCK_MAX ? n - at : KIN_REF_BLOCK_MAX;
        kin_ref_dequant(type, row, n_piece, piece);
        sum += dot(piece, x + at, n_piece);
    }
    return (float)sum;
}

void kin_ref_matvec(const kin_ref_tensor *w, const float *x, float *out) {
    for (int i = 0; i < w->n_rows; i++) out[i] = dot_row(w->type, w->data + row_bytes(w) * (size_t)i, x, w->n_cols);
}

void kin_ref_tensor_norm(const kin_ref_tensor *w, float eps, float *x, float *scratch) {
    kin_ref_tensor_row(w, 0, scratch);
    kin_ref_unit(x, w->n_cols, (double)eps);
    for (int i = 0; i < w->n_cols; i++) x[i] *= scratch[i];
}
