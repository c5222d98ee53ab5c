#include "pure/jinja/letters.h"

#include <stdbool.h>
#include <stddef.h>

// Lower-case letters first, first + step, ..., last; the upper-case letter is at distance `to_upper`. one_way: the upper-case
// letter belongs to another lower-case letter too, which it maps back to.
static const struct {
    uint32_t first, last, step;
    int32_t to_upper;
    bool one_way;
} letters[] = {
    // beyond ASCII
    {0xb5, 0xb5, 1, 743, true},        {0xe0, 0xf6, 1, -32, false},     {0xf8, 0xfe, 1, -32, false},
    {0xff, 0xff, 1, 121, false},       {0x101, 0x12f, 2, -1, false},    {0x131, 0x131, 1, -232, true},
    {0x133, 0x137, 2, -1, false},      {0x13a, 0x148, 2, -1, false},    {0x14b, 0x177, 2, -1, false},
    {0x17a, 0x17e, 2, -1, false},      {0x17f, 0x17f, 1, -300, true},   {0x1ce, 0x1dc, 2, -1, false},
    {0x1df, 0x1ef, 2, -1, false},      {0x1f9, 0x21f, 2, -1, false},    {0x223, 0x233, 2, -1, false},
    {0x3ac, 0x3ac, 1, -38, false},     {0x3ad, 0x3af, 1, -37, false},   {0x3b1, 0x3c1, 1, -32, false},
    {0x3c2, 0x3c2, 1, -31, true},      {0x3c3, 0x3cb, 1, -32, false},   {0x3cc, 0x3cc, 1, -64, false},
    {0x3cd, 0x3ce, 1, -63, false},     {0x430, 0x44f, 1, -32, false},   {0x450, 0x45f, 1, -80, false},
    {0x461, 0x481, 2, -1, false},      {0x48b, 0x4bf, 2, -1, false},    {0x4c2, 0x4ce, 2, -1, false},
    {0x4cf, 0x4cf, 1, -15, false},     {0x4d1, 0x52f, 2, -1, false},    {0x561, 0x586, 1, -48, false},
    {0x10d0, 0x10fa, 1, 3008, false},  {0x1e01, 0x1e95, 2, -1, false},  {0x1ea1, 0x1eff, 2, -1, false},
    {0x2170, 0x217f, 1, -16, false},   {0x24d0, 0x24e9, 1, -26, false}, {0xff41, 0xff5a, 1, -32, false},
    {0x10428, 0x1044f, 1, -40, false},
};
enum { N_LETTERS = sizeof letters / sizeof *letters };

uint32_t kin_upper_of(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
    for (size_t i = 0; i < N_LETTERS; i++) {
        if (c >= letters[i].first && c <= letters[i].last && (c - letters[i].first) % letters[i].step == 0)
            return (uint32_t)((int32_t)c + letters[i].to_upper);
    }
    return c;
}

uint32_t kin_lower_of(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    for (size_t i = 0; i < N_LETTERS; i++) {
        uint32_t lower = (uint32_t)((int32_t)c - letters[i].to_upper);
        if (!letters[i].one_way && lower >= letters[i].first && lower <= letters[i].last &&
            (lower - letters[i].first) % letters[i].step == 0)
            return lower;
    }
    return c;
}
