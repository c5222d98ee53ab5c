// Types whose weights are entries of a grid (kernels/grids.h), for back-ends whose vectors can be tables of 64 bytes: entries of
// 64 indices are found at once. A single row is multiplied while weights are unpacked.
//
// An entry is two bytes of fields: in IQ3 four fields of 4 bits, in the others eight of 2 bits. The bytes of 64 indices are two
// planes. A byte's copies, shifted to one field each, are 4 columns of a row; with the sign as one more bit they select a weight
// in a table.
#include "kernels/simd/block.h"

#ifdef SIMD_PERMUTES

#include "kernels/simd/grid_block.h"

enum { N_AT_ONCE = 4 }; // vectors of 64 indices: 4 indices of 16 rows each

// ---- orders of bytes

// clang-format off
#define EACH_ROW(X, a) X(a, 0), X(a, 1), X(a, 2), X(a, 3), X(a, 4), X(a, 5), X(a, 6), X(a, 7), \
    X(a, 8), X(a, 9), X(a, 10), X(a, 11), X(a, 12), X(a, 13), X(a, 14), X(a, 15)
#define FOUR_TIMES(at) at, at, at, at
#define TWO_OF_BOTH(at) at, at, 64 + (at), 64 + (at)
#define ONE_PLANE(i, row) FOUR_TIMES(16 * (i) + (row))
#define TWO_PLANES(i, row) TWO_OF_BOTH(16 * (i) + (row))
#define EACH_INDEX(order) {{EACH_ROW(order, 0)}, {EACH_ROW(order, 1)}, {EACH_ROW(order, 2)}, {EACH_ROW(order, 3)}}
// clang-format on

// Byte 16 i + row of a plane, or of two, copied to the 4 columns of each row.
static const uint8_t copy_one[4][64] = EACH_INDEX(ONE_PLANE), copy_two[4][64] = EACH_INDEX(TWO_PLANES);

// Bits at which the fields of copies begin, within 8 bytes.
#define EACH_EIGHT(...)                                                                                                          \
    { __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__ }
static const uint8_t fields_of_2[64] = EACH_EIGHT(0, 2, 4, 6, 32, 34, 36, 38);
static const uint8_t fields_of_4[64] = EACH_EIGHT(0, 4, 16, 20, 32, 36, 48, 52);

SIMD_INLINE vb copies(vb plane, const int i) { return vb_permute(plane, vb_load(copy_one[i])); }

// ---- bytes of entries

SIMD_INLINE void find_8(const uint8_t *plane, const vb *index, vb *to) {
    const vb a = vb_load(plane), b = vb_load(plane + 64), c = vb_load(plane + 128), d = vb_load(plane + 192);
    for (int v = 0; v < N_AT_ONCE; v++)
        to[v] = vb_choose(vb_permute_2(a, b, index[v]), vb_permute_2(c, d, index[v]), index[v], 7);
}

SIMD_INLINE void choose_by(const vb *first, const vb *second, const vb *high, const int bit, vb *to) {
    for (int v = 0; v < N_AT_ONCE; v++) to[v] = vb_choose(first[v], second[v], high[v], bit);
}

SIMD_INLINE void find_9(const uint8_t *plane, const vb *index, const vb *high, vb *to) {
    vb first[N_AT_ONCE], second[N_AT_ONCE];
    find_8(plane, index, first);
    find_8(plane + 256, index, second);
    choose_by(first, second, high, 0, to);
}

SIMD_INLINE void find_10(const uint8_t *plane, const vb *index, const vb *high, vb *to) {
    vb first[N_AT_ONCE], second[N_AT_ONCE];
    find_9(plane, index, high, first);
    find_9(plane + 512, index, high, second);
    choose_by(first, second, high, 1, to);
}

SIMD_INLINE void find_11(const uint8_t *plane, const vb *index, const vb *high, vb *to) {
    vb first[N_AT_ONCE], second[N_AT_ONCE];
    find_10(plane, index, high, first);
    find_10(plane + 1024, index, high, second);
    choose_by(first, second, high, 2, to);
}

// Finds a byte of the entries of 4 vectors of indices: their low 8 bits, and the others in the lowest bits of `high`.
SIMD_INLINE void find(const uint8_t *plane, const int bits, const vb *index, const vb *high, vb *to) {
    if (bits == 8) find_8(plane, index, to);
    if (bits == 9) find_9(plane, index, high, to);
    if (bits == 10) find_10(plane, index, high, to);
    if (bits == 11) find_11(plane, index, high, to);
}

// ---- signs

// Returns the byte 3 of each lane of four vectors // [4][row]
SIMD_INLINE vb last_bytes(const vb *v) {
#define LAST(i, row) 4 * (row) + 3
#define LAST_2(i, row) 64 + 4 * (row) + 3
    static const uint8_t order[64] = {EACH_ROW(LAST, 0), EACH_ROW(LAST_2, 0)};
#define HALF(i, row) 16 * (i) + (row)
#define HALF_2(i, row) 64 + 16 * (i) + (row)
    static const uint8_t halves[64] = {EACH_ROW(HALF, 0), EACH_ROW(HALF, 1), EACH_ROW(HALF_2, 0), EACH_ROW(HALF_2, 1)};
    const vb o = vb_load(order);
    return vb_permute_2(vb_permute_2(v[0], v[1], o), vb_permute_2(v[2], v[3], o), vb_load(halves));
}

// Loads signs of which 7 of 8 are stored, with the eighth ones. Returns the stored bytes 3 of odd vectors // [4][row]
SIMD_INLINE vb complete_signs(const kin_panel_signs *s, vb *signs) {
#define SWAP_2(i, row) 4 * (row) + 2, 4 * (row) + 3, 4 * (row), 4 * (row) + 1
#define SWAP_1(i, row) 4 * (row) + 1, 4 * (row), 4 * (row) + 3, 4 * (row) + 2
    static const uint8_t swap_2[64] = {EACH_ROW(SWAP_2, 0)}, swap_1[64] = {EACH_ROW(SWAP_1, 0)};
    static const uint8_t last[64] = EACH_EIGHT(0, 0, 0, 255, 0, 0, 0, 255);
    vb odd[4];
    for (int i = 0; i < 4; i++) {
        const vb low = vb_load(s->q[2 * i]);
        odd[i] = vb_load(s->q[2 * i + 1]);
        vb x = vb_xor(low, vb_merge(odd[i], vb_set1(0), vb_load(last)));
        x = vb_xor(x, vb_permute(x, vb_load(swap_2)));
        x = vb_xor(x, vb_permute(x, vb_load(swap_1)));
        signs[2 * i] = low;
        signs[2 * i + 1] = vb_merge(odd[i], x, vb_load(last));
    }
    return last_bytes(odd);
}

// ---- weights

// Weights by index: the lowest 3 bits are a field (of 2 bits and a bit without meaning, or 3 bits), and one of the bits 3, 4 or
// 5, for which there is a table each, is set if the weight is negative. Other bits have no meaning.
typedef uint8_t tables[3][64];

// clang-format off
#define TABLES(positive, negative) { \
    {positive, negative, positive, negative, positive, negative, positive, negative}, \
    {positive, positive, negative, negative, positive, positive, negative, negative}, \
    {positive, positive, positive, positive, negative, negative, negative, negative}}
#define EIGHT(X, zero) X(zero, 0), X(zero, 1), X(zero, 2), X(zero, 3), X(zero, 4), X(zero, 5), X(zero, 6), X(zero, 7)
#define VALUE_IQ2(i) ((i) % 4 == 0 ? 8 : (i) % 4 == 1 ? 25 : 43)
#define PLUS_IQ3_XXS(zero, i) zero + KIN_GRID_IQ3_XXS(i)
#define MINUS_IQ3_XXS(zero, i) zero - KIN_GRID_IQ3_XXS(i)
#define PLUS_IQ3_S(zero, i) zero + KIN_GRID_IQ3_S(i)
#define MINUS_IQ3_S(zero, i) zero - KIN_GRID_IQ3_S(i)
#define PLUS_IQ2(zero, i) zero + VALUE_IQ2(i)
#define MINUS_IQ2(zero, i) zero - VALUE_IQ2(i)
#define PLUS_IQ1(zero, i) zero + 8 * ((i) % 4 % 3 - 1) + 1
#define MINUS_IQ1(zero, i) zero + 8 * ((i) % 4 % 3 - 1) - 1
#define TABLES_OF(type, zero) TABLES(EIGHT(PLUS_##type, zero), EIGHT(MINUS_##type, zero))
// clang-format on
static const tables table_iq3_xxs = TABLES_OF(IQ3_XXS, ZERO_IQ3_XXS), table_iq3_s = TABLES_OF(IQ3_S, ZERO_IQ3_S);
static const tables table_iq2 = TABLES_OF(IQ2, ZERO_IQ2), table_iq1 = TABLES_OF(IQ1, ZERO_IQ1);

// Returns weights of copied fields. Bit g of `signs` is theirs.
SIMD_INLINE vb weights(vb copied, const uint8_t *fields, vb signs, const int g, const tables t) {
    const int bit = g < 3 ? g + 3 : g < 6 ? g : g - 3;
    if (g < 3) signs = vb_shl(signs, 3);
    if (g >= 6) signs = vb_shr(signs, 3);
    return vb_permute(vb_load(t[bit - 3]), vb_merge(vb_fields(copied, vb_load(fields)), signs, vb_set1((uint8_t)(1 << bit))));
}

// The destination of unpacked weights: they are stored in e or, if e is NULL, multiplied with a row of activations.
typedef struct target {
    kin_block *e;
    const kin_act *a;
    const int8_t (*scale)[16];
    int zero;
    bool halves; // 16 columns share a scale, otherwise 32
} target;

// Begins the sum of the columns from 16 h on that share a scale.
SIMD_INLINE vs begin(const target *t, const int h) {
    return t->e ? vs_zero() : vi_set1(-t->zero * (t->a->sum[h] + (t->halves ? 0 : t->a->sum[h + 1])));
}

SIMD_INLINE void put(const target *t, const int k, vb w, vs *part) {
    if (t->e)
        vb_store(t->e->q[k], w);
    else
        *part = vs_dot(*part, w, t->a->q + 4 * k);
}

SIMD_INLINE void finish(const target *t, const int h, vs part, vi *sum) {
    if (!t->e) *sum = vi_add_scaled(*sum, part, vscale_load(t->scale[t->halves ? h : h / 2]));
}

typedef struct grid {
    const uint8_t *plane[2];
    int bits;
} grid;

// Unpacks 64 columns from 16 b on: 4 vectors of indices of 4 columns.
SIMD_INLINE void two_groups(const grid x, const vb *index, const vb *high, const vb *signs, const tables table, const int b,
                            const target *t, vi *sum) {
    vb low[N_AT_ONCE], top[N_AT_ONCE];
    find(x.plane[0], x.bits, index, high, low);
    find(x.plane[1], x.bits, index, high, top);
#pragma GCC unroll 2
    for (int g = 2 * b; g < 2 * b + 2; g++) {
        vs part = begin(t, 2 * g);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            const int v = g % 2 * 2 + j / 4;
            const vb copied = vb_permute_2(low[v], top[v], vb_load(copy_two[j % 4]));
            put(t, 8 * g + j, weights(copied, fields_of_4, signs[j], g, table), &part);
        }
        finish(t, 2 * g, part, sum);
    }
}

// Unpacks 128 columns: 4 vectors of indices of 8 columns. is_iq1: signs[v] have the bit 3 of each index, otherwise bit g of
// signs[j] is that of 4 columns.
SIMD_INLINE void four_groups(const grid x, const vb *index, const vb *high, const vb *signs, const bool is_iq1,
                             const tables table, const int b, const target *t, vi *sum) {
    vb low[N_AT_ONCE], top[N_AT_ONCE];
    find(x.plane[0], x.bits, index, high, low);
    find(x.plane[1], x.bits, index, high, top);
#pragma GCC unroll 4
    for (int g = 4 * b; g < 4 * b + 4; g++) {
        vs part = begin(t, 2 * g);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const vb one = is_iq1 ? copies(signs[g % 4], i) : signs[2 * i], two = is_iq1 ? one : signs[2 * i + 1];
            const int bit = is_iq1 ? 3 : g;
            put(t, 8 * g + 2 * i, weights(copies(low[g % 4], i), fields_of_2, one, bit, table), &part);
            put(t, 8 * g + 2 * i + 1, weights(copies(top[g % 4], i), fields_of_2, two, bit, table), &part);
            if (i == 1 && t->halves) {
                finish(t, 2 * g, part, sum);
                part = begin(t, 2 * g + 1);
            }
        }
        finish(t, 2 * g + t->halves, part, sum);
    }
}

// ---- types

// clang-format off
#define EACH_LANE(X) {X(0), X(1), X(2), X(3)}
#define ALL_OF(from) {EACH_ROW(FROM, from), EACH_ROW(FROM, from), EACH_ROW(FROM, from), EACH_ROW(FROM, from)}
#define FROM(from, row) 16 * (from) + (row)
#define SHIFTED(shift, row) 8 * ((row) % 8) + (shift)
// clang-format on

// Row bytes of one index for all four, and shifts of these to their bits.
static const uint8_t all_of[4][64] = EACH_LANE(ALL_OF);
static const uint8_t shift_0_1[64] = {EACH_ROW(SHIFTED, 0), EACH_ROW(SHIFTED, 1), EACH_ROW(SHIFTED, 2), EACH_ROW(SHIFTED, 3)};
static const uint8_t shift_4_5[64] = {EACH_ROW(SHIFTED, 4), EACH_ROW(SHIFTED, 5), EACH_ROW(SHIFTED, 6), EACH_ROW(SHIFTED, 7)};
static const uint8_t shift_0_2[64] = {EACH_ROW(SHIFTED, 0), EACH_ROW(SHIFTED, 2), EACH_ROW(SHIFTED, 4), EACH_ROW(SHIFTED, 6)};
static const uint8_t shift_0_4[64] = {EACH_ROW(SHIFTED, 0), EACH_ROW(SHIFTED, 4), EACH_ROW(SHIFTED, 0), EACH_ROW(SHIFTED, 4)};

#define GRID(name, bits)                                                                                                         \
    { {kin_grid_bytes_##name[0], kin_grid_bytes_##name[1]}, bits }

SIMD_INLINE void load_4(const uint8_t (*bytes)[16], vb *to) {
    for (int v = 0; v < N_AT_ONCE; v++) to[v] = vb_load(bytes[4 * v]);
}

SIMD_INLINE vf iq3_xxs(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    const kin_panel_iq3_xxs *p = (const kin_panel_iq3_xxs *)panel;
    const grid x = GRID(iq3_xxs, 8);
    vb signs[8], index[N_AT_ONCE];
    uint8_t nibbles[4][16];
    vb_store(nibbles, complete_signs(&p->signs, signs));
    odd_scales(nibbles, 4, scale);
    t.zero = ZERO_IQ3_XXS;
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++) {
        load_4(p->index + 16 * b, index);
        two_groups(x, index, index, signs, table_iq3_xxs, b, &t, sum);
    }
    return load_d(p->d, 0.25f);
}

SIMD_INLINE vf iq3_s(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    const kin_panel_iq3_s *p = (const kin_panel_iq3_s *)panel;
    const grid x = GRID(iq3_s, 9);
    vb signs[8], index[N_AT_ONCE], high[N_AT_ONCE];
    for (int j = 0; j < 8; j++) signs[j] = vb_load(p->signs.q[j]);
    odd_scales(p->scale, 4, scale);
    t.zero = ZERO_IQ3_S;
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++) {
        load_4(p->index + 16 * b, index);
        for (int v = 0; v < N_AT_ONCE; v++) {
            const vb group = vb_permute(vb_load(p->high[b / 2 * 4]), vb_load(all_of[b % 2 * 2 + v / 2]));
            high[v] = vb_fields(group, vb_load(v % 2 ? shift_4_5 : shift_0_1));
        }
        two_groups(x, index, high, signs, table_iq3_s, b, &t, sum);
    }
    return load_d(p->d, 1);
}

SIMD_INLINE vf iq2_xxs(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    const kin_panel_iq2_xxs *p = (const kin_panel_iq2_xxs *)panel;
    const grid x = GRID(iq2_xxs, 8);
    vb signs[8], index[N_AT_ONCE];
    uint8_t nibbles[4][16];
    vb_store(nibbles, complete_signs(&p->signs, signs));
    odd_scales(nibbles, 4, scale);
    t.zero = ZERO_IQ2;
#pragma GCC unroll 2
    for (int b = 0; b < 2; b++) {
        load_4(p->index + 16 * b, index);
        four_groups(x, index, index, signs, false, table_iq2, b, &t, sum);
    }
    return load_d(p->d, 0.125f);
}

SIMD_INLINE vf iq2_xs(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    const kin_panel_iq2_xs *p = (const kin_panel_iq2_xs *)panel;
    const grid x = GRID(iq2_xs, 9);
    vb signs[8], index[N_AT_ONCE], high[N_AT_ONCE];
    const vb ninth = complete_signs(&p->signs, signs);
    odd_scales(p->scale, 8, scale);
    t.zero = ZERO_IQ2;
    t.halves = true;
#pragma GCC unroll 2
    for (int b = 0; b < 2; b++) {
        load_4(p->index + 16 * b, index);
        for (int v = 0; v < N_AT_ONCE; v++) high[v] = vb_shr(ninth, 4 * b + v);
        four_groups(x, index, high, signs, false, table_iq2, b, &t, sum);
    }
    return load_d(p->d, 0.125f);
}

SIMD_INLINE vf iq2_s(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    const kin_panel_iq2_s *p = (const kin_panel_iq2_s *)panel;
    const grid x = GRID(iq2_s, 10);
    vb signs[8], index[N_AT_ONCE], high[N_AT_ONCE];
    for (int j = 0; j < 8; j++) signs[j] = vb_load(p->signs.q[j]);
    odd_scales(p->scale, 8, scale);
    t.zero = ZERO_IQ2;
    t.halves = true;
#pragma GCC unroll 2
    for (int b = 0; b < 2; b++) {
        load_4(p->index + 16 * b, index);
        for (int v = 0; v < N_AT_ONCE; v++)
            high[v] = vb_fields(vb_permute(vb_load(p->high[4 * b]), vb_load(all_of[v])), vb_load(shift_0_2));
        four_groups(x, index, high, signs, false, table_iq2, b, &t, sum);
    }
    return load_d(p->d, 0.125f);
}

SIMD_INLINE vf iq1_s(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
    // A word has 3 bits of each of 4 indices. Its upper byte is copied for the sign.
#define ORDER(half)                                                                                                              \
    { EACH_ROW(OF_##half, 0), EACH_ROW(OF_##half, 1), EACH_ROW(OF_##half, 2), EACH_ROW(OF_##half, 3) }
#define AT(half, i, row) 64 * ((i) / 2) + 32 * (half) + 8 * ((row) / 4) + 4 * ((i) % 2) + (row) % 4
#define OF_0(i, row) AT(0, i, row)
#define OF_1(i, row) AT(1, i, row)
#define TOP_0(i, row) 2 * (row) + 1
#define TOP_1(i, row) 32 + 2 * (row) + 1
    static const uint8_t first[64] = EACH_EIGHT(0, 16, 32, 48, 3, 19, 35, 51),
                         second[64] = EACH_EIGHT(6, 22, 38, 54, 9, 25, 41, 57);
    static const uint8_t order[2][64] = {ORDER(0), ORDER(1)};
    static const uint8_t top[2][64] = {{EACH_ROW(TOP_0, 0), EACH_ROW(TOP_0, 1), EACH_ROW(TOP_0, 2), EACH_ROW(TOP_0, 3)},
                                       {EACH_ROW(TOP_1, 0), EACH_ROW(TOP_1, 1), EACH_ROW(TOP_1, 2), EACH_ROW(TOP_1, 3)}};
    const kin_panel_iq1_s *p = (const kin_panel_iq1_s *)panel;
    const grid x = GRID(iq1, 11);
    vb index[N_AT_ONCE], high[N_AT_ONCE], delta[N_AT_ONCE];
    scales_iq1_s(p, scale);
    t.zero = ZERO_IQ1;
#pragma GCC unroll 2
    for (int b = 0; b < 2; b++) {
        load_4(p->index + 16 * b, index);
        for (int v = 0; v < N_AT_ONCE; v++) {
            const vb words = vb_load(p->high[4 * b + v / 2 * 2]);
            high[v] = vb_permute_2(vb_fields(words, vb_load(first)), vb_fields(words, vb_load(second)), vb_load(order[v % 2]));
            delta[v] = vb_shr(vb_permute(words, vb_load(top[v % 2])), 4);
        }
        four_groups(x, index, high, delta, true, table_iq1, b, &t, sum);
    }
    return load_d(p->d, 0.125f);
}

SIMD_INLINE vf iq1_m(const uint8_t *panel, int8_t (*scale)[16], target t, vi *sum) {
#define PAIR_0(i, row) 16 * ((i) / 2) + (row)
#define PAIR_1(i, row) 32 + 16 * ((i) / 2) + (row)
    static const uint8_t pair[2][64] = {{EACH_ROW(PAIR_0, 0), EACH_ROW(PAIR_0, 1), EACH_ROW(PAIR_0, 2), EACH_ROW(PAIR_0, 3)},
                                        {EACH_ROW(PAIR_1, 0), EACH_ROW(PAIR_1, 1), EACH_ROW(PAIR_1, 2), EACH_ROW(PAIR_1, 3)}};
    const kin_panel_iq1_m *p = (const kin_panel_iq1_m *)panel;
    const grid x = GRID(iq1, 11);
    vb index[N_AT_ONCE], high[N_AT_ONCE];
    const vf d = scales_iq1_m(p, scale);
    t.zero = ZERO_IQ1;
    t.halves = true;
#pragma GCC unroll 2
    for (int b = 0; b < 2; b++) {
        load_4(p->index + 16 * b, index);
        for (int v = 0; v < N_AT_ONCE; v++) {
            const vb nibbles = vb_permute(vb_load(p->high[8 * b + v / 2 * 4]), vb_load(pair[v % 2]));
            high[v] = vb_fields(nibbles, vb_load(shift_0_4));
        }
        four_groups(x, index, high, high, true, table_iq1, b, &t, sum);
    }
    return d;
}

// clang-format off
#define FUNCTIONS(type, zero, halves) \
    static void unpack_##type(const uint8_t *panel, int columns, kin_block *e) { \
        vi unused = vi_zero(); \
        (void)columns; \
        vf_store(e->d, type(panel, e->scale, (target){.e = e}, &unused)); \
        mins(e, zero, halves); \
    } \
    static void fused_##type(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16]) { \
        int8_t scale[16][16]; \
        vi sum = vi_zero(); \
        (void)columns; \
        const vf d = type(panel, scale, (target){.a = a, .scale = scale}, &sum); \
        vf_store(f[0], vf_add(vf_load(f[0]), vf_mul(vf_set1(a->d[0]), vf_mul(d, vf_from_vi(sum))))); \
    }
// clang-format on
FUNCTIONS(iq3_xxs, ZERO_IQ3_XXS, false)
FUNCTIONS(iq3_s, ZERO_IQ3_S, false)
FUNCTIONS(iq2_xxs, ZERO_IQ2, false)
FUNCTIONS(iq2_xs, ZERO_IQ2, true)
FUNCTIONS(iq2_s, ZERO_IQ2, true)
FUNCTIONS(iq1_s, ZERO_IQ1, false)
FUNCTIONS(iq1_m, ZERO_IQ1, true)

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

kin_fused SIMD_FN(kin_fused_grid_of)(int type) {
    switch (type) {
    case KIN_TYPE_IQ3_XXS: return fused_iq3_xxs;
    case KIN_TYPE_IQ3_S: return fused_iq3_s;
    case KIN_TYPE_IQ2_XXS: return fused_iq2_xxs;
    case KIN_TYPE_IQ2_XS: return fused_iq2_xs;
    case KIN_TYPE_IQ2_S: return fused_iq2_s;
    case KIN_TYPE_IQ1_S: return fused_iq1_s;
    case KIN_TYPE_IQ1_M: return fused_iq1_m;
    default: return NULL;
    }
}

#endif
