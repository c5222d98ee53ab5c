// Unpacks the types whose weights are entries of a grid (kernels/grids.h).
#include "kernels/simd/grid_block.h"

#ifndef SIMD_PERMUTES // otherwise see grid_permutes.c

typedef uint32_t rows_u32 __attribute__((vector_size(64)));

// ---- signs

// Copies signs of which 7 of 8 are stored, with the eighth ones; the stored byte 3 of odd vectors goes to `rest` // [4][row]
SIMD_INLINE void complete_signs(const kin_panel_signs *s, uint8_t to[8][64], uint8_t rest[4][16]) {
    for (int i = 0; i < 4; i++) {
        rows_u32 low, high;
        memcpy(&low, s->q[2 * i], sizeof low);
        memcpy(&high, s->q[2 * i + 1], sizeof high);
        const rows_u32 known = high & 0xffffff;
        const rows_u32 pairs = low ^ known, bytes = pairs ^ pairs >> 16, all = known | (bytes ^ bytes >> 8) << 24;
        store_rows(rest[i], WIDEN(rows_u8, high >> 24));
        memcpy(to[2 * i], &low, sizeof low);
        memcpy(to[2 * i + 1], &all, sizeof all);
    }
}

// ---- grids

// The entries that a block's indices stand for // [4 or 8 columns][row]
typedef struct entries {
    uint16_t index[64][16];
    uint32_t at[64][16];
} entries;

// Sets an index of each row: its low 8 bits, above them the bits `mask` of high >> shift.
SIMD_INLINE void set_index(uint16_t to[16], const uint8_t low[16], const uint8_t *high, const int shift, const int mask) {
    rows_u16 x = WIDEN(rows_u16, load_rows(low));
    if (mask) x |= WIDEN(rows_u16, load_rows(high) >> shift & (uint8_t)mask) << 8;
    memcpy(to, &x, sizeof x);
}

// Looks up n entries of 16 rows. One by one, because instructions that gather take 1.3 times as long (IQ3_XXS, AVX-512, Zen 5).
SIMD_INLINE void look_up_grid(const uint32_t *grid, const int bits, const int n, entries *e) {
    const uint32_t mask = (1 << bits) - 1;
    const uint16_t *index = e->index[0];
    uint32_t *to = e->at[0];
    for (int i = 0; i < 16 * n; i += 8) {
        uint64_t four[2];
        memcpy(four, index + i, sizeof four);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            uint32_t w = grid[four[k / 4] >> k % 4 * 16 & mask];
            __asm__("" : "+r"(w));
            to[i + k] = w;
        }
    }
}

// Stores 4 columns with their signs, bit g of `signs`. zero: already added
SIMD_INLINE void store_signed(uint8_t *q, vb w, const uint8_t *signs, const int g, const int zero) {
    vb_store(q, vb_reflect(w, vb_load(signs), g, (uint8_t)(2 * zero)));
}

SIMD_INLINE vb add_zero(vb w, const int zero) { return vb_sub(w, vb_set1((uint8_t)-zero)); }

static void unpack_iq3_xxs(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq3_xxs *p = (const kin_panel_iq3_xxs *)panel;
    uint8_t signs[8][64], nibbles[4][16];
    complete_signs(&p->signs, signs, nibbles);
    odd_scales(nibbles, 4, e->scale);
    mins(e, ZERO_IQ3_XXS, false);
    entries w;
    for (int i = 0; i < 64; i++) set_index(w.index[i], p->index[i], NULL, 0, 0);
    look_up_grid(kin_grid_iq3_xxs, 8, 64, &w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        for (int j = 0; j < 8; j++) {
            const vb q = add_zero(vb_load(w.at[8 * g + j]), ZERO_IQ3_XXS);
            store_signed(e->q[8 * g + j], q, signs[j], g, ZERO_IQ3_XXS);
        }
    }
    vf_store(e->d, load_d(p->d, 0.25f));
}

static void unpack_iq3_s(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq3_s *p = (const kin_panel_iq3_s *)panel;
    odd_scales(p->scale, 4, e->scale);
    mins(e, ZERO_IQ3_S, false);
    entries w;
    for (int g = 0; g < 8; g++)
        for (int j = 0; j < 8; j++) set_index(w.index[8 * g + j], p->index[8 * g + j], p->high[g], j, 1);
    look_up_grid(kin_grid_iq3_s, 9, 64, &w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        for (int j = 0; j < 8; j++) {
            const vb q = add_zero(vb_load(w.at[8 * g + j]), ZERO_IQ3_S);
            store_signed(e->q[8 * g + j], q, p->signs.q[j], g, ZERO_IQ3_S);
        }
    }
    vf_store(e->d, load_d(p->d, 1));
}

// Stores a block whose magnitudes are numbers of 4 bits.
SIMD_INLINE void store_iq2(const entries *w, const uint8_t signs[8][64], kin_block *e) {
    static const int8_t table[16] = {ZERO_IQ2 + 8, ZERO_IQ2 + 25, ZERO_IQ2 + 43};
    const vb mask = vb_set1(15);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < 4; i++) {
            const vb x = vb_load(w->at[4 * g + i]);
            uint8_t(*q)[64] = e->q + 8 * g + 2 * i;
            store_signed(q[0], vb_lookup(table, vb_and(x, mask)), signs[2 * i], g, ZERO_IQ2);
            store_signed(q[1], vb_lookup(table, vb_and(vb_shr(x, 4), mask)), signs[2 * i + 1], g, ZERO_IQ2);
        }
    }
}

static void unpack_iq2_xxs(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq2_xxs *p = (const kin_panel_iq2_xxs *)panel;
    uint8_t signs[8][64], nibbles[4][16];
    entries w;
    complete_signs(&p->signs, signs, nibbles);
    for (int i = 0; i < 32; i++) set_index(w.index[i], p->index[i], NULL, 0, 0);
    look_up_grid(kin_grid_iq2_xxs, 8, 32, &w);
    store_iq2(&w, signs, e);
    odd_scales(nibbles, 4, e->scale);
    mins(e, ZERO_IQ2, false);
    vf_store(e->d, load_d(p->d, 0.125f));
}

static void unpack_iq2_xs(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq2_xs *p = (const kin_panel_iq2_xs *)panel;
    uint8_t signs[8][64], ninth[4][16];
    entries w;
    complete_signs(&p->signs, signs, ninth);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++) set_index(w.index[4 * g + i], p->index[4 * g + i], ninth[i], g, 1);
    look_up_grid(kin_grid_iq2_xs, 9, 32, &w);
    store_iq2(&w, signs, e);
    odd_scales(p->scale, 8, e->scale);
    mins(e, ZERO_IQ2, true);
    vf_store(e->d, load_d(p->d, 0.125f));
}

static void unpack_iq2_s(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq2_s *p = (const kin_panel_iq2_s *)panel;
    entries w;
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++) set_index(w.index[4 * g + i], p->index[4 * g + i], p->high[g], 2 * i, 3);
    look_up_grid(kin_grid_iq2_s, 10, 32, &w);
    store_iq2(&w, p->signs.q, e);
    odd_scales(p->scale, 8, e->scale);
    mins(e, ZERO_IQ2, true);
    vf_store(e->d, load_d(p->d, 0.125f));
}

// Stores a block of 8 times -1, 0 or 1, plus 1, or minus 1 in rows where bit 11 of the index is set.
SIMD_INLINE void store_iq1(entries *w, kin_block *e) {
    static const int8_t table[16] = {ZERO_IQ1 - 7, ZERO_IQ1 + 1, ZERO_IQ1 + 9, 0, 0, 0, 0, 0,
                                     ZERO_IQ1 - 9, ZERO_IQ1 - 1, ZERO_IQ1 + 7};
    const vb mask = vb_set1(15);
    look_up_grid(kin_grid_iq1, 11, 32, w);
    for (int i = 0; i < 32; i++) {
        for (int r = 0; r < 16; r++) w->at[i][r] |= w->index[i][r] >> 11 ? 0x88888888 : 0;
        const vb x = vb_load(w->at[i]);
        vb_store(e->q[2 * i], vb_lookup(table, vb_and(x, mask)));
        vb_store(e->q[2 * i + 1], vb_lookup(table, vb_and(vb_shr(x, 4), mask)));
    }
}

static void unpack_iq1_s(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq1_s *p = (const kin_panel_iq1_s *)panel;
    entries w;
    for (int g = 0; g < 8; g++) {
        rows_u16 bits;
        memcpy(&bits, p->high[g], sizeof bits);
        for (int i = 0; i < 4; i++) {
            const rows_u16 low = WIDEN(rows_u16, load_rows(p->index[4 * g + i]));
            const rows_u16 index = low | (bits >> 3 * i & 7) << 8 | bits >> 15 << 11;
            memcpy(w.index[4 * g + i], &index, sizeof index);
        }
    }
    store_iq1(&w, e);
    scales_iq1_s(p, e->scale);
    mins(e, ZERO_IQ1, false);
    vf_store(e->d, load_d(p->d, 0.125f));
}

static void unpack_iq1_m(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq1_m *p = (const kin_panel_iq1_m *)panel;
    entries w;
    for (int i = 0; i < 32; i++) set_index(w.index[i], p->index[i], p->high[i / 2], i % 2 * 4, 15);
    store_iq1(&w, e);
    vf_store(e->d, scales_iq1_m(p, e->scale));
    mins(e, ZERO_IQ1, true);
}

kin_unpack SIMD_FN(kin_unpack_grid_of)(int type) {
    switch (type) {
    case KIN_TYPE_IQ3_XXS: return unpack_iq3_xxs;
    case KIN_TYPE_IQ3_S: return unpack_iq3_s;
    case KIN_TYPE_IQ2_XXS: return unpack_iq2_xxs;
    case KIN_TYPE_IQ2_XS: return unpack_iq2_xs;
    case KIN_TYPE_IQ2_S: return unpack_iq2_s;
    case KIN_TYPE_IQ1_S: return unpack_iq1_s;
    case KIN_TYPE_IQ1_M: return unpack_iq1_m;
    default: return NULL;
    }
}

#endif
