// Packs GGUF's rows into panels of 16 rows (panel.h). Plain C, because packing is limited by the disk.
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/panel.h"

// Every function below packs one row of a block: b, as in GGUF -> its places in the panel. n: GGUF blocks in b, which is 1 if
// they have 256 columns.

// Places n bytes in groups of four, one group every 64 bytes.
static void interleave(const uint8_t *b, int n, int row, void *planes) {
    for (int i = 0; i < n / 4; i++) memcpy((uint8_t *)planes + 64 * i + 4 * row, b + 4 * i, 4);
}

// Places n bytes, one every 16 bytes.
static void transpose(const uint8_t *b, int n, int row, void *columns) {
    for (int i = 0; i < n; i++) ((uint8_t *)columns)[16 * i + row] = b[i];
}

// Extracts the 6-bit scale j (0..7) and minimum j of Q4_K and Q5_K from 12 bytes: the first eight hold the low six bits of scales
// and minima 0..3 and the high two bits of 4..7; the last four hold the low nibbles of 4..7.
static void scale_k4(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

static void pack_scales_k4(const uint8_t *s, int r, kin_panel_scales_k4 *to) {
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_k4(s, j, &scale, &min);
        to->low[j][r] = (uint8_t)((scale & 15) | (min & 15) << 4);
        if (j < 4) to->high[j][r] = 0;
        to->high[j % 4][r] |= (uint8_t)((scale >> 4 | min >> 4 << 4) << (j / 4 * 2));
    }
}

static void pack_q4_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q4_k *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    memcpy(&p->d_min[2 * r], b + 2, 2);
    pack_scales_k4(b + 4, r, &p->scales);
    interleave(b + 16, 128, r, p->q);
}

static void pack_q5_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q5_k *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    memcpy(&p->d_min[2 * r], b + 2, 2);
    pack_scales_k4(b + 4, r, &p->scales);
    interleave(b + 16, 32, r, p->high);
    interleave(b + 48, 128, r, p->low);
}

// Returns weight c of a row of Q6_K: each half of 128 columns has 64 bytes of nibbles, and 32 bytes with the two bits above them.
static int weight_q6_k(const uint8_t *b, int c) {
    int h = c / 128, quarter = c / 32 % 4;
    int low = b[64 * h + c % 64] >> quarter / 2 * 4 & 15, high = b[128 + 32 * h + c % 32] >> 2 * quarter & 3;
    return low | high << 4;
}

static void pack_q6_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q6_k *p = panel;
    for (int i = 0; i < 64; i++) {
        uint8_t(*q)[64] = p->q[i / 4];
        for (int t = 0; t < 3; t++) q[t][4 * r + i % 4] = (uint8_t)weight_q6_k(b, i / 4 * 16 + 4 * t + i % 4);
    }
    for (int i = 0; i < 64; i++) {
        uint8_t *u = &p->q[i / 4][0][4 * r + i % 4], *v = u + 64, *w = v + 64;
        const int next = i % 2 == 0, above = next * 256; // the other byte of the word
        int seen = *u >> 2 ^ (*v + above * v[next]) >> 4 ^ (*w + above * w[next]) >> 6;
        int last = weight_q6_k(b, i / 4 * 16 + 12 + i % 4) ^ seen;
        *u |= (uint8_t)((last >> 4 & 3) << 6);
        *v |= (uint8_t)((last >> 2 & 3) << 6);
        *w |= (uint8_t)((last & 3) << 6);
    }
    transpose(b + 192, 16, r, p->scale);
    memcpy(&p->d[2 * r], b + 208, 2);
}

static void pack_q3_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q3_k *p = panel;
    interleave(b, 32, r, p->high);
    interleave(b + 32, 64, r, p->low);
    transpose(b + 96, 8, r, p->scale_low);
    transpose(b + 104, 4, r, p->scale_high);
    memcpy(&p->d[2 * r], b + 108, 2);
}

static void pack_q2_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q2_k *p = panel;
    transpose(b, 16, r, p->scale);
    interleave(b + 16, 64, r, p->q);
    memcpy(&p->d[2 * r], b + 80, 2);
    memcpy(&p->d_min[2 * r], b + 82, 2);
}

static void pack_iq4_xs(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq4_xs *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    transpose(b + 2, 2, r, p->scale_high);
    transpose(b + 4, 4, r, p->scale_low);
    interleave(b + 8, 128, r, p->q);
}

// Packs blocks of 32 columns: a scale, then the weights.
static void pack_32(const uint8_t *b, int n, int r, int scale_bytes, int q_bytes, uint8_t *panel) {
    uint8_t *scales = panel + (ptrdiff_t)n * 16 * q_bytes;
    for (int g = 0; g < n; g++, b += scale_bytes + q_bytes) {
        memcpy(scales + (16 * g + r) * scale_bytes, b, (size_t)scale_bytes);
        interleave(b + scale_bytes, q_bytes, r, panel + (ptrdiff_t)g * 16 * q_bytes);
    }
}

static void pack_q8_0(const uint8_t *b, int n, int r, void *panel) {
    pack_32(b, n, r, 2, 32, panel);
}

static void pack_q4_0(const uint8_t *b, int n, int r, void *panel) {
    pack_32(b, n, r, 2, 16, panel);
}

static void pack_mxfp4(const uint8_t *b, int n, int r, void *panel) {
    pack_32(b, n, r, 1, 16, panel);
}

typedef struct format {
    int type;
    kin_act_kind kind;
    int columns, bytes; // of a block in GGUF, or of 16 floats
    void (*pack)(const uint8_t *b, int n, int row, void *panel);
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
    {KIN_TYPE_F16, KIN_ACT_F32, 16, 32, NULL},
    {KIN_TYPE_BF16, KIN_ACT_F32, 16, 32, NULL},
    {KIN_TYPE_F32, KIN_ACT_F32, 16, 64, NULL},
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

bool kin_kernel_has(int type, int64_t columns, int64_t rows) {
    const format *f = find_format(type);
    return f && columns % f->columns == 0 && (!f->pack || rows % KIN_PANEL_ROWS == 0);
}

size_t kin_panel_bytes(int type, int64_t columns) {
    const format *f = find_format(type);
    return (size_t)(columns / f->columns * f->bytes * KIN_PANEL_ROWS);
}

void kin_kernel_pack(int type, int64_t columns, int64_t rows, const void *src, void *dst) {
    const format *f = find_format(type);
    kin_assert(f && f->pack && kin_kernel_has(type, columns, rows));
    const uint8_t *b = src;
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *panel = (uint8_t *)dst + (size_t)(r / KIN_PANEL_ROWS) * kin_panel_bytes(type, columns);
        for (int64_t c = 0; c < columns; c += KIN_ACT_COLUMNS) {
            int64_t left = columns - c < KIN_ACT_COLUMNS ? columns - c : KIN_ACT_COLUMNS;
            int n = (int)left / f->columns;
            f->pack(b, n, (int)(r % KIN_PANEL_ROWS), panel + kin_panel_bytes(type, c));
            b += n * f->bytes;
        }
    }
}
