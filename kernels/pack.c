// Packs GGUF's rows into panels of 16 rows (panel.h). Plain C, because packing is limited by the disk.
#include "kernels/pack.h"

#include "kernels/kernels.h"

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
    kin_pack_interleave(b + 16, 128, r, p->q);
}

static void pack_q5_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q5_k *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    memcpy(&p->d_min[2 * r], b + 2, 2);
    pack_scales_k4(b + 4, r, &p->scales);
    kin_pack_interleave(b + 16, 32, r, p->high);
    kin_pack_interleave(b + 48, 128, r, p->low);
}

// Unpacks a row of Q6_K: each half of 128 columns has 64 bytes of nibbles, and 32 bytes with the two bits above them.
static void weights_q6_k(const uint8_t *b, uint8_t w[256]) {
    for (int h = 0; h < 2; h++, w += 128) {
        const uint8_t *low = b + 64 * h, *high = b + 128 + 32 * h;
        for (int i = 0; i < 32; i++) {
            w[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            w[32 + i] = (uint8_t)((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4);
            w[64 + i] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            w[96 + i] = (uint8_t)(low[32 + i] >> 4 | high[i] >> 6 << 4);
        }
    }
}

static void pack_q6_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q6_k *p = panel;
    uint8_t w[256];
    weights_q6_k(b, w);
    for (int g = 0; g < 16; g++) {
        uint32_t x[4]; // 16 columns
        memcpy(x, w + 16 * g, sizeof x);
        const uint32_t seen = (x[0] >> 2 & 0x3fff3fff) ^ (x[1] >> 4 & 0x0fff0fff) ^ (x[2] >> 6 & 0x03ff03ff); // by 16-bit shifts
        const uint32_t rest = x[3] ^ (seen & 0x3f3f3f3f);
        x[0] |= (rest & 0x30303030) << 2;
        x[1] |= (rest & 0x0c0c0c0c) << 4;
        x[2] |= (rest & 0x03030303) << 6;
        for (int t = 0; t < 3; t++) memcpy(p->q[g][t] + 4 * r, &x[t], 4);
    }
    kin_pack_transpose(b + 192, 16, r, p->scale);
    memcpy(&p->d[2 * r], b + 208, 2);
}

static void pack_q3_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q3_k *p = panel;
    kin_pack_interleave(b, 32, r, p->high);
    kin_pack_interleave(b + 32, 64, r, p->low);
    kin_pack_transpose(b + 96, 8, r, p->scale_low);
    kin_pack_transpose(b + 104, 4, r, p->scale_high);
    memcpy(&p->d[2 * r], b + 108, 2);
}

static void pack_q2_k(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_q2_k *p = panel;
    kin_pack_transpose(b, 16, r, p->scale);
    kin_pack_interleave(b + 16, 64, r, p->q);
    memcpy(&p->d[2 * r], b + 80, 2);
    memcpy(&p->d_min[2 * r], b + 82, 2);
}

static void pack_iq4_xs(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq4_xs *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    kin_pack_transpose(b + 2, 2, r, p->scale_high);
    kin_pack_transpose(b + 4, 4, r, p->scale_low);
    kin_pack_interleave(b + 8, 128, r, p->q);
}

// Packs blocks of 32 columns: a scale, then the weights.
static void pack_32(const uint8_t *b, int n, int r, int scale_bytes, int q_bytes, uint8_t *panel) {
    uint8_t *scales = panel + (ptrdiff_t)n * 16 * q_bytes;
    for (int g = 0; g < n; g++, b += scale_bytes + q_bytes) {
        memcpy(scales + (16 * g + r) * scale_bytes, b, (size_t)scale_bytes);
        kin_pack_interleave(b + scale_bytes, q_bytes, r, panel + (ptrdiff_t)g * 16 * q_bytes);
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

static void pack_scale_min(const uint8_t *b, int r, kin_panel_scale_min *to) {
    memcpy(&to->d[2 * r], b, 2);
    memcpy(&to->m[2 * r], b + 2, 2);
}

static void pack_q4_1(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_q4_0 *p = panel;
    kin_panel_scale_min *scale = (kin_panel_scale_min *)(p + n);
    for (int g = 0; g < n; g++, b += 20) {
        pack_scale_min(b, r, &scale[g]);
        kin_pack_interleave(b + 4, 16, r, p[g].q);
    }
}

// Packs 32 bits, one for each column: bit 4 j + b becomes bit j of byte b.
static void pack_bits(const uint8_t *b, int r, uint8_t *plane) {
    uint32_t x, t;
    memcpy(&x, b, sizeof x);
    for (int i = 0; i < 4; i++) {
        t = x >> i & 0x11111111; // bits i, i + 4, ...
        t = (t | t >> 3) & 0x03030303;
        t = (t | t >> 6) & 0x000f000f;
        plane[4 * r + i] = (uint8_t)(t | t >> 12);
    }
}

static void pack_q5_0(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_q5_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + n);
    for (int g = 0; g < n; g++, b += 22) {
        memcpy(&scale[g].d[2 * r], b, 2);
        pack_bits(b + 2, r, p[g].high);
        kin_pack_interleave(b + 6, 16, r, p[g].low);
    }
}

static void pack_q5_1(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_q5_0 *p = panel;
    kin_panel_scale_min *scale = (kin_panel_scale_min *)(p + n);
    for (int g = 0; g < n; g++, b += 24) {
        pack_scale_min(b, r, &scale[g]);
        pack_bits(b + 4, r, p[g].high);
        kin_pack_interleave(b + 8, 16, r, p[g].low);
    }
}

static void pack_nvfp4(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_nvfp4 *p = panel;
    kin_panel_scale_ue4m3 *scale = (kin_panel_scale_ue4m3 *)(p + 2 * n);
    for (int i = 0; i < n; i++, b += 36) {
        kin_pack_transpose(b, 4, r, scale[2 * i].e);
        kin_pack_interleave(b + 4, 32, r, p[2 * i].q);
    }
}

// Four bytes of four weights each -> four bytes: the first weights, the second ones, ...
static void pack_q2_0(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_q2_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + 2 * n);
    for (int i = 0; i < n; i++, b += 18) {
        memcpy(&scale[i].d[2 * r], b, 2);
        for (int k = 0; k < 16; k++) {
            int x = 0;
            for (int t = 0; t < 4; t++) x |= (b[2 + k / 4 * 4 + t] >> k % 4 * 2 & 3) << 2 * t;
            p[2 * i + k / 8].q[k / 4 % 2][4 * r + k % 4] = (uint8_t)x;
        }
    }
}

static void pack_q1_0(const uint8_t *b, int n, int r, void *panel) {
    kin_panel_q1_0 *p = panel;
    kin_panel_scale_f16 *scale = (kin_panel_scale_f16 *)(p + 4 * n);
    for (int i = 0; i < n; i++, b += 18) {
        memcpy(&scale[i].d[2 * r], b, 2);
        for (int g = 0; g < 4; g++) pack_bits(b + 2 + 4 * g, r, p[4 * i + g].q);
    }
}

static void pack_tq1_0(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_tq1_0 *p = panel;
    kin_pack_interleave(b, 52, r, p->q);
    memcpy(&p->d[2 * r], b + 52, 2);
}

static void pack_tq2_0(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_tq2_0 *p = panel;
    kin_pack_interleave(b, 64, r, p->q);
    memcpy(&p->d[2 * r], b + 64, 2);
}

typedef struct format {
    int type;
    kin_act_kind kind;
    int columns, bytes; // of a block in GGUF
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
    for (int r = 0; r < n; r++) f->pack(rows + (size_t)r * row_bytes, columns / f->columns, r, block);
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
