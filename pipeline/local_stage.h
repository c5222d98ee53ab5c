// The local stage: the head's own layers, a shard with the output layer. It stays open from one plan to the next where the work
// is the same. It also publishes counters of what it does.
//
// Owner: cluster/cluster.c. Thread: the computing one, but for kin_local_stage_status.
#pragma once

#include "pipeline/head.h"
#include "pure/plan/rounds.h"

typedef struct kin_local_stage kin_local_stage;

typedef struct kin_local_stage_options {
    const kin_model *model; // borrowed, as all here
    const kin_devices *devices;
    kin_shard_options shard; // but for windows, share, output and steps
    kin_sum sum;             // for shares
} kin_local_stage_options;

int kin_local_stage_open(kin_local_stage **out, const kin_local_stage_options *options, kin_err *err);
void kin_local_stage_close(kin_local_stage *stage); // NULL is allowed

// What the head has to do.
typedef struct kin_local_work {
    kin_member_windows windows;
    kin_share share; // of each layer
    int n_rounds;
    uint64_t memory; // 0: as the options say
} kin_local_work;

// Takes over this work.
int kin_local_stage_set(kin_local_stage *stage, const kin_local_work *work, kin_err *err);

// Any thread: packs ahead what these windows will need, but for the layers in `but`; see kin_shard_prepack. The output layer is
// packed already: each local stage has it.
int kin_local_stage_prepack(const kin_local_stage_options *options, const kin_windows *windows, const kin_windows *but,
                            const atomic_bool *stop, kin_packed **held, kin_err *err);

kin_shard *kin_local_stage_shard(kin_local_stage *stage); // NULL before the first work
kin_stage_executor *kin_local_stage_executor(kin_local_stage *stage);
kin_head_counts *kin_local_stage_counts(kin_local_stage *stage);

// To be called often: publishes counters.
void kin_local_stage_publish(kin_local_stage *stage);

// Any thread: how it is, but for what the network knows, and what it holds.
kin_proto_status kin_local_stage_status(kin_local_stage *stage, kin_proto_ready *ready);
