// A seat: what a device computes its part of a plan with. Model file, compute devices, shard, and the worker over them.
//
// Owner and thread: the computing thread.
#pragma once

#include <stdatomic.h>

#include "engine/shard.h"
#include "pure/plan/rounds.h"
#include "ring/worker.h"

typedef struct kin_seat kin_seat;

typedef struct kin_seat_options {
    const char *model_path; // of the first file
    bool in_parts;          // it has only what the plan needs
    const char *cache_dir;  // of prepacked weights; NULL: none
    uint64_t cache_cap;
    uint64_t memory; // cap of this device; 0: none
    int n_threads;   // 0: what the plan says, or one per core
    bool no_gpu;
    const kin_arrival *arrival; // of what is not in the files yet, borrowed until close; NULL: all is
    kin_parcels *pool;
    atomic_bool *stop;
    kin_progress progress;
    void *progress_user;
} kin_seat_options;

// The plan is a peer's: what it asks for is checked against the model and this machine. With an arrival it is open when the first
// window's weights are here; steps wait for the others'.
int kin_seat_open(kin_seat **out, const kin_proto_plan *plan, const kin_seat_options *options, kin_err *err);
void kin_seat_close(kin_seat *seat);

kin_worker *kin_seat_worker(kin_seat *seat);
kin_part *kin_seat_part(kin_seat *seat);
int kin_seat_n_embd(const kin_seat *seat);
int kin_seat_n_rounds(const kin_seat *seat);

// Zeros for a relay.
kin_shard_stats kin_seat_stats(const kin_seat *seat);

// When weights were read from the disk, and waited for: see kin_stream_take_intervals.
size_t kin_seat_take_intervals(kin_seat *seat, kin_stream_record record, kin_interval *out, size_t n_max);

// The windows of a plan and their rounds. Fails if they cannot be of a model with n_layer layers.
int kin_seat_windows(const kin_proto_plan *plan, int n_layer, kin_member_windows *out, kin_err *err);

// What the steps of its ring have in common.
kin_steps kin_seat_steps(const kin_proto_plan *plan, int n_embd);
