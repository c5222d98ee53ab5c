// The rest of the ring when the head is all there is: what is sent comes back as it is.
#pragma once

#include "ring/head.h"
#include "ring/port.h"

typedef struct kin_alone kin_alone;

// For steps of at most n_batch rows of n_embd, n_steps at once.
int kin_alone_open(kin_alone **out, int n_batch, int n_embd, int n_steps, kin_err *err);
void kin_alone_close(kin_alone *alone);

// Valid until close.
kin_port kin_alone_port(kin_alone *alone);

// A head over one shard with all layers and the output, and what belongs to it.
typedef struct kin_alone_head {
    kin_alone *alone;
    kin_part *part;
    kin_head *head;
} kin_alone_head;

// Model and shard are borrowed until close. n_batch: the shard's.
int kin_alone_head_open(kin_alone_head *out, const kin_model *model, kin_shard *shard, int n_batch, kin_err *err);
void kin_alone_head_close(kin_alone_head *head);
