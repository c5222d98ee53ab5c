// Ranges of code points as ranges of UTF-8 bytes: [U+00E0, U+07FF] is [C3][A0-BF] and [C4-DF][80-BF].
//
// The method of RE2 and of Rust's utf8-ranges: a range is cut until all its code points have the same length and every byte but
// the last that differs runs over all of its values. At most 7 pieces for each length.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/text/utf8.h"

typedef struct kin_utf8_piece {
    int n; // bytes, 1 to KIN_UTF8_MAX
    uint8_t lo[KIN_UTF8_MAX], hi[KIN_UTF8_MAX];
} kin_utf8_piece;

// Takes the first piece off [*lo, *hi] (scalar values, no surrogate in between) and moves *lo behind it. False when *lo > *hi.
bool kin_utf8_ranges_next(uint32_t *lo, uint32_t hi, kin_utf8_piece *piece);
