// Feeds one sequence to a head (pipeline/head.h) without a scheduler: for tests of the computing below it.
#pragma once

#include "pipeline/head.h"

// Feeds tokens [n] of sequence `seq` at positions pos, pos + 1, ..., in chunks; no step may be in flight.
// logits: n_logits = 1: // f32 [n_vocab] after the last token; n_logits = n: // f32 [n, n_vocab] after each; 0: none, may be
// NULL. On failure the sequence keeps what it held before.
int kin_head_eval(kin_head *head, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                  kin_err *err);
