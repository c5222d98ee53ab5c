// Block layouts of the quantized formats. `d` is a block's scale and `m` its minimum, both f16; all integers are
// little-endian; bits are counted from the lowest. Offsets in bytes.
//
// 32 elements per block; nibble j of qs: low half of qs[j] is element j, high half is element j + 16
//
//   type  bytes  layout                                     element
//   Q8_0     34  d:0  qs:2  (32 x i8)                       d * q
//   Q4_0     18  d:0  qs:2  (16)                            d * (q - 8)
//   Q4_1     20  d:0  m:2   qs:4 (16)                       d * q + m
//   Q5_0     22  d:0  qh:2 (4)       qs:6 (16)              d * (q - 16), q = nibble | bit j of qh << 4
//   Q5_1     24  d:0  m:2   qh:4 (4) qs:8 (16)              d * q + m
//   MXFP4    17  e:0  qs:1  (16)                            2^(e - 128) * mxfp4[q]
//
// 256 elements per block in groups of 16 or 32, each with its own small scale sc (and minimum mn)
//
//   type  bytes  layout                                             groups    element
//   Q2_K     84  sc,mn:0 (16 x 4+4 bit)  qs:16 (64)  d:80  m:82     16 of 16  d * sc * q - m * mn
//   Q3_K    110  qh:0 (32)  qs:32 (64)  sc:96 (12)  d:108           16 of 16  d * (sc - 32) * (q - 4)
//   Q4_K    144  d:0  m:2  sc,mn:4 (12)  qs:16 (128)                 8 of 32  d * sc * q - m * mn
//   Q5_K    176  d:0  m:2  sc,mn:4 (12)  qh:16 (32)  qs:48 (128)     8 of 32  d * sc * q - m * mn
//   Q6_K    210  ql:0 (128)  qh:128 (64)  sc:192 (16 x i8)  d:208   16 of 16  d * sc * (q - 32)
//   IQ4_XS  136  d:0  sch:2 (2)  scl:4 (4)  qs:8 (128)               8 of 32  d * (sc - 32) * iq4[q]
#include "testkit/ref/dequant.h"

#include <math.h>
#include <string.h>

static uint16_t get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)get_u16(p) | (uint32_t)get_u16(p + 2) << 16;
}

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// 1 sign, 5 exponent, 10 mantissa bits.
static float get_f16(const uint8_t *p) {
    const uint32_t h = get_u16(p);
    const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000 | mantissa << 13); // infinity, NaN
    if (exponent == 0) return copysignf((float)mantissa * 0x1p-24f, float_of_bits(sign));
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Returns the low nibble of a byte for part 0, the high one for part 1.
static int nibble(uint8_t byte, int part) {
    return byte >> (4 * part) & 15;
}

// Scale and minimum of group g (0..7) in the 12 bytes of Q4_K and Q5_K, 6 bits each:
//   bytes 0..3   low 6 bits: sc of g = byte      high 2: bits 4..5 of sc of g = byte + 4
//   bytes 4..7   low 6 bits: mn of g = byte - 4  high 2: bits 4..5 of mn of g = byte
//   bytes 8..11  low 4 bits of sc, then of mn, of g = byte - 4
static void get_scale_min(const uint8_t *p, int g, int *sc, int *mn) {
    if (g < 4) {
        *sc = p[g] & 63;
        *mn = p[g + 4] & 63;
    } else {
        *sc = (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
        *mn = p[g + 4] >> 4 | p[g] >> 6 << 4;
    }
}

// Scale of group g (0..15) in the 12 bytes of Q3_K, 6 bits: low four in the nibbles of bytes 0..7, high two in bytes 8..11.
static int get_scale_q3(const uint8_t *p, int g) {
    return nibble(p[g % 8], g / 8) | (p[8 + g % 4] >> (2 * (g / 4)) & 3) << 4;
}

// Each function converts one block: b // (block_bytes) -> y // (block_n)

static void block_f32(const uint8_t *b, float *y) {
    *y = float_of_bits(get_u32(b));
}

static void block_f16(const uint8_t *b, float *y) {
    *y = get_f16(b);
}

static void block_bf16(const uint8_t *b, float *y) {
    *y = float_of_bits((uint32_t)get_u16(b) << 16);
}

static void block_q8_0(const uint8_t *b, float *y) {
    const float d = get_f16(b);
    for (int i = 0; i < 32; i++) y[i] = d * (int8_t)b[2 + i];
}

static void block_q4_0(const uint8_t *b, float *y) {
    const float d = get_f16(b);
    for (int i = 0; i < 32; i++) y[i] = d * (nibble(b[2 + i % 16], i / 16) - 8);
}

static void block_q4_1(const uint8_t *b, float *y) {
    const float d = get_f16(b), m = get_f16(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * nibble(b[4 + i % 16], i / 16) + m;
}

static void block_q5_0(const uint8_t *b, float *y) {
    const float d = get_f16(b);
    const uint32_t qh = get_u32(b + 2);
    for (int i = 0; i < 32; i++) y[i] = d * ((nibble(b[6 + i % 16], i / 16) | (int)(qh >> i & 1) << 4) - 16);
}

static void block_q5_1(const uint8_t *b, float *y) {
    const float d = get_f16(b), m = get_f16(b + 2);
    const uint32_t qh = get_u32(b + 4);
    for (int i = 0; i < 32; i++) y[i] = d * (nibble(b[8 + i % 16], i / 16) | (int)(qh >> i & 1) << 4) + m;
}

// Q2_K, Q3_K and Q6_K store two bits of element i in qs[32 * (i / 128) + i % 32], as bit pair number i / 32 % 4.
static int two_bits(const uint8_t *qs, int i) {
    return qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
}

static void block_q2_k(const uint8_t *b, float *y) {
    const uint8_t *scales = b, *qs = b + 16;
    const float d = get_f16(b + 80), m = get_f16(b + 82);
    for (int i = 0; i < 256; i++) {
        const float scale = d * nibble(scales[i / 16], 0), min = m * nibble(scales[i / 16], 1);
        y[i] = scale * two_bits(qs, i) - min;
    }
}

static void block_q3_k(const uint8_t *b, float *y) {
    const uint8_t *qh = b, *qs = b + 32, *scales = b + 96;
    const float d = get_f16(b + 108);
    for (int i = 0; i < 256; i++) {
        const float scale = d * (get_scale_q3(scales, i / 16) - 32);
        const int high = qh[i % 32] >> (i / 32) & 1;
        y[i] = scale * ((two_bits(qs, i) | high << 2) - 4);
    }
}

// Q4_K and Q5_K: nibble i / 32 % 2 of qs[32 * (i / 64) + i % 32]; group g = i / 32.
static void block_q4_k(const uint8_t *b, float *y) {
    const float d = get_f16(b), m = get_f16(b + 2);
    for (int g = 0; g < 8; g++) {
        const uint8_t *qs = b + 16 + 32 * (g / 2);
        int sc, mn;
        get_scale_min(b + 4, g, &sc, &mn);
        const float scale = d * sc, min = m * mn;
        for (int i = 0; i < 32; i++) y[32 * g + i] = scale * nibble(qs[i], g % 2) - min;
    }
}

static void block_q5_k(const uint8_t *b, float *y) {
    const float d = get_f16(b), m = get_f16(b + 2);
    const uint8_t *qh = b + 16;
    for (int g = 0; g < 8; g++) {
        const uint8_t *qs = b + 48 + 32 * (g / 2);
        int sc, mn;
        get_scale_min(b + 4, g, &sc, &mn);
        const float scale = d * sc, min = m * mn;
        for (int i = 0; i < 32; i++) y[32 * g + i] = scale * (nibble(qs[i], g % 2) | (qh[i] >> g & 1) << 4) - min;
    }
}

// Each half of 128 elements has 64 bytes of ql: low nibbles are its first 64 elements, high nibbles the other 64.
static void block_q6_k(const uint8_t *b, float *y) {
    const uint8_t *ql = b, *qh = b + 128, *scales = b + 192;
    const float d = get_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        const float scale = d * (int8_t)scales[i / 16];
        const int low = nibble(ql[64 * (i / 128) + i % 64], i / 64 % 2);
        y[i] = scale * ((low | two_bits(qh, i) << 4) - 32);
    }
}

static void block_mxfp4(const uint8_t *b, float *y) {
    static const int8_t mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int i = 0; i < 32; i++) y[i] = ldexpf(mxfp4[nibble(b[1 + i % 16], i / 16)], b[0] - 128);
}

// Nibble i / 16 % 2 of qs[16 * (i / 32) + i % 16]; sc of group g: nibble g % 2 of scl[g / 2], bits 2 g and 2 g + 1 of sch.
static void block_iq4_xs(const uint8_t *b, float *y) {
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const float d = get_f16(b);
    for (int i = 0; i < 256; i++) {
        const int g = i / 32, sc = nibble(b[4 + g / 2], g % 2) | (get_u16(b + 2) >> 2 * g & 3) << 4;
        y[i] = d * (sc - 32) * iq4[nibble(b[8 + 16 * g + i % 16], i / 16 % 2)];
    }
}

typedef struct format {
    int type, n, bytes;
    void (*block)(const uint8_t *b, float *y);
} format;

static const format formats[] = {
    {KIN_REF_F32, 1, 4, block_f32},       {KIN_REF_F16, 1, 2, block_f16},           {KIN_REF_BF16, 1, 2, block_bf16},
    {KIN_REF_Q8_0, 32, 34, block_q8_0},   {KIN_REF_Q4_0, 32, 18, block_q4_0},       {KIN_REF_Q4_1, 32, 20, block_q4_1},
    {KIN_REF_Q5_0, 32, 22, block_q5_0},   {KIN_REF_Q5_1, 32, 24, block_q5_1},       {KIN_REF_Q2_K, 256, 84, block_q2_k},
    {KIN_REF_Q3_K, 256, 110, block_q3_k}, {KIN_REF_Q4_K, 256, 144, block_q4_k},     {KIN_REF_Q5_K, 256, 176, block_q5_k},
    {KIN_REF_Q6_K, 256, 210, block_q6_k}, {KIN_REF_IQ4_XS, 256, 136, block_iq4_xs}, {KIN_REF_MXFP4, 32, 17, block_mxfp4},
};

static const format *format_of(int type) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

int kin_ref_block_n(int type) {
    const format *f = format_of(type);
    return f ? f->n : 0;
}

size_t kin_ref_block_bytes(int type) {
    const format *f = format_of(type);
    return f ? (size_t)f->bytes : 0;
}

void kin_ref_dequant(int type, const uint8_t *blocks, int n, float *out) {
    const format *f = format_of(type);
    if (type == KIN_REF_F32) { // without a call for each number
        for (int i = 0; i < n; i++) out[i] = float_of_bits(get_u32(blocks + 4 * (size_t)i));
        return;
    }
    for (int i = 0; i < n; i += f->n, blocks += f->bytes) f->block(blocks, out + i);
}
