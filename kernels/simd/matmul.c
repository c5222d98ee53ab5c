// Products of packed quantized matrices with rounded activations.
//
// A packed matrix is panels of 16 rows, one row per lane, so no product needs a sum over lanes. A panel is blocks of 256 columns.
// Each block's weights are unpacked to bytes in the first-level cache, with their scales; then every activation row of the batch
// is multiplied with them. So a row's float additions run over the blocks in order, independent of the other rows.
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/block.h"

enum {
    TILE_ROWS = 128, // activation rows per unpacked panel: 320 KiB for 2048 columns
};

// The functions of a type.
typedef struct kernel {
    kin_unpack unpack;
    const kin_dot *dots;
    kin_fused fused;     // for all rows of a tile; NULL: weights are unpacked first
    kin_fused_rows rows; // the same for 16 rows as in the file; NULL: they are packed first
    size_t block_bytes;
} kernel;

// Weights that are read consecutively: up to `end`, then from `next` on, unless that is NULL.
typedef struct run {
    const uint8_t *end, *next;
} run;

#ifdef __wasm__
static const bool has_prefetch = false; // an empty loop would remain
#else
static const bool has_prefetch = true;
#endif

// Prefetch into the second-level cache: a whole block exceeds the first level's buffers, and loads wait behind it (2 cores of Zen
// 4: 25 GB/s; into the first level 16; without prefetch 19 to 23). Prefetching half a block before unpacking and half after it is
// 3 % faster still. The processor's own prefetcher stops while unpacking pauses.
SIMD_INLINE void fetch(run r, const uint8_t *block, size_t begin, size_t end) {
    if (!has_prefetch) return;
    if (block >= r.end) {
        if (!r.next) return;
        block = r.next + (block - r.end);
    }
    for (size_t i = begin; i < end; i += 64) __builtin_prefetch(block + i, 0, 2);
}

SIMD_INLINE void multiply_block(kernel k, const kin_block *e, int columns, const kin_act *act, int64_t n, float (*f)[16]) {
    int64_t i = 0;
    for (; i + SIMD_ROWS <= n; i += SIMD_ROWS) k.dots[SIMD_ROWS - 1](e, columns, act + i, f + i);
    if (i < n) k.dots[n - i - 1](e, columns, act + i, f + i);
}

// Multiplies n rows of act, which has n_act, with one panel.
static void tile(kernel k, const uint8_t *panel, run weights, int64_t columns, const kin_act *act, int64_t n_act, int64_t n,
                 float *y, int64_t ldy) {
    float f[TILE_ROWS][16];
    kin_block e;
    for (int64_t i = 0; i < n; i++) vf_store(f[i], vf_zero());
    for (int64_t c = 0; c < columns; c += KIN_ACT_COLUMNS, panel += k.block_bytes, act += n_act) {
        int left = columns - c < KIN_ACT_COLUMNS ? (int)(columns - c) : KIN_ACT_COLUMNS;
        const uint8_t *ahead = panel + 2 * k.block_bytes;
        size_t at_once = k.fused ? k.block_bytes : k.block_bytes / 2 / 64 * 64;
        fetch(weights, ahead, 0, at_once);
        if (k.fused) {
            k.fused(panel, left, act, f);
            continue;
        }
        k.unpack(panel, left, &e);
        fetch(weights, ahead, at_once, k.block_bytes);
        multiply_block(k, &e, left, act, n, f);
    }
    for (int64_t i = 0; i < n; i++) vf_store(y + i * ldy, vf_load(f[i]));
}

// Multiplies n rows of act, which has n_act, with n_w <= 16 rows as in GGUF: each block is packed first. As many bytes of the
// next 16 rows are prefetched, in the order of the file.
static void tile_as_stored(const kin_matrix *w, kernel k, const uint8_t *rows, int n_w, run weights, const kin_act *act,
                           int64_t n_act, int64_t n, float *y, int64_t ldy) {
    const size_t row_bytes = kin_panel_bytes(w->type, w->columns) / KIN_PANEL_ROWS;
    float f[TILE_ROWS][16];
    kin_block e;
    uint8_t block[KIN_PANEL_BLOCK_MOST] __attribute__((aligned(64)));
    memset(block, 0, k.block_bytes);
    const uint8_t *ahead = rows + row_bytes * KIN_PANEL_ROWS;
    for (int64_t i = 0; i < n; i++) vf_store(f[i], vf_zero());
    for (int64_t c = 0; c < w->columns; c += KIN_ACT_COLUMNS, rows += k.block_bytes / KIN_PANEL_ROWS, act += n_act) {
        const int left = w->columns - c < KIN_ACT_COLUMNS ? (int)(w->columns - c) : KIN_ACT_COLUMNS;
        fetch(weights, ahead, 0, k.block_bytes);
        ahead += k.block_bytes;
        if (k.rows && n_w == KIN_PANEL_ROWS) {
            k.rows(rows, row_bytes, left, act, f[0]);
            continue;
        }
        kin_panel_pack_block(w->type, left, n_w, rows, row_bytes, block);
        if (k.fused) {
            k.fused(block, left, act, f);
            continue;
        }
        k.unpack(block, left, &e);
        multiply_block(k, &e, left, act, n, f);
    }
    for (int64_t i = 0; i < n; i++) memcpy(y + i * ldy, f[i], (size_t)n_w * sizeof *y);
}

// Multiplies one row, the first of n_act, with two panels, alternating after each block: two streams from memory, so each
// prefetcher has twice the time.
static void two_panels(kernel k, const uint8_t *panel, const uint8_t *other, int64_t columns, const kin_act *act, int64_t n_act,
                       float *y, float *y_other) {
    float f[1][16], f_other[1][16];
    vf_store(f[0], vf_zero());
    vf_store(f_other[0], vf_zero());
    for (int64_t c = 0; c < columns; c += KIN_ACT_COLUMNS, panel += k.block_bytes, other += k.block_bytes, act += n_act) {
        int left = columns - c < KIN_ACT_COLUMNS ? (int)(columns - c) : KIN_ACT_COLUMNS;
        k.fused(panel, left, act, f);
        k.fused(other, left, act, f_other);
    }
    vf_store(y, vf_load(f[0]));
    vf_store(y_other, vf_load(f_other[0]));
}

static kernel kernel_of(int type) {
    kernel k = {
        .unpack = SIMD_FN(kin_unpack_of)(type),
        .dots = SIMD_FN(kin_dots_of)(type),
        .block_bytes = kin_panel_bytes(type, KIN_ACT_COLUMNS),
    };
    kin_assert(k.unpack && k.dots);
    return k;
}

// Multiplies whole panels.
static void packed(const kin_matrix *w, const kin_act *act, int64_t n, float *y, int64_t ldy, int64_t begin, int64_t end) {
    int variant = kin_kernels_variants[w->type];
    kernel k = kernel_of(w->type);
    size_t panel_bytes = kin_panel_bytes(w->type, w->columns);
    const uint8_t *data = w->data;
    for (int64_t i = 0; i < n; i += TILE_ROWS) {
        int64_t rows = n - i < TILE_ROWS ? n - i : TILE_ROWS;
        run weights = {data + (size_t)end * panel_bytes, i + rows == n ? w->next : NULL};
        k.fused = SIMD_FN(kin_fused_of)(w->type, rows, variant);
        float *to = y + i * ldy;
        const int64_t half = rows == 1 && k.fused && variant & KIN_VARIANT_TWO ? (end - begin) / 2 : 0;
        for (int64_t p = begin, q = begin + half; p < begin + half; p++, q++) {
            two_panels(k, data + (size_t)p * panel_bytes, data + (size_t)q * panel_bytes, w->columns, act + i, n,
                       to + p * KIN_PANEL_ROWS, to + q * KIN_PANEL_ROWS);
        }
        for (int64_t p = begin + 2 * half; p < end; p++)
            tile(k, data + (size_t)p * panel_bytes, weights, w->columns, act + i, n, rows, to + p * KIN_PANEL_ROWS, ldy);
    }
}

static void as_stored(const kin_matrix *w, const kin_act *act, int64_t n, float *y, int64_t ldy, int64_t begin, int64_t end) {
    kernel k = kernel_of(w->type);
    const size_t panel_bytes = kin_panel_bytes(w->type, w->columns);
    const uint8_t *data = w->data;
    for (int64_t i = 0; i < n; i += TILE_ROWS) {
        const int64_t rows = n - i < TILE_ROWS ? n - i : TILE_ROWS, last = end * KIN_PANEL_ROWS;
        const size_t row_bytes = panel_bytes / KIN_PANEL_ROWS;
        const run weights = {data + (size_t)(last < w->rows ? last : w->rows) * row_bytes, i + rows == n ? w->next : NULL};
        k.fused = SIMD_FN(kin_fused_of)(w->type, rows, kin_kernels_variants[w->type]);
        k.rows = SIMD_FN(kin_fused_rows_of)(w->type, rows);
        for (int64_t p = begin; p < end; p++) {
            const int64_t r = p * KIN_PANEL_ROWS, n_w = w->rows - r < KIN_PANEL_ROWS ? w->rows - r : KIN_PANEL_ROWS;
            tile_as_stored(w, k, data + (size_t)p * panel_bytes, (int)n_w, weights, act + i, n, rows, y + i * ldy + r, ldy);
        }
    }
}

void SIMD_FN(kin_matmul)(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                         int64_t end) {
    if (!kin_kernel_packs(w->type)) {
        const int64_t last = end * KIN_PANEL_ROWS;
        SIMD_FN(kin_matmul_float)(w, x, n, y, ldy, begin * KIN_PANEL_ROWS, last < w->rows ? last : w->rows);
        return;
    }
    int64_t whole = w->is_packed ? w->rows / KIN_PANEL_ROWS : begin; // the panels from here on are as stored in the file
    if (whole > end) whole = end;
    if (begin < whole) packed(w, act, n, y, ldy, begin, whole);
    if (whole < end) as_stored(w, act, n, y, ldy, whole > begin ? whole : begin, end);
}
