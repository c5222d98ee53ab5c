#include "engine/kv/window.h"

enum {
    KEPT_SEQUENCES = 2, // sequences that have ended and may be continued
    MORE_BLOCKS = 3,    // per sequence: the window begins and ends within a block, and 64 positions before it are kept
};

static int blocks_of(int n_tokens) {
    return (n_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

static bool has_windowed_layers(const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).is_windowed) return true;
    return false;
}

kin_kv_window kin_kv_window_of(const kin_hparams *hp, int n_ctx, int n_batch, int n_sequences) {
    const int n_all = blocks_of(n_ctx), n_step = blocks_of(n_batch < n_ctx ? n_batch : n_ctx);
    const kin_kv_window whole = {0};
    if (n_sequences == 0 || hp->window >= n_ctx || !has_windowed_layers(hp)) return whole;
    const int n_each = blocks_of(hp->window) + MORE_BLOCKS;
    const int n_new =
        2 * n_step > KIN_WINDOW_LOADS ? 2 * n_step : KIN_WINDOW_LOADS; // for the latest two steps, or a request that loads pages
    const int64_t n = ((int64_t)n_sequences + KEPT_SEQUENCES) * n_each + n_new;
    if (n >= n_all) return whole;
    return (kin_kv_window){.size = hp->window, .n_blocks = (int)n, .n_most = n_each + n_new};
}
