// The loopback transport: a ring whose only member is the head. What is sent comes back unchanged.
#pragma once

#include "pipeline/head.h"
#include "pipeline/ring_transport.h"

typedef struct kin_loopback kin_loopback;

// For steps of at most n_batch rows of n_embd numbers at most (kin_border_most); n_steps in flight at once.
int kin_loopback_open(kin_loopback **out, int n_batch, int n_embd, int n_steps, kin_err *err);
void kin_loopback_close(kin_loopback *loopback);

// Valid until close.
kin_ring_transport kin_loopback_transport(kin_loopback *loopback);

// A head over one shard that has all layers and the output, with the objects that it needs.
typedef struct kin_loopback_head {
    kin_loopback *loopback;
    kin_stage_executor *executor;
    kin_head *head;
} kin_loopback_head;

// Model and shard are borrowed until close. n_batch: the shard's.
int kin_loopback_head_open(kin_loopback_head *out, const kin_model *model, kin_shard *shard, int n_batch, kin_err *err);
void kin_loopback_head_close(kin_loopback_head *head);
