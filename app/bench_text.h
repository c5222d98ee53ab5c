// Of kin bench: one text through the scheduler, as kin run and kin serve write theirs, and how long it took.
#pragma once

#include "node/compute_loop.h"

typedef struct kin_bench_text {
    const int32_t *prompt; // [n_prompt]
    int n_prompt;
    int n_tokens;                                              // to write
    int32_t (*choose)(void *user, const float *logits, int i); // the i-th of them, from 0 on; logits // f32 [n_vocab]
    void *user;
    const kin_draft_source *drafts; // as in kin_generation_options
    kin_draft_counts *draft_counts;
} kin_bench_text;

// Of a compute loop that was entered. *first_ms: to the first token; *rest_ms: from there to the last one. Fails also when it is
// stopped, or the context is full.
int kin_bench_write(kin_compute_loop *loop, const kin_bench_text *text, double *first_ms, double *rest_ms, kin_err *err);
