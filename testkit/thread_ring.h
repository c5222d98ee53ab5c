// A ring of threads in one process: every member with a shard of its own, frames by queues instead of links.
//
// Owner: the test. The head belongs to the calling thread, the other members compute in threads of their own.
#pragma once

#include "pipeline/head.h"
#include "pipeline/remote_ring.h"
#include "pure/plan/rounds.h"

enum { KIN_THREAD_RING_MEMBERS = 8 };

typedef struct kin_thread_ring_options {
    int n_members; // the last one is the head
    kin_round_share shares[KIN_THREAD_RING_MEMBERS];
    int n_batch, n_chunk, n_ctx, n_steps;
    kin_activation_type type;
    const char *kv_dirs[KIN_THREAD_RING_MEMBERS]; // for pages of the KV cache; NULL: none
    bool gpu;                                     // open the GPU for members with GPU layers
} kin_thread_ring_options;

typedef struct kin_thread_ring kin_thread_ring;

int kin_thread_ring_open(kin_thread_ring **out, const char *path, const kin_thread_ring_options *options, kin_err *err);
void kin_thread_ring_close(kin_thread_ring *ring);

kin_head *kin_thread_ring_head(kin_thread_ring *ring);
const kin_model *kin_thread_ring_model(const kin_thread_ring *ring);
int kin_thread_ring_n_rounds(const kin_thread_ring *ring);
