// Products of packed quantized matrices with rounded activations, and of float matrices with float activations.
//
// A packed matrix is panels of 16 rows, one row a lane, so no product needs a sum over lanes. A panel is blocks of 256 columns.
// For each block the weights are unpacked to bytes in the first-level cache, with their scales; then every activation row of the
// batch meets them: sums of integers within the block, one float addition for each block and row. So a row's float additions
// run over the blocks in order, whoever its neighbours are.
#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/simd.h"

enum {
    TILE_ROWS = 128, // activation rows that see a panel before the next one is unpacked: 320 KiB for 2048 columns
};

// A block of a panel, unpacked: 256 columns of 16 rows.
typedef struct block {
    uint8_t q[64][64];      // [4 columns][row][column]
    int8_t scale[16][16];   // [group of columns][row]
    int16_t min[8][16][2];  // [32 columns][row][16 columns]
    float d[16], d_min[16]; // KIN_ACT_256
    float d_32[8][16];      // KIN_ACT_32: [32 columns][row]
} __attribute__((aligned(64))) block;

// ---- unpacking, one function for each type

SIMD_INLINE void load_f16(const uint8_t *p, float *y) { vf_store(y, vf_load_f16((const uint16_t *)p)); }

// Nibbles: the low ones of 64 bytes are one group of 4 columns, the high ones another.
SIMD_INLINE void nibbles(const uint8_t *p, void *low, void *high) {
    vb w = vb_load(p), mask = vb_set1(15);
    vb_store(low, vb_and(w, mask));
    vb_store(high, vb_and(vb_shr(w, 4), mask));
}

// The 6-bit scales and minima of Q4_K and Q5_K (panel.h). A minimum stands for both halves of its 32 columns.
SIMD_INLINE void scales_k4(const kin_panel_scales_k4 *s, block *e) {
    const vb nibble = vb_set1(15), top = vb_set1(0x30);
    vb high = vb_load(s->high);
    uint8_t min[8][16];
    for (int i = 0; i < 2; i++) {
        vb low = vb_load(s->low[4 * i]);
        vb_store(e->scale[4 * i], vb_or(vb_and(low, nibble), vb_and(i ? vb_shl(high, 2) : vb_shl(high, 4), top)));
        vb_store(min[4 * i], vb_or(vb_and(vb_shr(low, 4), nibble), vb_and(i ? vb_shr(high, 2) : high, top)));
    }
    for (int j = 0; j < 8; j++) {
        vi m = vi_load_i8((const int8_t *)min[j]);
        vi_store((int32_t *)e->min[j], vi_add(m, vi_shl(m, 16)));
    }
}

SIMD_INLINE void unpack_q4_k(const uint8_t *data, block *e) {
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)data;
    for (int i = 0; i < 32; i++) nibbles(p->q[i], e->q[i / 8 * 16 + i % 8], e->q[i / 8 * 16 + 8 + i % 8]);
    scales_k4(&p->scales, e);
    load_f16(p->d, e->d);
    load_f16(p->d_min, e->d_min);
}

// ---- rows times a block

// How a type's blocks are computed. Constants, known where the functions below are expanded.
typedef struct shape {
    int groups; // of 4 columns that share a scale
    int most;   // the largest weight byte
    bool d_min; // minima have a factor of their own: d * (scale q) - d_min * (min); else d * (scale q - min)
} shape;

SIMD_INLINE void dot_256(const block *e, const kin_act *a, float (*f)[16], const int n, const shape s) {
    // Groups of 4 columns whose products a vs can hold.
    const int limit = SIMD_SUB_MOST ? SIMD_SUB_MOST / (2 * 127 * s.most) : s.groups;
    const int step = limit < s.groups ? limit : s.groups;
    vi sum[SIMD_ROWS], min[SIMD_ROWS];
    for (int r = 0; r < n; r++) sum[r] = min[r] = vi_zero();
    for (int g = 0; g < 64; g += s.groups) {
        vscale scale = vscale_load(e->scale[g / s.groups]);
        for (int k0 = g; k0 < g + s.groups; k0 += step) {
            vs part[SIMD_ROWS];
            for (int r = 0; r < n; r++) part[r] = vs_zero();
            for (int k = k0; k < k0 + step; k++) {
                vb w = vb_load(e->q[k]);
                for (int r = 0; r < n; r++) part[r] = vs_dot(part[r], w, a[r].q + 4 * k);
            }
            for (int r = 0; r < n; r++) sum[r] = vi_add_scaled(sum[r], part[r], scale);
        }
    }
    for (int j = 0; j < 8; j++)
        for (int r = 0; r < n; r++) min[r] = vi_add_pairs(min[r], e->min[j][0], &a[r].sum[2 * j]);
    vf d = vf_load(e->d);
    for (int r = 0; r < n; r++) {
        vf t;
        if (s.d_min)
            t = vf_sub(vf_mul(d, vf_from_vi(sum[r])), vf_mul(vf_load(e->d_min), vf_from_vi(min[r])));
        else
            t = vf_mul(d, vf_from_vi(vi_sub(sum[r], min[r])));
        vf_store(f[r], vf_add(vf_load(f[r]), vf_mul(vf_set1(a[r].d[0]), t)));
    }
}

typedef void (*dot_rows)(const block *e, const kin_act *a, float (*f)[16]);
typedef dot_rows dot_table[SIMD_ROWS + 1]; // [rows at once]

// clang-format off
#define DOT(kind, rows, ...) \
    static void kind##_##rows(const block *e, const kin_act *a, float (*f)[16]) { dot_256(e, a, f, rows, (const shape){__VA_ARGS__}); }
#if SIMD_ROWS == 8
#define DOTS(kind, ...) \
    DOT(kind, 1, __VA_ARGS__) DOT(kind, 2, __VA_ARGS__) DOT(kind, 3, __VA_ARGS__) DOT(kind, 4, __VA_ARGS__) \
    DOT(kind, 5, __VA_ARGS__) DOT(kind, 6, __VA_ARGS__) DOT(kind, 7, __VA_ARGS__) DOT(kind, 8, __VA_ARGS__) \
    static const dot_table kind = {NULL, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6, kind##_7, kind##_8};
#else
#define DOTS(kind, ...) \
    DOT(kind, 1, __VA_ARGS__) DOT(kind, 2, __VA_ARGS__) DOT(kind, 3, __VA_ARGS__) DOT(kind, 4, __VA_ARGS__) \
    static const dot_table kind = {NULL, kind##_1, kind##_2, kind##_3, kind##_4};
#endif
// clang-format on
DOTS(dot_q4_k, .groups = 8, .most = 15, .d_min = true)

// ---- panels

SIMD_INLINE void tile(const uint8_t *panel, size_t block_bytes, void (*unpack)(const uint8_t *, block *), const dot_table dots,
                      int64_t n_blocks, const kin_act *act, int64_t n_act, int64_t n, float *y, int64_t ldy) {
    float f[TILE_ROWS][16];
    block e;
    for (int64_t i = 0; i < n; i++) vf_store(f[i], vf_zero());
    for (int64_t b = 0; b < n_blocks; b++) {
        const uint8_t *data = panel + (size_t)b * block_bytes;
        // The processor's own prefetcher stops where unpacking pauses: 44 GB/s instead of 22 to 34 (2 cores of Zen 5, limit 44).
        for (size_t ahead = 0; ahead < block_bytes; ahead += 64) __builtin_prefetch(data + 2 * block_bytes + ahead);
        unpack(data, &e);
        const kin_act *a = act + b * n_act;
        int64_t i = 0;
        for (; i + SIMD_ROWS <= n; i += SIMD_ROWS) dots[SIMD_ROWS](&e, a + i, f + i);
        if (i < n) dots[n - i](&e, a + i, f + i);
    }
    for (int64_t i = 0; i < n; i++) vf_store(y + i * ldy, vf_load(f[i]));
}

SIMD_INLINE void packed(const kin_matrix *w, size_t block_bytes, void (*unpack)(const uint8_t *, block *), const dot_table dots,
                        const kin_act *act, int64_t n, float *y, int64_t ldy, int64_t begin, int64_t end) {
    int64_t n_blocks = w->columns / KIN_ACT_COLUMNS;
    for (int64_t i = 0; i < n; i += TILE_ROWS) {
        int64_t rows = n - i < TILE_ROWS ? n - i : TILE_ROWS;
        for (int64_t p = begin; p < end; p++) {
            const uint8_t *panel = (const uint8_t *)w->data + (size_t)(p * n_blocks) * block_bytes;
            tile(panel, block_bytes, unpack, dots, n_blocks, act + i, n, rows, y + i * ldy + p * KIN_PANEL_ROWS, ldy);
        }
    }
}

void SIMD_FN(kin_matmul)(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                         int64_t end) {
    (void)x;
    switch (w->type) {
    case KIN_TYPE_Q4_K: packed(w, sizeof(kin_panel_q4_k), unpack_q4_k, dot_q4_k, act, n, y, ldy, begin, end); break;
    default: kin_assert(!"a type without a kernel");
    }
}
