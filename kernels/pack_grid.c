// Packs the types whose weights are entries of a grid.
#include "kernels/pack.h"

// Transposes a matrix of 8 by 8 bits: byte i of x is row i, lowest bit first.
static uint64_t transpose_bits(uint64_t x) {
    uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
    return x ^ t ^ t << 28;
}

// b // [32] bytes whose bits are the signs of 8 columns
static void pack_row_signs(const uint8_t *b, int r, kin_panel_signs *to) {
    for (int i = 0; i < 4; i++) {
        uint64_t x = 0;
        for (int g = 0; g < 8; g++) x |= (uint64_t)b[4 * g + i] << 8 * g;
        x = transpose_bits(x);
        const uint32_t low = (uint32_t)x, high = (uint32_t)(x >> 32);
        memcpy(to->q[2 * i] + 4 * r, &low, 4);
        memcpy(to->q[2 * i + 1] + 4 * r, &high, 4);
    }
}

static void pack_signs(kin_pack_rows rows, kin_panel_signs *to) {
    for (int r = 0; r < rows.n; r++) pack_row_signs(kin_pack_row(rows, r), r, to);
}

// rows // u32 [8], `step` bytes apart: 4 times 7 signs and a scale of 4 bits
static void pack_signs_and_scales(kin_pack_rows rows, int step, kin_panel_signs *to) {
    for (int r = 0; r < rows.n; r++) {
        uint8_t signs[32], scale[8];
        for (int g = 0; g < 8; g++) {
            uint32_t x;
            memcpy(&x, kin_pack_row(rows, r) + step * g, sizeof x);
            for (int i = 0; i < 4; i++) signs[4 * g + i] = x >> 7 * i & 127;
            scale[g] = (uint8_t)(x >> 28);
        }
        pack_row_signs(signs, r, to);
        for (int i = 0; i < 4; i++) to->q[2 * i + 1][4 * r + 3] = (uint8_t)(scale[2 * i] | scale[2 * i + 1] << 4);
    }
}

void kin_pack_iq3_xxs(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq3_xxs *p = panel;
    kin_pack_halves(rows, p->d);
    kin_pack_transpose(kin_pack_from(rows, 2), 64, p->index);
    pack_signs_and_scales(kin_pack_from(rows, 66), 4, &p->signs);
}

void kin_pack_iq3_s(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq3_s *p = panel;
    kin_pack_halves(rows, p->d);
    kin_pack_transpose(kin_pack_from(rows, 2), 64, p->index);
    kin_pack_transpose(kin_pack_from(rows, 66), 8, p->high);
    pack_signs(kin_pack_from(rows, 74), &p->signs);
    kin_pack_transpose(kin_pack_from(rows, 106), 4, p->scale);
}

void kin_pack_iq2_xxs(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq2_xxs *p = panel;
    kin_pack_halves(rows, p->d);
    for (int g = 0; g < 8; g++) kin_pack_transpose(kin_pack_from(rows, 2 + 8 * g), 4, p->index[4 * g]);
    pack_signs_and_scales(kin_pack_from(rows, 6), 8, &p->signs);
}

void kin_pack_iq2_xs(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq2_xs *p = panel;
    kin_pack_halves(rows, p->d);
    for (int r = 0; r < rows.n; r++) {
        const uint8_t *b = kin_pack_row(rows, r);
        uint8_t signs[32];
        for (int i = 0; i < 32; i++) {
            const int x = b[2 + 2 * i] | b[3 + 2 * i] << 8;
            p->index[i][r] = (uint8_t)x;
            signs[i] = (uint8_t)(x >> 9 | (x >> 8 & 1) << 7);
        }
        pack_row_signs(signs, r, &p->signs);
    }
    kin_pack_transpose(kin_pack_from(rows, 66), 8, p->scale);
}

void kin_pack_iq2_s(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq2_s *p = panel;
    kin_pack_halves(rows, p->d);
    kin_pack_transpose(kin_pack_from(rows, 2), 32, p->index);
    pack_signs(kin_pack_from(rows, 34), &p->signs);
    kin_pack_transpose(kin_pack_from(rows, 66), 8, p->high);
    kin_pack_transpose(kin_pack_from(rows, 74), 8, p->scale);
}

void kin_pack_iq1_s(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq1_s *p = panel;
    kin_pack_halves(rows, p->d);
    kin_pack_transpose(kin_pack_from(rows, 2), 32, p->index);
    for (int g = 0; g < 8; g++) kin_pack_halves(kin_pack_from(rows, 34 + 2 * g), p->high[g]);
}

void kin_pack_iq1_m(kin_pack_rows rows, int n, void *panel) {
    (void)n;
    kin_panel_iq1_m *p = panel;
    kin_pack_transpose(rows, 32, p->index);
    kin_pack_transpose(kin_pack_from(rows, 32), 16, p->high);
    for (int r = 0; r < rows.n; r++) {
        const uint8_t *b = kin_pack_row(rows, r) + 48;
        uint32_t d = 0;
        for (int i = 0; i < 4; i++) d |= (uint32_t)(b[1 + 2 * i] >> 4) << 4 * i;
        for (int j = 0; j < 8; j++) {
            const int four = b[j / 2 * 2] | b[1 + j / 2 * 2] << 8;
            p->scale[j][r] = (uint8_t)((four >> j % 2 * 6 & 63) | (d >> 2 * j & 3) << 6);
        }
    }
}
