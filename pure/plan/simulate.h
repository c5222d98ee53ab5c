// A device that streams, simulated block by block: a block's streamed weight blocks are read as early as the disk is free and the
// ring has room for them whole; the block is computed when they are there, and gives their room back afterwards.
//
// device_time.h simulates a few layers, to learn what a layer costs; timeline.h whole plans. Time is an argument.
//
// As in the engine: a layer is three blocks: attention (one weight block), gate with up (two), down (one; gate, up and down count
// as equal). Experts are not streamed: what else a feed-forward block of experts has is one weight block and one block.
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

// What is computed at once while weights stream.
typedef struct kin_simulation_block {
    int n_weight_block; // of the same size
    double bytes;
    double compute_share; // of the layer's time
} kin_simulation_block;

typedef struct kin_simulation {
    double ring_bytes, disk_bytes_s;
    double read_end; // when the disk is free
    // The last reads, by their number modulo KIN_SIMULATE_REMEMBERED: bytes, and when their room was free again.
    double read_bytes[KIN_SIMULATE_REMEMBERED], released[KIN_SIMULATE_REMEMBERED];
    unsigned n_read, n_released;
} kin_simulation;

// A device with an empty ring, whose disk is free from read_start_s on.
void kin_simulate_init(kin_simulation *p, double ring_bytes, double disk_bytes_s, double read_start_s);

// The blocks of a layer, in the order of computing; those that a layer does not have are without weight blocks. heads, ff: of a
// device that has a share of attention, and of the feed-forward block; 1: all of it. Returns the number of weight blocks.
int kin_simulate_blocks(const kin_model_facts *m, double heads, double ff,
                        kin_simulation_block blocks[KIN_SIMULATE_MAX_COMPUTE_BLOCKS]);

// Devices that share a layer add up after attention, and after the last block.
static inline bool kin_simulate_adds_up(int i_block) {
    return i_block == 0 || i_block == KIN_SIMULATE_MAX_COMPUTE_BLOCKS - 1;
}

// One block of n weight blocks from `now` on, of bytes[i] each, computed in compute_s. Returns when that is done.
double kin_simulate_compute(kin_simulation *p, double now, int n, const uint64_t *bytes, const bool *resident, double compute_s);
