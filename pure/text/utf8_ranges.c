#include "pure/text/utf8_ranges.h"

// Returns the last code point of the piece that begins at lo.
static uint32_t piece_end(uint32_t lo, uint32_t hi) {
    static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff};
    for (int i = 0; i < 3; i++) {
        if (lo <= last_of_length[i] && hi > last_of_length[i]) hi = last_of_length[i];
    }
    for (int i = 1; i < KIN_UTF8_MAX && hi >= 0x80; i++) {
        uint32_t mask = (1u << (6 * i)) - 1; // the last i bytes
        if ((lo & ~mask) == (hi & ~mask)) continue;
        if ((lo & mask) != 0)
            hi = lo | mask; // up to the last value before the byte in front of them changes
        else if ((hi & mask) != mask)
            hi = (hi & ~mask) - 1;
    }
    return hi;
}

bool kin_utf8_ranges_next(uint32_t *lo, uint32_t hi, kin_utf8_piece *piece) {
    if (*lo > hi) return false;
    uint32_t end = piece_end(*lo, hi);
    piece->n = kin_utf8_put((char *)piece->lo, *lo);
    kin_utf8_put((char *)piece->hi, end);
    *lo = end + 1;
    return true;
}
