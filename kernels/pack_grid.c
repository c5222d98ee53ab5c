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
static void pack_signs(const uint8_t *b, int r, kin_panel_signs *to) {
    for (int i = 0; i < 4; i++) {
        uint64_t x = 0;
        for (int g = 0; g < 8; g++) x |= (uint64_t)b[4 * g + i] << 8 * g;
        x = transpose_bits(x);
        const uint32_t low = (uint32_t)x, high = (uint32_t)(x >> 32);
        memcpy(to->q[2 * i] + 4 * r, &low, 4);
        memcpy(to->q[2 * i + 1] + 4 * r, &high, 4);
    }
}

// b // u32 [8], `step` bytes apart: 4 times 7 signs and a scale of 4 bits
static void pack_signs_and_scales(const uint8_t *b, int step, int r, kin_panel_signs *to) {
    uint8_t signs[32], scale[8];
    for (int g = 0; g < 8; g++) {
        uint32_t x;
        memcpy(&x, b + step * g, sizeof x);
        for (int i = 0; i < 4; i++) signs[4 * g + i] = x >> 7 * i & 127;
        scale[g] = (uint8_t)(x >> 28);
    }
    pack_signs(signs, r, to);
    for (int i = 0; i < 4; i++) to->q[2 * i + 1][4 * r + 3] = (uint8_t)(scale[2 * i] | scale[2 * i + 1] << 4);
}

void kin_pack_iq3_xxs(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq3_xxs *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    kin_pack_transpose(b + 2, 64, r, p->index);
    pack_signs_and_scales(b + 66, 4, r, &p->signs);
}

void kin_pack_iq3_s(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq3_s *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    kin_pack_transpose(b + 2, 64, r, p->index);
    kin_pack_transpose(b + 66, 8, r, p->high);
    pack_signs(b + 74, r, &p->signs);
    kin_pack_transpose(b + 106, 4, r, p->scale);
}

void kin_pack_iq2_xxs(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq2_xxs *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    for (int g = 0; g < 8; g++) kin_pack_transpose(b + 2 + 8 * g, 4, r, p->index[4 * g]);
    pack_signs_and_scales(b + 6, 8, r, &p->signs);
}

void kin_pack_iq2_xs(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq2_xs *p = panel;
    uint8_t signs[32];
    memcpy(&p->d[2 * r], b, 2);
    for (int i = 0; i < 32; i++) {
        const int x = b[2 + 2 * i] | b[3 + 2 * i] << 8;
        p->index[i][r] = (uint8_t)x;
        signs[i] = (uint8_t)(x >> 9 | (x >> 8 & 1) << 7);
    }
    pack_signs(signs, r, &p->signs);
    kin_pack_transpose(b + 66, 8, r, p->scale);
}

void kin_pack_iq2_s(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq2_s *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    kin_pack_transpose(b + 2, 32, r, p->index);
    pack_signs(b + 34, r, &p->signs);
    kin_pack_transpose(b + 66, 8, r, p->high);
    kin_pack_transpose(b + 74, 8, r, p->scale);
}

void kin_pack_iq1_s(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq1_s *p = panel;
    memcpy(&p->d[2 * r], b, 2);
    kin_pack_transpose(b + 2, 32, r, p->index);
    for (int g = 0; g < 8; g++) memcpy(&p->high[g][2 * r], b + 34 + 2 * g, 2);
}

void kin_pack_iq1_m(const uint8_t *b, int n, int r, void *panel) {
    (void)n;
    kin_panel_iq1_m *p = panel;
    kin_pack_transpose(b, 32, r, p->index);
    kin_pack_transpose(b + 32, 16, r, p->high);
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) d |= (uint32_t)(b[49 + 2 * i] >> 4) << 4 * i;
    for (int g = 0; g < 8; g++) {
        const int four = b[48 + g / 2 * 2] | b[49 + g / 2 * 2] << 8;
        p->scale[g][r] = (uint8_t)((four >> g % 2 * 6 & 63) | (d >> 2 * g & 3) << 6);
    }
}
