// Hashes the vector functions of one back-end.
#include "testkit/bits/primitives.h"

#include "base/hash.h"
#include "base/rng.h"
#include "kernels/simd/simd.h"
#include "testkit/bits/bits.h"

enum { ROUNDS = 4096 };

typedef struct run {
    kin_rng rng;
    uint64_t hash;
} run;

static void add_floats(run *r, vf a) {
    float x[16];
    vf_store(x, a);
    r->hash = kin_bits_hash_f32(x, 16, r->hash);
}
static void add_ints(run *r, vi a) {
    int32_t x[16];
    vi_store(x, a);
    r->hash = kin_hash64(x, sizeof x, r->hash);
}
static void add_bytes(run *r, vb a) {
    uint8_t x[64];
    vb_store(x, a);
    r->hash = kin_hash64(x, sizeof x, r->hash);
}
static void add_halves(run *r, vf a) {
    uint16_t x[16];
    vf_store_f16(x, a);
    for (int i = 0; i < 16; i++)
        if ((x[i] & 0x7fff) > 0x7c00) x[i] = 0x7e00; // NaN
    r->hash = kin_hash64(x, sizeof x, r->hash);
}

static void random_bytes(run *r, void *to, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)(kin_rng_u64(&r->rng) >> 32);
}
static vf random_floats(run *r) {
    float x[16];
    random_bytes(r, x, sizeof x);
    return vf_load(x);
}
// Uniform in [low, high], in steps of 2^-24 of the interval.
static vf floats_between(run *r, float low, float high) {
    float x[16];
    for (int i = 0; i < 16; i++) x[i] = low + (high - low) * ((float)(kin_rng_u64(&r->rng) >> 40) * 0x1p-24f);
    return vf_load(x);
}
static vi ints_below(run *r, int32_t limit) { // magnitudes below limit
    int32_t x[16];
    for (int i = 0; i < 16; i++) x[i] = (int32_t)(kin_rng_u64(&r->rng) % (2 * (uint64_t)limit - 1)) - limit + 1;
    return vi_load(x);
}
// -127 to 127, like rounded activations
static void random_activations(run *r, int8_t *x, int n) {
    for (int i = 0; i < n; i++) x[i] = (int8_t)((int)(kin_rng_u64(&r->rng) % 255) - 127);
}

static void floats(run *r) {
    vf a = random_floats(r), b = random_floats(r);
    add_floats(r, vf_add(a, b));
    add_floats(r, vf_sub(a, b));
    add_floats(r, vf_mul(a, b));
    add_floats(r, vf_div(a, b));
    add_floats(r, vf_max(a, b));
    add_floats(r, vf_max(vf_zero(), vf_mul(a, vf_zero()))); // zeros of both signs
    add_floats(r, vf_abs(a));
    add_ints(r, vi_bits(vf_abs(b)));
    a = floats_between(r, -1, 1);
    add_floats(r, vf_set1(vf_sum(a)));
    add_floats(r, vf_set1(vf_greatest(a)));
    float number[1], greatest[4];
    random_bytes(r, number, sizeof number);
    add_floats(r, vf_times(b, number));
    const vf four[] = {a, floats_between(r, -1, 1), floats_between(r, -2, 0), floats_between(r, 0, 1)};
    vf_greatest_4(four, greatest);
    r->hash = kin_bits_hash_f32(greatest, 4, r->hash);
}

// Every half, each with the floats between it and its neighbours that round to it or to them.
static void halves(run *r, int round) {
    uint16_t x[16], bf16[16];
    for (int i = 0; i < 16; i++) x[i] = (uint16_t)(16 * round + i);
    vf a = vf_load_f16(x);
    add_floats(r, a);
    add_halves(r, a);
    const int32_t steps[] = {1,      -1,     0xfff,   0x1000,
                             0x1001, -0xfff, -0x1000, -0x1001}; // halves are 0x2000 apart, the small ones 2^-24
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        add_halves(r, vf_bits(vi_add(vi_bits(vf_abs(a)), vi_set1(steps[i]))));
    add_halves(r, vf_add(a, vf_set1(0x1p-25f)));
    add_halves(r, vf_mul(a, vf_set1(1.5f)));
    add_halves(r, random_floats(r));
    add_halves(r, floats_between(r, -0x1p-13f, 0x1p-13f));
    random_bytes(r, bf16, sizeof bf16);
    add_floats(r, vf_load_bf16(bf16));
}

static void round_to_int(run *r) {
    add_ints(r, vi_round(floats_between(r, -130, 130)));
    add_ints(r, vi_round(floats_between(r, -0x1.fp21f, 0x1.fp21f)));
    add_ints(r, vi_round(vf_mul(vf_from_vi(ints_below(r, 1000)), vf_set1(0.5f)))); // ties
}

static void exponentials(run *r) {
    add_floats(r, vf_exp(floats_between(r, -1, 0)));
    add_floats(r, vf_exp(floats_between(r, -110, 0)));
    add_floats(r, vf_exp2(floats_between(r, -140, 12)));
}

static void integers(run *r) {
    vi a = ints_below(r, 1 << 30), b = ints_below(r, 1 << 30);
    int8_t bytes[16];
    int16_t pairs[32], x[2];
    add_ints(r, vi_add(a, b));
    add_ints(r, vi_sub(a, b));
    for (int n = 0; n < 32; n++) add_ints(r, vi_shl(a, n));
    add_floats(r, vf_from_vi(a));
    add_ints(r, vi_pair(a, b));
    add_ints(r, vi_mul_add(a, ints_below(r, 1 << 15), ints_below(r, 1 << 15)));
    random_bytes(r, bytes, sizeof bytes);
    add_ints(r, vi_load_i8(bytes));
    vi_store_i8(bytes, vi_load_i8(bytes));
    r->hash = kin_hash64(bytes, sizeof bytes, r->hash);
    for (int i = 0; i < 32; i++) pairs[i] = (int16_t)((int)(kin_rng_u64(&r->rng) % 65535) - 32767);
    for (int i = 0; i < 2; i++) x[i] = (int16_t)(i ^ (kin_rng_u64(&r->rng) & 1) ? 32767 : -32767);
    add_ints(r, vi_add_pairs(vi_zero(), pairs, x));
}

static void bytes(run *r) {
    uint8_t x[64], y[64];
    int8_t table[16];
    random_bytes(r, x, sizeof x);
    random_bytes(r, y, sizeof y);
    random_bytes(r, table, sizeof table);
    vb a = vb_load(x), b = vb_load(y);
    add_bytes(r, vb_and(a, b));
    add_bytes(r, vb_or(a, b));
    add_bytes(r, vb_xor(a, b));
    add_bytes(r, vb_sub(a, b));
    for (int n = 0; n < 8; n++) {
        add_bytes(r, vb_shr(a, n));
        add_bytes(r, vb_and(vb_shl(a, n), vb_set1((uint8_t)(0xff << n))));
    }
    add_bytes(r, vb_lookup(table, vb_and(a, vb_set1(15))));
    for (int i = 0; i < 8; i++) add_bytes(r, vb_reflect(a, b, i, (uint8_t)(31 * i)));
    for (int i = 0; i < 5; i++) add_bytes(r, vb_next_digit(&a));
    add_bytes(r, a);
}

// Weights and activations of all magnitudes, or the largest ones.
static void dots(run *r, int round) {
    const bool largest = round % 2;
    uint8_t w[64], stored[64];
    int8_t x[4], scale[16];
    random_bytes(r, w, sizeof w);
    random_bytes(r, scale, sizeof scale);
    random_activations(r, x, 4);
    for (int i = 0; largest && i < 4; i++) x[i] = x[i] < 0 ? -127 : 127;
    for (int i = 0; largest && i < 64; i++) w[i] = w[i] & 1 ? 0x7f : 0x80;
    vb_store_s8(stored, vb_load(w));
    vi bias = vi_set1(SIMD_S8_BIAS * (x[0] + x[1] + x[2] + x[3]));
    add_ints(r, vi_sub(vi_dot_s8(vi_zero(), vb_load(stored), x), bias));
    vs part = vs_dot(vs_zero(), vb_and(vb_load(w), vb_set1(127)), x);
    add_ints(r, vi_from_vs(part));
    add_ints(r, vi_add_scaled(ints_below(r, 1 << 20), part, vscale_load(scale)));
    part = vs_zero();
    for (int i = 0; i < 8; i++) part = vs_dot(part, vb_and(vb_load(w), vb_set1(15)), x); // at most 8 * 2 * 127 * 15
    add_ints(r, vi_add_scaled(vi_zero(), part, vscale_load(scale)));
}

// Bytes and integers of all magnitudes, or the largest ones: 32 products of these are summed.
static void words(run *r, int round) {
    int32_t number[2][64];
    int8_t p[64], x[SIMD_X_BYTES], positive[SIMD_X_BYTES];
    vi a[2][4];
    random_bytes(r, p, sizeof p);
    for (int i = 0; i < 64; i++) {
        if (round % 2) p[i] = p[i] & 1 ? 127 : -128;
        number[0][i] = round % 2 ? 32512 - (p[i] < 0) * 65024 : (int32_t)(kin_rng_u64(&r->rng) % 65025) - 32512;
        number[1][i] = number[0][i] < 0 ? -number[0][i] : number[0][i];
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) a[k][i] = vi_load(&number[k][16 * i]);
    vx_store(x, a[0]);
    vx_store_positive(positive, a[1]);
    for (int half = 0; half < 2; half++) {
        int32_t all = 0;
        for (int i = 0; i < 32; i++) all += number[0][32 * half + i];
        vd sum = vd_set1(-SIMD_S16_BIAS * all), weighed = vd_set1(0);
        for (int g = 0; g < 8; g++) {
            int at = (2 * half + g / 4) * SIMD_X_STEP;
            sum = vd_dot(sum, vw_load(p), x + at, g % 4);
            weighed = vd_dot_positive(weighed, vw_load_positive(p), positive + at, g % 4);
        }
        add_ints(r, vi_from_vd(sum));
        add_ints(r, vi_from_vd(weighed));
    }
}

uint64_t SIMD_FN(kin_primitive_bits)(kin_primitive which) {
    run r = {.hash = 0};
    kin_rng_seed(&r.rng, (uint64_t)which);
    for (int i = 0; i < ROUNDS; i++) {
        switch (which) {
        case KIN_PRIMITIVE_FLOATS: floats(&r); break;
        case KIN_PRIMITIVE_HALVES: halves(&r, i); break;
        case KIN_PRIMITIVE_ROUND: round_to_int(&r); break;
        case KIN_PRIMITIVE_EXP: exponentials(&r); break;
        case KIN_PRIMITIVE_INTEGERS: integers(&r); break;
        case KIN_PRIMITIVE_BYTES: bytes(&r); break;
        case KIN_PRIMITIVE_DOTS: dots(&r, i); break;
        case KIN_PRIMITIVE_WORDS: words(&r, i); break;
        }
    }
    return r.hash;
}
