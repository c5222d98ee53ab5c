// Unpacks the types whose weights are entries of a grid (kernels/grids.h).
#include <string.h>

#include "kernels/grids.h"
#include "kernels/panel.h"
#include "kernels/simd/block.h"

// Weights are unsigned here: a type's zero is added to them. In a grid with magnitudes, a negative weight is 2 * zero minus the
// positive one.
enum { ZERO_IQ3_XXS = 62, ZERO_IQ3_S = 15, ZERO_IQ2 = 43, ZERO_IQ1 = 9 };

typedef struct lanes {
    uint32_t at[16];
} lanes;

// ---- signs and scales

SIMD_INLINE lanes load_lanes(const uint8_t *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

// Copies signs of which 7 of 8 are stored, with the eighth ones; the stored byte 3 of odd vectors goes to `rest` // [4][row].
SIMD_INLINE void complete_signs(const kin_panel_signs *s, uint8_t to[8][64], uint8_t rest[4][16]) {
    for (int i = 0; i < 4; i++) {
        lanes low = load_lanes(s->q[2 * i]), high = load_lanes(s->q[2 * i + 1]);
        for (int r = 0; r < 16; r++) {
            const uint32_t known = high.at[r] & 0xffffff, pairs = low.at[r] ^ known, bytes = pairs ^ pairs >> 16;
            rest[i][r] = (uint8_t)(high.at[r] >> 24);
            high.at[r] = known | (bytes ^ bytes >> 8) << 24;
        }
        memcpy(to[2 * i], &low, sizeof low);
        memcpy(to[2 * i + 1], &high, sizeof high);
    }
}

// Unpacks 2 n scales of 4 bits to odd numbers.
SIMD_INLINE void odd_scales(const uint8_t (*nibbles)[16], const int n, kin_block *e) {
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < 16; r++) {
            e->scale[2 * i][r] = (int8_t)(2 * (nibbles[i][r] & 15) + 1);
            e->scale[2 * i + 1][r] = (int8_t)(2 * (nibbles[i][r] >> 4) + 1);
        }
    }
}

// Computes the minima for this zero. halves: 16 columns share a scale, otherwise 32.
SIMD_INLINE void mins(kin_block *e, const int zero, const bool halves) {
    for (int j = 0; j < 8; j++) {
        const int8_t *first = e->scale[halves ? 2 * j : j], *second = e->scale[halves ? 2 * j + 1 : j];
        for (int r = 0; r < 16; r++) {
            e->min[j][r][0] = (int16_t)(zero * first[r]);
            e->min[j][r][1] = (int16_t)(zero * second[r]);
        }
    }
}

SIMD_INLINE void load_d(const uint8_t *p, float factor, kin_block *e) {
    vf_store(e->d, vf_mul(vf_load_f16((const uint16_t *)p), vf_set1(factor)));
}

// ---- grids

// The entries that a block's indices stand for // [4 or 8 columns][row]
typedef struct entries {
    uint16_t index[64][16];
    uint32_t at[64][16];
} entries;

// Sets an index of each row: its low 8 bits, above them the bits `mask` of high >> shift.
SIMD_INLINE void set_index(uint16_t to[16], const uint8_t low[16], const uint8_t *high, const int shift, const int mask) {
    for (int r = 0; r < 16; r++) to[r] = (uint16_t)(low[r] | (mask ? (high[r] >> shift & mask) << 8 : 0));
}

// Looks up n entries of 16 rows. One by one, because instructions that gather take 1.3 times as long (IQ3_XXS, AVX-512, Zen 5).
SIMD_INLINE void look_up(const uint32_t *grid, const int bits, const int n, entries *e) {
    const uint16_t *index = e->index[0];
    uint32_t *to = e->at[0];
    for (int i = 0; i < 16 * n; i += 8) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            uint32_t w = grid[index[i + k] & ((1 << bits) - 1)];
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
    odd_scales(nibbles, 4, e);
    mins(e, ZERO_IQ3_XXS, false);
    entries w;
    for (int i = 0; i < 64; i++) set_index(w.index[i], p->index[i], NULL, 0, 0);
    look_up(kin_grid_iq3_xxs, 8, 64, &w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        for (int j = 0; j < 8; j++) {
            const vb q = add_zero(vb_load(w.at[8 * g + j]), ZERO_IQ3_XXS);
            store_signed(e->q[8 * g + j], q, signs[j], g, ZERO_IQ3_XXS);
        }
    }
    load_d(p->d, 0.25f, e);
}

static void unpack_iq3_s(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq3_s *p = (const kin_panel_iq3_s *)panel;
    odd_scales(p->scale, 4, e);
    mins(e, ZERO_IQ3_S, false);
    entries w;
    for (int g = 0; g < 8; g++)
        for (int j = 0; j < 8; j++) set_index(w.index[8 * g + j], p->index[8 * g + j], p->high[g], j, 1);
    look_up(kin_grid_iq3_s, 9, 64, &w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        for (int j = 0; j < 8; j++) {
            const vb q = add_zero(vb_load(w.at[8 * g + j]), ZERO_IQ3_S);
            store_signed(e->q[8 * g + j], q, p->signs.q[j], g, ZERO_IQ3_S);
        }
    }
    load_d(p->d, 1, e);
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
    look_up(kin_grid_iq2_xxs, 8, 32, &w);
    store_iq2(&w, signs, e);
    odd_scales(nibbles, 4, e);
    mins(e, ZERO_IQ2, false);
    load_d(p->d, 0.125f, e);
}

static void unpack_iq2_xs(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq2_xs *p = (const kin_panel_iq2_xs *)panel;
    uint8_t signs[8][64], ninth[4][16];
    entries w;
    complete_signs(&p->signs, signs, ninth);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++) set_index(w.index[4 * g + i], p->index[4 * g + i], ninth[i], g, 1);
    look_up(kin_grid_iq2_xs, 9, 32, &w);
    store_iq2(&w, signs, e);
    odd_scales(p->scale, 8, e);
    mins(e, ZERO_IQ2, true);
    load_d(p->d, 0.125f, e);
}

static void unpack_iq2_s(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq2_s *p = (const kin_panel_iq2_s *)panel;
    entries w;
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++) set_index(w.index[4 * g + i], p->index[4 * g + i], p->high[g], 2 * i, 3);
    look_up(kin_grid_iq2_s, 10, 32, &w);
    store_iq2(&w, p->signs.q, e);
    odd_scales(p->scale, 8, e);
    mins(e, ZERO_IQ2, true);
    load_d(p->d, 0.125f, e);
}

// Stores a block of 8 times -1, 0 or 1, plus 1, or minus 1 in rows where bit 11 of the index is set.
SIMD_INLINE void store_iq1(entries *w, kin_block *e) {
    static const int8_t table[16] = {ZERO_IQ1 - 7, ZERO_IQ1 + 1, ZERO_IQ1 + 9, 0, 0, 0, 0, 0,
                                     ZERO_IQ1 - 9, ZERO_IQ1 - 1, ZERO_IQ1 + 7};
    const vb mask = vb_set1(15);
    look_up(kin_grid_iq1, 11, 32, w);
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
        uint16_t bits[16];
        memcpy(bits, p->high[g], sizeof bits);
        for (int r = 0; r < 16; r++) e->scale[g][r] = (int8_t)(2 * (bits[r] >> 12 & 7) + 1);
        for (int i = 0; i < 4; i++) {
            uint16_t *index = w.index[4 * g + i];
            const uint8_t *low = p->index[4 * g + i];
            for (int r = 0; r < 16; r++) index[r] = (uint16_t)(low[r] | (bits[r] >> 3 * i & 7) << 8 | bits[r] >> 15 << 11);
        }
    }
    store_iq1(&w, e);
    mins(e, ZERO_IQ1, false);
    load_d(p->d, 0.125f, e);
}

static void unpack_iq1_m(const uint8_t *panel, int columns, kin_block *e) {
    (void)columns;
    const kin_panel_iq1_m *p = (const kin_panel_iq1_m *)panel;
    uint16_t d[16] = {0};
    entries w;
    for (int i = 0; i < 32; i++) set_index(w.index[i], p->index[i], p->high[i / 2], i % 2 * 4, 15);
    store_iq1(&w, e);
    for (int g = 0; g < 8; g++) {
        for (int r = 0; r < 16; r++) {
            e->scale[2 * g][r] = (int8_t)(2 * (p->scale[g][r] & 7) + 1);
            e->scale[2 * g + 1][r] = (int8_t)(2 * (p->scale[g][r] >> 3 & 7) + 1);
            d[r] |= (uint16_t)(p->scale[g][r] >> 6 << 2 * g);
        }
    }
    mins(e, ZERO_IQ1, true);
    load_d((const uint8_t *)d, 0.125f, e);
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
