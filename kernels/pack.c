// Packs GGUF's rows into panels of 16 rows (panel.h). Compiled for every processor of a family.
#include "kernels/pack.h"

#include "kernels/kernels.h"

// ---- moving bytes of 16 rows
//
// In vectors of 16 bytes, which every processor has, or its compiler makes of smaller ones.

typedef uint32_t four __attribute__((vector_size(16)));
typedef uint8_t sixteen __attribute__((vector_size(16)));
typedef uint16_t words __attribute__((vector_size(16)));

static four load_four(const uint8_t *p) {
    four x;
    memcpy(&x, p, sizeof x);
    return x;
}

static words load_words(const uint8_t *p) {
    words x;
    memcpy(&x, p, sizeof x);
    return x;
}

// Transposes groups of four bytes: 4 of 4 rows, which are `step` bytes apart -> 4 of each row, 64 bytes apart.
static void interleave_4(const uint8_t *b, size_t step, uint8_t *to) {
    const four w = load_four(b), x = load_four(b + step), y = load_four(b + 2 * step), z = load_four(b + 3 * step);
    const four a = __builtin_shufflevector(w, x, 0, 4, 1, 5), c = __builtin_shufflevector(y, z, 0, 4, 1, 5);
    const four d = __builtin_shufflevector(w, x, 2, 6, 3, 7), e = __builtin_shufflevector(y, z, 2, 6, 3, 7);
    const four all[4] = {__builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
                         __builtin_shufflevector(d, e, 0, 1, 4, 5), __builtin_shufflevector(d, e, 2, 3, 6, 7)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) memcpy(to + 64 * i, &all[i], sizeof all[i]);
}

void kin_pack_interleave(kin_pack_rows rows, int n, void *planes) {
    const int whole = rows.n == KIN_PANEL_ROWS ? n / 16 * 16 : 0;
    uint8_t *to = planes;
    for (int i = 0; i < whole; i += 16)
        for (int r = 0; r < 16; r += 4) interleave_4(kin_pack_row(rows, r) + i, rows.step, to + 16 * i + 4 * r);
    for (int r = 0; r < rows.n; r++)
        for (int i = whole; i < n; i += 4) memcpy(to + 16 * i + 4 * r, kin_pack_row(rows, r) + i, 4);
}

// Transposes 16 bytes of 16 rows: four times, the bytes of vectors i and i + 8 are interleaved.
static void transpose_16(kin_pack_rows rows, uint8_t *to) {
    sixteen x[16], y[16];
    for (int r = 0; r < 16; r++) memcpy(&x[r], kin_pack_row(rows, r), sizeof x[r]);
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(x, y, sizeof x);
    }
    memcpy(to, x, sizeof x);
}

void kin_pack_transpose(kin_pack_rows rows, int n, void *columns) {
    const int whole = rows.n == KIN_PANEL_ROWS ? n / 16 * 16 : 0;
    uint8_t *to = columns;
    for (int i = 0; i < whole; i += 16) transpose_16(kin_pack_from(rows, i), to + 16 * i);
    for (int r = 0; r < rows.n; r++)
        for (int i = whole; i < n; i++) to[16 * i + r] = kin_pack_row(rows, r)[i];
}

void kin_pack_halves(kin_pack_rows rows, void *halves) {
#pragma GCC unroll 16
    for (int r = 0; r < KIN_PANEL_ROWS; r++)
        if (r < rows.n) memcpy((uint8_t *)halves + 2 * r, kin_pack_row(rows, r), 2);
}

static void store_halves(sixteen low, sixteen high, uint8_t to[32]) {
    const sixteen first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const sixteen second = __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    memcpy(to, &first, sizeof first);
    memcpy(to + 16, &second, sizeof second);
}

// ---- types

void kin_pack_head_k4(kin_pack_rows rows, kin_panel_scales_k4 *to, uint8_t d[32], uint8_t d_min[32]) {
    sixteen s[16] = {{0}};
    kin_pack_transpose(rows, 16, s);
    store_halves(s[0], s[1], d);
    store_halves(s[2], s[3], d_min);
    for (int j = 0; j < 4; j++) {
        const sixteen scale = s[4 + j], min = s[8 + j], low = (scale & 15) | (min & 15) << 4;
        const sixteen high = (scale >> 4 & 3) | (scale >> 6) << 2 | (min >> 4 & 3) << 4 | (min >> 6) << 6;
        memcpy(to->low[j], &low, sizeof low);
        memcpy(to->low[j + 4], &s[12 + j], sizeof low);
        memcpy(to->high[j], &high, sizeof high);
    }
}

static void pack_q4_k(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_q4_k *p = panel;
    kin_pack_head_k4(rows, &p->scales, p->d, p->d_min);
    kin_pack_interleave(kin_pack_from(rows, 16), 128, p->q);
}

static void pack_q5_k(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_q5_k *p = panel;
    kin_pack_head_k4(rows, &p->scales, p->d, p->d_min);
    kin_pack_interleave(kin_pack_from(rows, 16), 32, p->high);
    kin_pack_interleave(kin_pack_from(rows, 48), 128, p->low);
}

// Packs 16 columns of four rows of Q6_K, as words of two bytes. GGUF has their nibbles in bits `low_at` and the two bits above
// them in bits `high_at` of four vectors each, 64 bytes apart.
static void pack_columns_q6_k(const uint8_t *low, int low_at, const uint8_t *high, int high_at, uint8_t *to) {
    words x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const words nibbles = load_words(low + 64 * i) >> low_at & 0x0f0f, pairs = load_words(high + 64 * i) >> high_at & 0x0303;
        x[i] = nibbles | pairs << 4;
    }
    const words rest = x[3] ^ ((x[0] >> 2 ^ x[1] >> 4 ^ x[2] >> 6) & 0x3f3f);
    x[0] |= (rest & 0x3030) << 2;
    x[1] |= (rest & 0x0c0c) << 4;
    x[2] |= (rest & 0x0303) << 6;
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) memcpy(to + 64 * i, &x[i], sizeof x[i]);
}

// Each half of 128 columns has 64 bytes of nibbles, and 32 bytes with the two bits above them: a nibble's column is its byte's,
// or 64 further on; a pair's is its byte's, or 32, 64 or 96 further on.
static void pack_q6_k(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_q6_k *p = panel;
    uint8_t low[32][64], high[16][64]; // 4 columns of each row
    if (rows.n < KIN_PANEL_ROWS) {
        memset(low, 0, sizeof low);
        memset(high, 0, sizeof high);
    }
    kin_pack_interleave(rows, 128, low);
    kin_pack_interleave(kin_pack_from(rows, 128), 64, high);
    for (int g = 0; g < 16; g++) {
        const int half = g / 8, quarter = g % 8 / 2, j = g % 2 * 4;
        for (int b = 0; b < 64; b += 16) {
            pack_columns_q6_k(low[16 * half + quarter % 2 * 8 + j] + b, quarter / 2 * 4, high[8 * half + j] + b, quarter * 2,
                              p->q[g][0] + b);
        }
    }
    kin_pack_transpose(kin_pack_from(rows, 192), 16, p->scale);
    kin_pack_halves(kin_pack_from(rows, 208), p->d);
}

static void pack_q3_k(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_q3_k *p = panel;
    kin_pack_interleave(rows, 32, p->high);
    kin_pack_interleave(kin_pack_from(rows, 32), 64, p->low);
    kin_pack_transpose(kin_pack_from(rows, 96), 8, p->scale_low);
    kin_pack_transpose(kin_pack_from(rows, 104), 4, p->scale_high);
    kin_pack_halves(kin_pack_from(rows, 108), p->d);
}

static void pack_q2_k(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_q2_k *p = panel;
    kin_pack_transpose(rows, 16, p->scale);
    kin_pack_interleave(kin_pack_from(rows, 16), 64, p->q);
    kin_pack_halves(kin_pack_from(rows, 80), p->d);
    kin_pack_halves(kin_pack_from(rows, 82), p->d_min);
}

static void pack_iq4_xs(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq4_xs *p = panel;
    kin_pack_halves(rows, p->d);
    kin_pack_transpose(kin_pack_from(rows, 2), 2, p->scale_high);
    kin_pack_transpose(kin_pack_from(rows, 4), 4, p->scale_low);
    kin_pack_interleave(kin_pack_from(rows, 8), 128, p->q);
}

// Packs blocks of 32 columns: a scale, then the weights.
static void pack_32(kin_pack_rows rows, int n, int scale_bytes, int q_bytes, uint8_t *panel) {
    uint8_t *scales = panel + (ptrdiff_t)n * 16 * q_bytes;
    for (int g = 0; g < n; g++, rows.at += scale_bytes + q_bytes) {
        if (scale_bytes == 2)
            kin_pack_halves(rows, scales + 32 * g);
        else
            kin_pack_transpose(rows, scale_bytes, scales + 16 * g);
        kin_pack_interleave(kin_pack_from(rows, scale_bytes), q_bytes, panel + (ptrdiff_t)g * 16 * q_bytes);
    }
}

static void pack_q8_0(kin_pack_rows rows, int n, void *panel) {
    pack_32(rows, n, 2, 32, panel);
}

static void pack_q4_0(kin_pack_rows rows, int n, void *panel) {
    pack_32(rows, n, 2, 16, panel);
}

static void pack_mxfp4(kin_pack_rows rows, int n, void *panel) {
    pack_32(rows, n, 1, 16, panel);
}

static void pack_scale_min(kin_pack_rows rows, kin_panel_scale_min *to) {
    kin_pack_halves(rows, to->d);
    kin_pack_halves(kin_pack_from(rows, 2), to->m);
}

static void pack_q4_1(kin_pack_rows rows, int n, void *panel) {
    kin_panel_q4_0 *p = panel;
    kin_panel_scale_min *scale = (kin_panel_scale_min *)(p + n);
    for (int g = 0; g < n; g++, rows.at += 20) {
        pack_scale_min(rows, &scale[g]);
        kin_pack_interleave(kin_pack_from(rows, 4), 16, p[g].q);
    }
}

// Packs 32 bits of each row, one for each column: bit 4 j + b becomes bit j of byte b.
static void pack_bits(kin_pack_rows rows, uint8_t *plane) {
    kin_pack_interleave(rows, 4, plane);
    for (int r = 0; r < KIN_PANEL_ROWS; r += 4) {
        const four x = load_four(plane + 4 * r);
        four y = {0};
        for (uint32_t i = 0; i < 4; i++) {
            four t = x >> i & 0x11111111; // bits i, i + 4, ...
            t = (t | t >> 3) & 0x03030303;
            t = (t | t >> 6) & 0x000f000f;
            y |= ((t | t >> 12) & 255) << 8 * i;
        }
        memcpy(plane + 4 * r, &y, sizeof y);
    }
}

static void pack_q5_0(kin_pack_rows rows, int n, void *panel) {
    kin_panel_q5_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + n);
    for (int g = 0; g < n; g++, rows.at += 22) {
        kin_pack_halves(rows, scale[g].d);
        pack_bits(kin_pack_from(rows, 2), p[g].high);
        kin_pack_interleave(kin_pack_from(rows, 6), 16, p[g].low);
    }
}

static void pack_q5_1(kin_pack_rows rows, int n, void *panel) {
    kin_panel_q5_0 *p = panel;
    kin_panel_scale_min *scale = (kin_panel_scale_min *)(p + n);
    for (int g = 0; g < n; g++, rows.at += 24) {
        pack_scale_min(rows, &scale[g]);
        pack_bits(kin_pack_from(rows, 4), p[g].high);
        kin_pack_interleave(kin_pack_from(rows, 8), 16, p[g].low);
    }
}

static void pack_nvfp4(kin_pack_rows rows, int n, void *panel) {
    kin_panel_nvfp4 *p = panel;
    kin_panel_scale_ue4m3 *scale = (kin_panel_scale_ue4m3 *)(p + 2 * n);
    for (int i = 0; i < n; i++, rows.at += 36) {
        kin_pack_transpose(rows, 4, scale[2 * i].e);
        kin_pack_interleave(kin_pack_from(rows, 4), 32, p[2 * i].q);
    }
}

// Transposes matrices of 4 by 4 pairs of bits, n bytes of them: pair k of byte t <-> pair t of byte k.
static void transpose_pairs(uint8_t *bytes, int n) {
    for (int i = 0; i < n; i += 16) {
        four x = load_four(bytes + i), t = (x ^ x >> 6) & 0x00cc00cc;
        x ^= t ^ t << 6;
        t = (x ^ x >> 12) & 0x0000f0f0;
        x ^= t ^ t << 12;
        memcpy(bytes + i, &x, sizeof x);
    }
}

static void pack_q2_0(kin_pack_rows rows, int n, void *panel) {
    kin_panel_q2_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + 2 * n);
    for (int i = 0; i < n; i++, rows.at += 18) {
        uint8_t q[4][64] = {{0}};
        kin_pack_halves(rows, scale[i].d);
        kin_pack_interleave(kin_pack_from(rows, 2), 16, q);
        transpose_pairs(q[0], sizeof q);
        memcpy(p + 2 * i, q, sizeof q);
    }
}

static void pack_q1_0(kin_pack_rows rows, int n, void *panel) {
    kin_panel_q1_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + 4 * n);
    for (int i = 0; i < n; i++, rows.at += 18) {
        kin_pack_halves(rows, scale[i].d);
        for (int g = 0; g < 4; g++) pack_bits(kin_pack_from(rows, 2 + 4 * g), p[4 * i + g].q);
    }
}

static void pack_tq1_0(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_tq1_0 *p = panel;
    kin_pack_interleave(rows, 52, p->q);
    kin_pack_halves(kin_pack_from(rows, 52), p->d);
}

static void pack_tq2_0(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_tq2_0 *p = panel;
    kin_pack_interleave(rows, 64, p->q);
    kin_pack_halves(kin_pack_from(rows, 64), p->d);
}

typedef struct format {
    int type;
    kin_act_kind kind;
    int columns, bytes; // of a block in GGUF
    void (*pack)(kin_pack_rows rows, int n, void *panel);
} format;

// clang-format off
static const format formats[] = {
    {KIN_TYPE_Q4_K, KIN_ACT_256, 256, 144, pack_q4_k},
    {KIN_TYPE_Q5_K, KIN_ACT_256, 256, 176, pack_q5_k},
    {KIN_TYPE_Q6_K, KIN_ACT_256, 256, 210, pack_q6_k},
    {KIN_TYPE_Q3_K, KIN_ACT_256, 256, 110, pack_q3_k},
    {KIN_TYPE_Q2_K, KIN_ACT_256, 256, 84, pack_q2_k},
    {KIN_TYPE_IQ4_XS, KIN_ACT_256, 256, 136, pack_iq4_xs},
    {KIN_TYPE_Q8_0, KIN_ACT_32, 32, 34, pack_q8_0},
    {KIN_TYPE_Q4_0, KIN_ACT_32, 32, 18, pack_q4_0},
    {KIN_TYPE_MXFP4, KIN_ACT_32, 32, 17, pack_mxfp4},
    {KIN_TYPE_Q4_1, KIN_ACT_32, 32, 20, pack_q4_1},
    {KIN_TYPE_Q5_0, KIN_ACT_32, 32, 22, pack_q5_0},
    {KIN_TYPE_Q5_1, KIN_ACT_32, 32, 24, pack_q5_1},
    {KIN_TYPE_IQ4_NL, KIN_ACT_32, 32, 18, pack_q4_0},
    {KIN_TYPE_IQ3_XXS, KIN_ACT_256, 256, 98, kin_pack_iq3_xxs},
    {KIN_TYPE_IQ3_S, KIN_ACT_256, 256, 110, kin_pack_iq3_s},
    {KIN_TYPE_IQ2_XXS, KIN_ACT_256, 256, 66, kin_pack_iq2_xxs},
    {KIN_TYPE_IQ2_XS, KIN_ACT_256, 256, 74, kin_pack_iq2_xs},
    {KIN_TYPE_IQ2_S, KIN_ACT_256, 256, 82, kin_pack_iq2_s},
    {KIN_TYPE_IQ1_S, KIN_ACT_256, 256, 50, kin_pack_iq1_s},
    {KIN_TYPE_IQ1_M, KIN_ACT_256, 256, 56, kin_pack_iq1_m},
    {KIN_TYPE_TQ1_0, KIN_ACT_256, 256, 54, pack_tq1_0},
    {KIN_TYPE_TQ2_0, KIN_ACT_256, 256, 66, pack_tq2_0},
    {KIN_TYPE_NVFP4, KIN_ACT_32, 64, 36, pack_nvfp4},
    {KIN_TYPE_Q2_0, KIN_ACT_32, 64, 18, pack_q2_0},
    {KIN_TYPE_Q1_0, KIN_ACT_32, 128, 18, pack_q1_0},
    {KIN_TYPE_F16, KIN_ACT_F32, 1, 2, NULL},
    {KIN_TYPE_BF16, KIN_ACT_F32, 1, 2, NULL},
    {KIN_TYPE_F32, KIN_ACT_F32, 1, 4, NULL},
};
// clang-format on

static const format *find_format(int type) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

kin_act_kind kin_kernel_act_kind(int type) {
    const format *f = find_format(type);
    return f ? f->kind : KIN_ACT_NONE;
}

bool kin_kernel_packs(int type) {
    const format *f = find_format(type);
    return f && f->pack;
}

bool kin_kernel_has(int type, int64_t columns) {
    const format *f = find_format(type);
    return f && columns % f->columns == 0;
}

size_t kin_panel_bytes(int type, int64_t columns) {
    const format *f = find_format(type);
    return (size_t)(columns / f->columns * f->bytes * KIN_PANEL_ROWS);
}

void kin_panel_pack_block(int type, int columns, int n, const uint8_t *rows, size_t row_bytes, uint8_t *block) {
    const format *f = find_format(type);
    f->pack((kin_pack_rows){rows, row_bytes, n}, columns / f->columns, block);
}

void kin_kernel_pack(int type, int64_t columns, int64_t rows, const void *src, void *dst) {
    kin_assert(kin_kernel_packs(type) && kin_kernel_has(type, columns));
    const size_t panel_bytes = kin_panel_bytes(type, columns), row_bytes = panel_bytes / KIN_PANEL_ROWS;
    const uint8_t *from = src;
    uint8_t *to = dst;
    for (; rows >= KIN_PANEL_ROWS; rows -= KIN_PANEL_ROWS, from += panel_bytes, to += panel_bytes) {
        for (int64_t c = 0; c < columns; c += KIN_ACT_COLUMNS) {
            const int n = columns - c < KIN_ACT_COLUMNS ? (int)(columns - c) : KIN_ACT_COLUMNS;
            const size_t at = kin_panel_bytes(type, c);
            kin_panel_pack_block(type, n, KIN_PANEL_ROWS, from + at / KIN_PANEL_ROWS, row_bytes, to + at);
        }
    }
    memcpy(to, from, (size_t)rows * row_bytes);
}
