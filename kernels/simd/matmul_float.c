// Products of float matrices, as stored in the file, with float activations.
//
// Lanes are 16 consecutive columns: a result is 16 chains of additions over the groups of columns in order, then vf_sum. Several
// matrix rows are multiplied with several activation rows at once, so that loaded values are reused.
#include <string.h>

#include "kernels/panel.h"
#include "kernels/simd/backend.h"

enum {
    TILE = SIMD_ROWS / 2, // matrix rows and activation rows at once: TILE * TILE sums in registers
    PASS_ROWS = 64,       // activation rows per pass over the matrix: 512 KiB for 2048 columns
};

SIMD_INLINE size_t bytes_of(int type) { return type == KIN_TYPE_F32 ? 4 : 2; }

SIMD_INLINE vf load(int type, const uint8_t *p) {
    if (type == KIN_TYPE_F32) return vf_load((const float *)p);
    return type == KIN_TYPE_F16 ? vf_load_f16_normal((const uint16_t *)p) : vf_load_bf16((const uint16_t *)p);
}

// Loads the last n < 16 columns, followed by zeros.
static vf load_rest(int type, const uint8_t *p, int64_t n) {
    uint8_t rest[16 * 4] __attribute__((aligned(64))) = {0};
    memcpy(rest, p, (size_t)n * bytes_of(type));
    return load(type, rest);
}

// n_w rows of the matrix from w on, n_x rows of x -> y[row of x][row of w]
SIMD_INLINE void tile(int type, const int n_w, const int n_x, const uint8_t *w, const float *x, int64_t columns, float *y,
                      int64_t ldy) {
    const size_t bytes = bytes_of(type), row_bytes = (size_t)columns * bytes;
    vf sum[TILE][TILE];
    for (int i = 0; i < n_w; i++)
        for (int j = 0; j < n_x; j++) sum[i][j] = vf_zero();
    const int64_t whole = columns / 16 * 16;
    for (int64_t c = 0; c < whole; c += 16) {
        vf v[TILE];
        for (int j = 0; j < n_x; j++) v[j] = vf_load(x + j * columns + c);
        for (int i = 0; i < n_w; i++) {
            const uint8_t *p = w + (size_t)i * row_bytes + (size_t)c * bytes;
            __builtin_prefetch(p + TILE * row_bytes, 0, 2); // into the second level: see matmul.c
            vf row = load(type, p);
            for (int j = 0; j < n_x; j++) sum[i][j] = vf_add(sum[i][j], vf_mul(row, v[j]));
        }
    }
    if (whole < columns) {
        for (int i = 0; i < n_w; i++) {
            vf row = load_rest(type, w + (size_t)i * row_bytes + (size_t)whole * bytes, columns - whole);
            for (int j = 0; j < n_x; j++) {
                vf v = load_rest(KIN_TYPE_F32, (const uint8_t *)(x + j * columns + whole), columns - whole);
                sum[i][j] = vf_add(sum[i][j], vf_mul(row, v));
            }
        }
    }
    for (int i = 0; i < n_w; i++)
        for (int j = 0; j < n_x; j++) y[j * ldy + i] = vf_sum(sum[i][j]);
}

SIMD_INLINE void tiles(int type, const int n_w, const uint8_t *w, const float *x, int64_t n, int64_t columns, float *y,
                       int64_t ldy) {
    for (; n >= TILE; n -= TILE, x += TILE * columns, y += TILE * ldy) tile(type, n_w, TILE, w, x, columns, y, ldy);
    if (n == 1) tile(type, n_w, 1, w, x, columns, y, ldy);
#if SIMD_ROWS == 8
    if (n == 2) tile(type, n_w, 2, w, x, columns, y, ldy);
    if (n == 3) tile(type, n_w, 3, w, x, columns, y, ldy);
#endif
}

// Multiplies the rows [begin, end) of the matrix.
SIMD_INLINE void rows(int type, const kin_matrix *m, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                      int64_t end) {
    const uint8_t *w = m->data;
    const size_t row_bytes = (size_t)m->columns * bytes_of(type);
    for (int64_t i = 0; i < n; i += PASS_ROWS, x += PASS_ROWS * m->columns, y += PASS_ROWS * ldy) {
        int64_t n_x = n - i < PASS_ROWS ? n - i : PASS_ROWS, r = begin;
        for (; r + TILE <= end; r += TILE) tiles(type, TILE, w + (size_t)r * row_bytes, x, n_x, m->columns, y + r, ldy);
        for (; r < end; r++) tiles(type, 1, w + (size_t)r * row_bytes, x, n_x, m->columns, y + r, ldy);
    }
}

void SIMD_FN(kin_matmul_float)(const kin_matrix *w, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                               int64_t end) {
    switch (w->type) {
    case KIN_TYPE_F32: rows(KIN_TYPE_F32, w, x, n, y, ldy, begin, end); break;
    case KIN_TYPE_F16: rows(KIN_TYPE_F16, w, x, n, y, ldy, begin, end); break;
    default: rows(KIN_TYPE_BF16, w, x, n, y, ldy, begin, end); break;
    }
}
