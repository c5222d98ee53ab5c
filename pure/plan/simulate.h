// A device that streams, simulated block by block: the streamed weight blocks of a block are read as soon as the disk is free and
// the ring has room for them whole; the block is computed when they have arrived, and then frees their room.
//
// device_time.h simulates a few layers to learn the cost of a layer; timeline.h simulates whole plans. Time is an argument.
//
// As in the engine, a layer has three blocks: attention (one weight block), gate and up (two), down (one; gate, up and down count
// as equal). Experts are not streamed: the rest of a feed-forward block with experts is one block with one weight block.
//
// Owner: the caller's storage, after kin_simulate_init.
#pragma once

#include <stdbool.h>

#include "pure/plan/facts.h"

enum {
    KIN_SIMULATE_MAX_COMPUTE_BLOCKS = 3, // of a layer
    KIN_SIMULATE_MAX_WEIGHT_BLOCKS = 4,
    KIN_SIMULATE_REMEMBERED = 256, // reads; a ring holds fewer
};

// A part of a layer that is computed at once while weights stream.
typedef struct kin_simulation_block {
    int n_weight_block; // weight blocks, all of the same size
    double bytes;
    double compute_share; // fraction of the layer's time
} kin_simulation_block;

typedef struct kin_simulation {
    double ring_bytes, disk_bytes_s;
    double read_end; // when the disk becomes free
    // The last reads, by their number modulo KIN_SIMULATE_REMEMBERED: their bytes, and when their room became free again.
    double read_bytes[KIN_SIMULATE_REMEMBERED], released[KIN_SIMULATE_REMEMBERED];
    unsigned n_read, n_released;
} kin_simulation;

// Starts with an empty ring and a disk that is free from read_start_s on.
void kin_simulate_init(kin_simulation *p, double ring_bytes, double disk_bytes_s, double read_start_s);

// Lists the blocks of a layer in computing order; blocks that a layer does not have get no weight blocks. heads, ff: the device's
// share of attention and of the feed-forward block; 1: all of it. Returns the number of weight blocks.
int kin_simulate_blocks(const kin_model_facts *m, double heads, double ff,
                        kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS]);

// True if devices that share a layer add up after this block: after attention, and after the last block.
static inline bool kin_simulate_adds_up(int i_block) {
    return i_block == 0 || i_block == KIN_SIMULATE_MAX_COMPUTE_BLOCKS - 1;
}

// Computes one block with n weight blocks of bytes[i] each, starting at `now`; computing takes compute_s. Returns when it is
// done.
double kin_simulate_compute(kin_simulation *p, double now, int n, const uint64_t *bytes, const bool *resident, double compute_s);
