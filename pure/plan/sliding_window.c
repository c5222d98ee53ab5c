#include "pure/plan/sliding_window.h"

bool kin_sliding_window_retains(const kin_sliding_window *w, int layer) {
    return w->retain > 0 && layer % w->retain == 0;
}

// Returns how many of the first l layers keep their feed-forward block: ceil(l / T).
static int n_retained(const kin_sliding_window *w, int l) {
    return w->retain > 0 ? (l + w->retain - 1) / w->retain : 0;
}

uint64_t kin_sliding_window_bytes(const kin_sliding_window *w, const kin_sliding_blocks *b) {
    uint64_t most = 0;
    for (int n_tiles = 0; n_tiles <= b->n_tiles && n_tiles <= w->n_blocks; n_tiles++) {
        uint64_t n = (uint64_t)(w->n_blocks - n_tiles);
        uint64_t bytes = n / 2 * b->attn_bytes + (n + 1) / 2 * b->ff_bytes + (uint64_t)n_tiles * b->tile_bytes;
        if (bytes > most) most = bytes;
    }
    return most + b->retained_bytes;
}

bool kin_sliding_window_is_tightly_steady(const kin_sliding_times *t) {
    return t->attn_s + t->sum_s >= t->load_ff_s && t->ff_s + t->sum_s >= t->load_attn_s;
}

// Equations 9 and 10, which are 4 and 5 if no block stays; then 6 may hold instead of 5: only the first block is late.
bool kin_sliding_window_is_steady(const kin_sliding_window *w, int n_layers, const kin_sliding_times *t) {
    bool from_attn = true, from_ff = w->retain == 0;
    for (int l = 1; l <= n_layers; l++) {
        double loads_s = (l - n_retained(w, l)) * t->load_ff_s, sums_s = (2 * l - 1) * t->sum_s;
        if (l * (t->attn_s + t->ff_s + 2 * t->sum_s) < loads_s + l * t->load_attn_s) return false;
        if (l * t->attn_s + (l - 1) * t->ff_s + sums_s < loads_s + (l - 1) * t->load_attn_s) from_attn = false;
        if ((l - 1) * t->attn_s + l * t->ff_s + sums_s < (l - 1) * t->load_ff_s + l * t->load_attn_s) from_ff = false;
    }
    return from_attn || from_ff;
}
