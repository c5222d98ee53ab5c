// A ring of threads in one process: each member has its own shard, and frames go through queues instead of links. Consecutive
// members may form a group that shares each layer; their sums are added in memory.
//
// Owner: the test. The head belongs to the calling thread; the other members compute in their own threads.
#pragma once

#include "model/share.h"
#include "pipeline/head.h"
#include "pipeline/remote_ring.h"
#include "pure/plan/plan.h"

enum { KIN_THREAD_RING_MEMBERS = 8 };

typedef struct kin_thread_ring_options {
    int n_members; // the last one is the head
    kin_layer_share shares[KIN_THREAD_RING_MEMBERS];
    int n_batch, n_chunk, n_ctx, n_steps;
    int n_sequences; // for whose windows windowed layers have room; 0: they keep the whole context
    kin_activation_type type;
    const char *kv_dirs[KIN_THREAD_RING_MEMBERS]; // for pages of the KV cache; NULL: none
    bool gpu;                                     // open the GPU for members with GPU layers
    // A group is n_ranks consecutive members, starting with rank 0; only that one has layers in `shares`. Zeros: no group.
    struct {
        int rank, n_ranks;
        double weight; // determines its share
    } group[KIN_THREAD_RING_MEMBERS];
    enum ggml_type kv_type; // 0: F16
    const char *cache_dir;  // for prepacked weights; each member has a folder with this name and its number. NULL: none
    uint64_t budget;        // limit in bytes for each member; 0: what the machine can spare
    uint64_t budgets[KIN_THREAD_RING_MEMBERS]; // of single members; 0: `budget`
    kin_sliding_window sliding;
    bool no_repack;
    bool swaps; // the last member before the head returns its answers in pairs, the second one first
} kin_thread_ring_options;

typedef struct kin_thread_ring kin_thread_ring;

int kin_thread_ring_open(kin_thread_ring **out, const char *path, const kin_thread_ring_options *options, kin_err *err);
void kin_thread_ring_close(kin_thread_ring *ring);

kin_head *kin_thread_ring_head(kin_thread_ring *ring);
void kin_thread_ring_wake(kin_thread_ring *ring); // wakes the head, as kin_message_queue_wake does
const kin_model *kin_thread_ring_model(const kin_thread_ring *ring);
kin_shard_stats kin_thread_ring_stats(const kin_thread_ring *ring, int member);
const kin_share *kin_thread_ring_share(const kin_thread_ring *ring, int member);
// For the member's group: see kin_memory_sum_bits. Call while no step is in flight.
uint64_t kin_thread_ring_bits(kin_thread_ring *ring, int member, uint64_t *n_sums);
// Makes all further sums of the member's group fail.
void kin_thread_ring_break(kin_thread_ring *ring, int member);
int kin_thread_ring_n_rounds(const kin_thread_ring *ring);
