// The local stage: the head's own layers, a shard with the output layer. It stays open across plans that give the head the same
// work. It also publishes its counters.
//
// Owner: cluster/head/requests.h. Thread: the computing one, except kin_local_stage_status.
#pragma once

#include "pipeline/head.h"
#include "pure/plan/window.h"

typedef struct kin_local_stage kin_local_stage;

typedef struct kin_local_stage_options {
    const kin_model *model; // borrowed, like all pointers here
    const kin_devices *devices;
    kin_shard_options shard; // except windows, share, output and steps
    kin_sum sum;             // for shares of layers
} kin_local_stage_options;

int kin_local_stage_open(kin_local_stage **out, const kin_local_stage_options *options, kin_err *err);
void kin_local_stage_close(kin_local_stage *stage); // NULL is allowed

// The head's part of a plan.
typedef struct kin_local_work {
    kin_member_windows windows;
    kin_share share; // of each layer
    int n_rounds;
    uint64_t memory; // 0: as in the options
} kin_local_work;

// Switches to this work.
int kin_local_stage_set(kin_local_stage *stage, const kin_local_work *work, kin_err *err);

// Any thread: packs ahead what these windows will need, except the layers in `but`; see kin_shard_prepack. The output layer is
// already packed, since every local stage has it.
int kin_local_stage_prepack(const kin_local_stage_options *options, const kin_windows *windows, const kin_windows *but,
                            const atomic_bool *stop, kin_packed **held, kin_err *err);

kin_shard *kin_local_stage_shard(kin_local_stage *stage); // NULL before the first work
kin_stage_executor *kin_local_stage_executor(kin_local_stage *stage);
kin_head_counts *kin_local_stage_counts(kin_local_stage *stage);

// Publishes counters. Call it often.
void kin_local_stage_publish(kin_local_stage *stage);

// Any thread: returns the status, without what the network thread adds; *ready: what the stage holds.
kin_proto_status kin_local_stage_status(kin_local_stage *stage, kin_proto_ready *ready);
