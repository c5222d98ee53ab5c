// GGUF's rows -> panels of 16 rows (panel.h). Plain C: packing is bound by the disk.
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/panel.h"

// Bits of 6-bit scale j (0..7) and minimum j of Q4_K and Q5_K: 12 bytes, the first eight hold the low six bits of scales and
// minima 0..3, and the high two bits of 4..7; the last four hold nibbles of 4..7.
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

static void pack_q4_k(const uint8_t *b, int r, void *panel) {
    kin_panel_q4_k *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    memcpy(&p->d_min[2 * r], b + 2, 2);
    pack_scales_k4(b + 4, r, &p->scales);
    for (int i = 0; i < 32; i++) memcpy(&p->q[i][4 * r], b + 16 + 4 * i, 4);
}

typedef struct format {
    int type;
    kin_act_kind kind;
    size_t row_bytes; // of a block of 256 columns, in GGUF and packed
    void (*pack)(const uint8_t *block, int row, void *panel);
} format;

static const format formats[] = {
    {KIN_TYPE_Q4_K, KIN_ACT_256, 144, pack_q4_k},
};

static const format *find(int type) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

kin_act_kind kin_kernel_act_kind(int type) {
    const format *f = find(type);
    return f ? f->kind : KIN_ACT_NONE;
}

bool kin_kernel_packs(int type) {
    const format *f = find(type);
    return f && f->pack;
}

bool kin_kernel_has(int type, int64_t columns, int64_t rows) {
    kin_act_kind kind = kin_kernel_act_kind(type);
    int64_t step = kind == KIN_ACT_256 ? KIN_ACT_COLUMNS : kind == KIN_ACT_32 ? 32 : 16;
    return kind != KIN_ACT_NONE && columns % step == 0 && rows % KIN_PANEL_ROWS == 0;
}

void kin_kernel_pack(int type, int64_t columns, int64_t rows, const void *src, void *dst) {
    const format *f = find(type);
    kin_assert(f && f->pack && kin_kernel_has(type, columns, rows));
    int64_t n_blocks = columns / KIN_ACT_COLUMNS;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *from = (const uint8_t *)src + (size_t)(r * n_blocks) * f->row_bytes;
        uint8_t *panel = (uint8_t *)dst + (size_t)(r / KIN_PANEL_ROWS * n_blocks) * KIN_PANEL_ROWS * f->row_bytes;
        for (int64_t b = 0; b < n_blocks; b++) {
            f->pack(from + (size_t)b * f->row_bytes, (int)(r % KIN_PANEL_ROWS),
                    panel + (size_t)b * KIN_PANEL_ROWS * f->row_bytes);
        }
    }
}
