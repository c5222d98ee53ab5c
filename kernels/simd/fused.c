// A few activation rows times a block of the types that most models have: weights are multiplied as they are unpacked, and
// nothing is stored in between.
//
// Sums of integers are exact in any order, and floats are added as in dot.c: the bits are the same.
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/block.h"

#ifdef SIMD_FUSED

// For WebAssembly with relaxed vectors, where storing 4 KiB for a block and loading it takes longer than the products of one row.
// Four rows at a time, which are one register: engines keep small loop bodies with few values in registers, and no others. With
// eight, or with loads kept in order by hand, it is slower; what counts is that scales and minima are made for 16 rows at once.

// sum += 4 columns of 4 rows, unsigned bytes of at most 127, times x[0..3]: pairs of products, in 16 bits
SIMD_INLINE v128_t add_pairs(v128_t sum, v128_t w, const int8_t *x) { return simd_dot_u7(sum, w, wasm_v128_load32_splat(x)); }

SIMD_INLINE v128_t low_bits(v128_t w) { return w & wasm_u8x16_const_splat(15); }
SIMD_INLINE v128_t high_bits(v128_t w) { return wasm_u16x8_shr(w, 4) & wasm_u8x16_const_splat(15); }

// A byte of each of 16 rows, twice in 16 bits: how pairs of products are multiplied with it // [4 rows][8]
SIMD_INLINE void spread(v128_t to[4], v128_t bytes) {
    v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
    to[0] = wasm_i16x8_shuffle(low, low, 0, 0, 1, 1, 2, 2, 3, 3);
    to[1] = wasm_i16x8_shuffle(low, low, 4, 4, 5, 5, 6, 6, 7, 7);
    to[2] = wasm_i16x8_shuffle(high, high, 0, 0, 1, 1, 2, 2, 3, 3);
    to[3] = wasm_i16x8_shuffle(high, high, 4, 4, 5, 5, 6, 6, 7, 7);
}

// less += two bytes of each of 16 rows times x, a pair of 16 bits in each lane
SIMD_INLINE void add_mins(v128_t less[4], v128_t first, v128_t second, v128_t x) {
    v128_t low = wasm_i8x16_shuffle(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v128_t high = wasm_i8x16_shuffle(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    less[0] = simd_add_dot(less[0], wasm_i16x8_extend_low_i8x16(low), x);
    less[1] = simd_add_dot(less[1], wasm_i16x8_extend_high_i8x16(low), x);
    less[2] = simd_add_dot(less[2], wasm_i16x8_extend_low_i8x16(high), x);
    less[3] = simd_add_dot(less[3], wasm_i16x8_extend_high_i8x16(high), x);
}

// Reads a byte of each line. There is no prefetch instruction, but what is read early is there when it is wanted.
SIMD_INLINE void touch(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i += 64) (void)*(const volatile uint8_t *)(p + i);
}

// f[0..3] += d_x * t
SIMD_INLINE void add_block(float *f, float d_x, v128_t t) {
    wasm_v128_store(f, wasm_f32x4_add(wasm_v128_load(f), wasm_f32x4_mul(wasm_f32x4_splat(d_x), t)));
}

SIMD_INLINE v128_t times(v128_t d, v128_t i) { return wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(i)); }
SIMD_INLINE v128_t f16(const uint8_t *p) { return simd_f16((const uint16_t *)p); }

// ---- Q4_K

// Scales, spread, and minima as in unpack.c.
static void unpack_scales(const kin_panel_scales_k4 *s, v128_t scale[8][4], v128_t min[8]) {
    const v128_t top = wasm_u8x16_const_splat(0x30);
    for (int j = 0; j < 4; j++) {
        v128_t high = wasm_v128_load(s->high[j]), low = wasm_v128_load(s->low[j]), low_2 = wasm_v128_load(s->low[4 + j]);
        spread(scale[j], low_bits(low) | (wasm_i16x8_shl(high, 4) & top));
        spread(scale[4 + j], low_bits(low_2) | (wasm_i16x8_shl(high, 2) & top));
        min[j] = high_bits(low) | (high & top);
        min[4 + j] = high_bits(low_2) | (wasm_u16x8_shr(high, 2) & top);
    }
}

// The minima of 16 rows times the sums of x.
SIMD_INLINE void mins_q4_k(v128_t less[4], const v128_t min[8], const int16_t *sums) {
    v128_t first = wasm_i32x4_extadd_pairwise_i16x8(wasm_v128_load(sums));
    v128_t second = wasm_i32x4_extadd_pairwise_i16x8(wasm_v128_load(sums + 8));
    v128_t x = wasm_i16x8_narrow_i32x4(first, second); // of 32 columns each
    for (int r = 0; r < 4; r++) less[r] = wasm_i32x4_const_splat(0);
    add_mins(less, min[0], min[1], wasm_i32x4_shuffle(x, x, 0, 0, 0, 0));
    add_mins(less, min[2], min[3], wasm_i32x4_shuffle(x, x, 1, 1, 1, 1));
    add_mins(less, min[4], min[5], wasm_i32x4_shuffle(x, x, 2, 2, 2, 2));
    add_mins(less, min[6], min[7], wasm_i32x4_shuffle(x, x, 3, 3, 3, 3));
}

// The products of 4 rows. q, scale // [32 columns][4]: of the first of them
static v128_t rows_q4_k(const uint8_t *q, const v128_t *scale, const int8_t *x) {
    v128_t sum = wasm_i32x4_const_splat(0);
    for (int i = 0; i < 4; i++, q += 512, scale += 8, x += 64) {
        v128_t low = wasm_i32x4_const_splat(0), high = low;
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            v128_t w = wasm_v128_load(q + 64 * j);
            low = add_pairs(low, low_bits(w), x + 4 * j);
            high = add_pairs(high, high_bits(w), x + 32 + 4 * j);
        }
        sum = simd_add_dot(sum, low, scale[0]);
        sum = simd_add_dot(sum, high, scale[4]);
    }
    return sum;
}

static void fused_q4_k(const uint8_t *panel, const uint8_t *next, int columns, const kin_act *a, float (*f)[16]) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    v128_t scale[8][4], min[8], less[4];
    unpack_scales(&p->scales, scale, min);
    mins_q4_k(less, min, a->sum);
    for (int r = 0; r < 4; r++) {
        touch(next + sizeof *p / 4 * (size_t)r, sizeof *p / 4);
        v128_t sum = rows_q4_k(&p->q[0][16 * r], &scale[0][r], a->q);
        add_block(f[0] + 4 * r, a->d[0], wasm_f32x4_sub(times(f16(p->d + 8 * r), sum), times(f16(p->d_min + 8 * r), less[r])));
    }
}

// ---- Q6_K

// 4 columns of 4 rows, of each quarter of 128 columns: two bits of `high` above 4 of `low`. sum += their products
SIMD_INLINE void columns_q6_k(v128_t sum[4], const uint8_t *low, const uint8_t *high, const int8_t *x) {
    const v128_t top = wasm_u8x16_const_splat(0x30);
    v128_t first = wasm_v128_load(low), second = wasm_v128_load(low + 512), above = wasm_v128_load(high);
    sum[0] = add_pairs(sum[0], low_bits(first) | (wasm_i16x8_shl(above, 4) & top), x);
    sum[1] = add_pairs(sum[1], low_bits(second) | (wasm_i16x8_shl(above, 2) & top), x + 32);
    sum[2] = add_pairs(sum[2], high_bits(first) | (above & top), x + 64);
    sum[3] = add_pairs(sum[3], high_bits(second) | (wasm_u16x8_shr(above, 2) & top), x + 96);
}

// The products of 4 rows. low, high, scale // [16 columns][4]: of the first of them. A sum of 16 bits holds two groups of 4
// columns.
static v128_t rows_q6_k(const uint8_t *low, const uint8_t *high, const v128_t *scale, const int8_t *x, const uint8_t *next) {
    v128_t all = wasm_i32x4_const_splat(0);
    for (int h = 0; h < 2; h++, low += 1024 - 512, scale += 4 * (8 - 2), x += 128 - 32)
        for (int half = 0; half < 2; half++, scale += 4)
            for (int j = 0; j < 2; j++, low += 128, high += 128, x += 8, next += sizeof(kin_panel_q6_k) / 32) {
                touch(next, sizeof(kin_panel_q6_k) / 32);
                v128_t zero = wasm_i32x4_const_splat(0), sum[4] = {zero, zero, zero, zero};
                columns_q6_k(sum, low, high, x);
                columns_q6_k(sum, low + 64, high + 64, x + 4);
                for (int t = 0; t < 4; t++) all = simd_add_dot(all, sum[t], scale[8 * t]);
            }
    return all;
}

static void fused_q6_k(const uint8_t *panel, const uint8_t *next, int columns, const kin_act *a, float (*f)[16]) {
    (void)columns;
    const kin_panel_q6_k *p = (const kin_panel_q6_k *)panel;
    v128_t scale[16][4], less[4], x[2] = {wasm_v128_load(a->sum), wasm_v128_load(a->sum + 8)};
    for (int r = 0; r < 4; r++) less[r] = wasm_i32x4_const_splat(0);
    for (int h = 0; h < 2; h++) {
        v128_t s[8];
        for (int j = 0; j < 8; j++) spread(scale[8 * h + j], s[j] = wasm_v128_load(p->scale[8 * h + j]));
        add_mins(less, s[0], s[1], wasm_i32x4_shuffle(x[h], x[h], 0, 0, 0, 0));
        add_mins(less, s[2], s[3], wasm_i32x4_shuffle(x[h], x[h], 1, 1, 1, 1));
        add_mins(less, s[4], s[5], wasm_i32x4_shuffle(x[h], x[h], 2, 2, 2, 2));
        add_mins(less, s[6], s[7], wasm_i32x4_shuffle(x[h], x[h], 3, 3, 3, 3));
    }
    for (int r = 0; r < 4; r++) {
        v128_t sum = rows_q6_k(&p->low[0][16 * r], &p->high[0][16 * r], &scale[0][r], a->q, next + sizeof *p / 4 * (size_t)r);
        add_block(f[0] + 4 * r, a->d[0], times(f16(p->d + 8 * r), wasm_i32x4_sub(sum, wasm_i32x4_shl(less[r], 5))));
    }
}

// ---- Q8_0: 16 rows at a time, from where they lie

static void fused_q8_0(const uint8_t *panel, const uint8_t *next, int columns, const kin_act *a, float (*f)[16]) {
    const kin_panel_q8_0 *p = (const kin_panel_q8_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    vf y = vf_load(f[0]);
    for (int g = 0; g < columns / 32; g++) {
        const size_t n = sizeof *p + sizeof *scale; // of 32 columns
        vi sum = vi_zero();
        touch(next + n * (size_t)g, n);
        for (int k = 0; k < 8; k++) sum = vi_dot_s8(sum, vb_load(p[g].q[k]), a->q + 32 * g + 4 * k);
        vf d = vf_load_f16_normal((const uint16_t *)scale[g].d); // the greatest of 32 weights over 127
        y = vf_add(y, vf_mul(vf_mul(d, vf_set1(a->d[g])), vf_from_vi(sum)));
    }
    vf_store(f[0], y);
}

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n) {
    if (n > 1) return NULL;
    switch (type) {
    case KIN_TYPE_Q4_K: return fused_q4_k;
    case KIN_TYPE_Q6_K: return fused_q6_k;
    case KIN_TYPE_Q8_0: return fused_q8_0;
    default: return NULL;
    }
}

#elif defined(SIMD_FUSED_16)

// Where a vector is one register or two: 16 rows of the matrix at a time, for up to SIMD_FUSED_16 activation rows. Storing a
// block and loading it again takes as long as the products of two of them (cycles of a Zen 4 for a block of Q4_K and 1, 2, 4
// rows: with AVX-512 145, 235, 420 instead of 290, 385, 530; with AVX2 193, 285, 533 instead of 285, 379, 554). The next blocks
// are prefetched by matmul.c.

enum { FUSED_ROWS = 4 };

SIMD_INLINE vb low_bits(vb w) { return vb_and(w, vb_set1(15)); }
SIMD_INLINE vb high_bits(vb w) { return vb_and(vb_shr(w, 4), vb_set1(15)); }
SIMD_INLINE vf f16(const uint8_t *p) { return vf_load_f16((const uint16_t *)p); }

// The sum of 32 columns' activations.
SIMD_INLINE int32_t sum_of(const kin_act *a, int g) { return a->sum[2 * g] + a->sum[2 * g + 1]; }

// ---- Q4_K

// Scales and minima as in unpack.c.
SIMD_INLINE void unpack_scales(const kin_panel_scales_k4 *s, int8_t scale[8][16], int8_t min[8][16]) {
    const vb top = vb_set1(0x30), high = vb_load(s->high), low = vb_load(s->low[0]), low_2 = vb_load(s->low[4]);
    vb_store(scale[0], vb_or(low_bits(low), vb_and(vb_shl(high, 4), top)));
    vb_store(scale[4], vb_or(low_bits(low_2), vb_and(vb_shl(high, 2), top)));
    vb_store(min[0], vb_or(high_bits(low), vb_and(high, top)));
    vb_store(min[4], vb_or(high_bits(low_2), vb_and(vb_shr(high, 2), top)));
}

SIMD_INLINE void q4_k(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    (void)columns;
    const kin_panel_q4_k *p = (const kin_panel_q4_k *)panel;
    int8_t scale[8][16], min[8][16];
    vi sum[FUSED_ROWS], less[FUSED_ROWS];
    for (int r = 0; r < n; r++) sum[r] = vi_zero();
    for (int r = 0; r < n; r++) less[r] = vi_zero();
    unpack_scales(&p->scales, scale, min);
    for (int i = 0; i < 4; i++) {
        vs low[FUSED_ROWS], high[FUSED_ROWS];
        for (int r = 0; r < n; r++) low[r] = vs_zero();
        for (int r = 0; r < n; r++) high[r] = vs_zero();
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vb w = vb_load(p->q[8 * i + j]);
            for (int r = 0; r < n; r++) low[r] = vs_dot(low[r], low_bits(w), a[r].q + 64 * i + 4 * j);
            for (int r = 0; r < n; r++) high[r] = vs_dot(high[r], high_bits(w), a[r].q + 64 * i + 32 + 4 * j);
        }
        for (int r = 0; r < n; r++) {
            sum[r] = vi_add_scaled(sum[r], low[r], vscale_load(scale[2 * i]));
            sum[r] = vi_add_scaled(sum[r], high[r], vscale_load(scale[2 * i + 1]));
        }
    }
    for (int g = 0; g < 8; g++)
        for (int r = 0; r < n; r++) less[r] = vi_mul_add(less[r], vi_load_i8(min[g]), vi_set1(sum_of(a + r, g)));
    for (int r = 0; r < n; r++) {
        vf t = vf_sub(vf_mul(f16(p->d), vf_from_vi(sum[r])), vf_mul(f16(p->d_min), vf_from_vi(less[r])));
        vf_store(f[r], vf_add(vf_load(f[r]), vf_mul(vf_set1(a[r].d[0]), t)));
    }
}

// ---- Q8_0, Q4_0

// y + the sums of 32 columns, times the scales of both
SIMD_INLINE vf add_group(vf y, const kin_panel_scale_f16 *scale, const kin_act *a, int g, vi sum) {
    return vf_add(y, vf_mul(vf_mul(f16(scale[g].d), vf_set1(a->d[g])), vf_from_vi(sum)));
}

SIMD_INLINE void q8_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    const kin_panel_q8_0 *p = (const kin_panel_q8_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    vf y[FUSED_ROWS];
    for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 32; g++) {
        vi sum[FUSED_ROWS];
        for (int r = 0; r < n; r++) sum[r] = vi_set1(-SIMD_S8_BIAS * sum_of(a + r, g));
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vb w = vb_s8(vb_load(p[g].q[j]));
            for (int r = 0; r < n; r++) sum[r] = vi_dot_s8(sum[r], w, a[r].q + 32 * g + 4 * j);
        }
        for (int r = 0; r < n; r++) y[r] = add_group(y[r], scale, a + r, g, sum[r]);
    }
    for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

SIMD_INLINE void q4_0(const uint8_t *panel, int columns, const kin_act *a, float (*f)[16], const int n) {
    const kin_panel_q4_0 *p = (const kin_panel_q4_0 *)panel;
    const kin_panel_scale_f16 *scale = (const kin_panel_scale_f16 *)(p + columns / 32);
    vf y[FUSED_ROWS];
    for (int r = 0; r < n; r++) y[r] = vf_load(f[r]);
    for (int g = 0; g < columns / 32; g++) {
        vs low[FUSED_ROWS], high[FUSED_ROWS];
        for (int r = 0; r < n; r++) low[r] = vs_zero();
        for (int r = 0; r < n; r++) high[r] = vs_zero();
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vb w = vb_load(p[g].q[j]);
            for (int r = 0; r < n; r++) low[r] = vs_dot(low[r], low_bits(w), a[r].q + 32 * g + 4 * j);
            for (int r = 0; r < n; r++) high[r] = vs_dot(high[r], high_bits(w), a[r].q + 32 * g + 16 + 4 * j);
        }
        for (int r = 0; r < n; r++) {
            vi sum = vi_add(vi_from_vs(low[r]), vi_from_vs(high[r]));
            y[r] = add_group(y[r], scale, a + r, g, vi_add(vi_set1(-8 * sum_of(a + r, g)), sum));
        }
    }
    for (int r = 0; r < n; r++) vf_store(f[r], y[r]);
}

// clang-format off
#define FUSED(type, n) \
    static void fused_##type##_##n(const uint8_t *panel, const uint8_t *next, int columns, const kin_act *a, float (*f)[16]) { \
        (void)next; \
        type(panel, columns, a, f, n); \
    }
#define FUSED_EACH(type) \
    FUSED(type, 1) FUSED(type, 2) FUSED(type, 3) FUSED(type, 4) \
    static const kin_fused fused_##type[FUSED_ROWS] = {fused_##type##_1, fused_##type##_2, fused_##type##_3, fused_##type##_4};
// clang-format on
FUSED_EACH(q4_k)
FUSED_EACH(q8_0)
FUSED_EACH(q4_0)

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n) {
    if (n > SIMD_FUSED_16) return NULL;
    switch (type) {
    case KIN_TYPE_Q4_K: return fused_q4_k[n - 1];
    case KIN_TYPE_Q8_0: return fused_q8_0[n - 1];
    case KIN_TYPE_Q4_0: return fused_q4_0[n - 1];
    default: return NULL;
    }
}

#else

kin_fused SIMD_FN(kin_fused_of)(int type, int64_t n) {
    (void)type;
    (void)n;
    return NULL;
}

#endif
