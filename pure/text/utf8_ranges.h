// Ranges of code points as ranges of UTF-8 bytes: [U+00E0, U+07FF] is [C3][A0-BF] and [C4-DF][80-BF].
//
// The method of RE2 and of Rust's utf8-ranges: a range is split until all its code points have the same length, and every byte
// after the first byte that differs takes all of its values. At most 7 pieces for each length.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/text/utf8.h"

typedef struct kin_utf8_piece {
    int n; // bytes, 1 to KIN_UTF8_MAX
    uint8_t lo[KIN_UTF8_MAX], hi[KIN_UTF8_MAX];
} kin_utf8_piece;

// Removes the first piece from [*lo, hi] (scalar values, no surrogates in between) and moves *lo past it. Returns false if *lo
// > hi.
bool kin_utf8_ranges_next(uint32_t *lo, uint32_t hi, kin_utf8_piece *piece);
