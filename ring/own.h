// The head's own part of a ring: its shard with the output layer, kept open from one plan to the next as far as the work is the
// same, and what it does, for who wants to see it.
//
// Owner: ring/cluster.c. Thread: the computing one, but for kin_own_status.
#pragma once

#include "pure/plan/rounds.h"
#include "ring/head.h"

typedef struct kin_own kin_own;

typedef struct kin_own_options {
    const kin_model *model; // borrowed, as all here
    const kin_devices *devices;
    kin_shard_options shard; // but for windows, output and steps
} kin_own_options;

int kin_own_open(kin_own **out, const kin_own_options *options, kin_err *err);
void kin_own_close(kin_own *own); // NULL is allowed

// Takes over this work; memory: 0: as the options say.
int kin_own_set(kin_own *own, const kin_member_windows *windows, int n_rounds, uint64_t memory, kin_err *err);

kin_shard *kin_own_shard(kin_own *own); // NULL before the first work
kin_part *kin_own_part(kin_own *own);
kin_head_counts *kin_own_counts(kin_own *own);

// To be called often: publishes counters.
void kin_own_publish(kin_own *own);

// Any thread: how it is, but for what the network knows, and what it holds.
kin_proto_status kin_own_status(kin_own *own, kin_proto_ready *ready);
