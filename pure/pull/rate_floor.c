#include "pure/pull/rate_floor.h"

static void begin_window(kin_rate_floor *f, uint64_t n) {
    f->counted_ms = 0;
    f->n_begin = n;
}

bool kin_rate_floor_is_missed(kin_rate_floor *f, uint64_t now_ms, uint64_t n, bool counts, uint64_t *n_window) {
    if (f->window_ms == 0) return false;
    if (!f->has_begun) begin_window(f, n);
    if (f->has_begun && counts) f->counted_ms += now_ms - f->seen_ms;
    f->has_begun = true;
    f->seen_ms = now_ms;
    if (f->counted_ms < f->window_ms) return false;
    *n_window = n - f->n_begin;
    bool is_missed = *n_window * 1000 < KIN_RATE_FLOOR_BYTES_S * f->counted_ms;
    begin_window(f, n);
    return is_missed;
}
