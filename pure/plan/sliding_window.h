// TPI-LLM's sliding window memory scheduler (3.3): only some blocks of a device's layers are in memory, those being computed and
// the next ones. A block is the attention or the feed-forward part of a layer. One in `retain` of the feed-forward blocks stays
// in memory.
//
//     t_attn, t_ff: computing a block   t_sum: an allreduce   tau_attn, tau_ff: loading a block     [seconds]
//     l: the first l layers             T: retain             w: n_blocks
//
// kin's own scheduler is residency.h; this one is for comparison.
//
// Pure: no I/O, no clock, no threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct kin_sliding_window {
    int n_blocks; // w; 0: no sliding window
    int retain;   // T; 0: no block stays
} kin_sliding_window;

// True if the feed-forward block of this layer (from 0, among the device's layers) stays in memory.
bool kin_sliding_window_retains(const kin_sliding_window *window, int layer);

// The sizes of a device's blocks, in bytes.
typedef struct kin_sliding_blocks {
    int n_layers;
    uint64_t attn_bytes, ff_bytes; // the largest of all layers
    uint64_t retained_bytes;       // sum over all feed-forward blocks that stay
    int n_tiles;                   // of the output matrix, after the layers; 0: this device does not have it
    uint64_t tile_bytes;
} kin_sliding_blocks;

// Returns the peak memory. Proposition 5 for a worker, with a scaling factor of 1: floor(w / 2) attention and floor((w + 1) / 2)
// feed-forward blocks. Added to it: the blocks that stay and, on the master, the number of tiles in place of the oldest blocks
// that gives the largest sum. (The paper's master holds the whole output.)
uint64_t kin_sliding_window_bytes(const kin_sliding_window *window, const kin_sliding_blocks *blocks);

typedef struct kin_sliding_times {
    double attn_s, ff_s, sum_s;    // t
    double load_attn_s, load_ff_s; // tau
} kin_sliding_times;

// Proposition 4: true if computing each block and its sum takes at least as long as loading the next one.
bool kin_sliding_window_is_tightly_steady(const kin_sliding_times *times);

// Propositions 3 and 6: true if loading is hidden in each of the first n_layers layers, given the blocks that stay.
bool kin_sliding_window_is_steady(const kin_sliding_window *window, int n_layers, const kin_sliding_times *times);
