// Stores rows of K and V into the cache's blocks.
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/simd.h"

enum { CELLS = KIN_KV_CELLS };

static uint16_t to_f16(float x) {
    uint16_t h[16];
    vf_store_f16(h, vf_set1(x));
    return h[0];
}

// Stores one head of one cell. F16: K's values of a cell are `CELLS` apart, V's are contiguous.
static void store_f16(const float *x, int dim, int cell, bool is_k, uint16_t *to) {
    uint16_t h[KIN_KV_DIM];
    for (int d = 0; d < dim; d += 16) vf_store_f16(h + d, vf_load(x + d));
    for (int d = 0; d < dim; d++) to[is_k ? d * CELLS + cell : cell * dim + d] = h[d];
}

// K: groups of four values of a cell are 4 CELLS apart; V: the values of four cells are interleaved.
static void store_q8_0(const float *x, int dim, int cell, bool is_k, int8_t *to) {
    uint16_t *scales = (uint16_t *)(to + dim * CELLS);
    for (int j = 0; j < dim; j += 32) {
        int8_t q[32];
        scales[j / 32 * CELLS + cell] = to_f16(simd_round_s8(x + j, 32, q));
        if (is_k)
            for (int d = 0; d < 32; d += 4) memcpy(to + (j + d) * CELLS + 4 * cell, q + d, 4);
        else
            for (int d = 0; d < 32; d++) to[cell / 4 * 4 * dim + 4 * (j + d) + cell % 4] = q[d];
    }
}

// The values of a cell are contiguous, and so are its scales.
static void store_by_cell(const kin_kv_layout *kv, const float *x, int cell, void *to) {
    const int dim = kv->k_dim;
    if (kv->type == KIN_TYPE_F16) {
        for (int d = 0; d < dim; d += 16) vf_store_f16((uint16_t *)to + cell * dim + d, vf_load(x + d));
        return;
    }
    int8_t *q = (int8_t *)to + cell * dim;
    uint16_t *scales = (uint16_t *)((int8_t *)to + dim * CELLS) + cell * (dim / 32);
    for (int j = 0; j < dim; j += 32) scales[j / 32] = to_f16(simd_round_s8(x + j, 32, q + j));
}

static void store_row(const kin_kv_layout *kv, const float *x, int32_t cell, bool is_k, void *cache) {
    const size_t bytes = kin_kv_block_bytes(kv, is_k);
    const int dim = is_k ? kv->k_dim : kv->v_dim;
    char *block = (char *)cache + (size_t)(cell / CELLS) * bytes;
    for (int head = 0; head < kv->n_head_kv; head++) {
        void *to = block + (size_t)head * (bytes / (size_t)kv->n_head_kv);
        const float *from = x + head * dim;
        if (is_k && kv->by_cell)
            store_by_cell(kv, from, cell % CELLS, to);
        else if (kv->type == KIN_TYPE_F16)
            store_f16(from, dim, cell % CELLS, is_k, to);
        else
            store_q8_0(from, dim, cell % CELLS, is_k, to);
    }
}

void SIMD_FN(kin_kv_store)(const kin_kv_rows *rows, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        if (rows->k) store_row(&rows->kv, rows->k_rows + i * rows->ldk, rows->cells[i], true, rows->k);
        if (rows->v) store_row(&rows->kv, rows->v_rows + i * rows->ldv, rows->cells[i], false, rows->v);
    }
}
