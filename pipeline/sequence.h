// A sequence: one text as the pipeline computes it, with its token history. It lives above the pipeline, and so outlives an
// epoch: where the ring has changed since the last call (another plan, a device that was lost), what the KV caches held is gone,
// and the history is computed again before what is new.
//
//   kin_sequence_extend (a prompt, or one token after the other) ─► kin_head_eval, first with what is missing
//
// The sampler and what is done with the text are the caller's.
//
// Owner: the caller. Thread: the head's.
#pragma once

#include "pipeline/head.h"

typedef struct kin_sequence kin_sequence;

// id: the sequence's number in the KV cache; two that are open at the same time have different ones.
int kin_sequence_open(kin_sequence **out, int32_t id, kin_err *err);
// The head forgets it; head: NULL: there is none any more. NULL is allowed as sequence.
void kin_sequence_close(kin_sequence *sequence, kin_head *head);

// Appends tokens [n] and computes them. Logits as of kin_head_eval. On failure the history is as before, and the call may be
// repeated when the ring is up again.
int kin_sequence_extend(kin_sequence *sequence, kin_head *head, const int32_t *tokens, int n, float *logits, int n_logits,
                        kin_err *err);

// Keeps the first n tokens.
void kin_sequence_truncate(kin_sequence *sequence, kin_head *head, int n);

int kin_sequence_n_tokens(const kin_sequence *sequence);
