// Part of kin bench: generates one sequence through the scheduler, as kin run and kin serve do, and measures the time it took.
#pragma once

#include "cluster/compute_loop.h"

typedef struct kin_bench_text {
    const int32_t *prompt; // [n_prompt]
    int n_prompt;
    int n_tokens; // to generate
    // returns the token for step i, which counts from 0; logits // f32 [n_vocab]
    int32_t (*choose)(void *user, const float *logits, int i); // the i-th of them, from 0 on; logits
    void *user;
    const kin_draft_source *drafts; // as in kin_generation_options
    kin_draft_counts *draft_counts;
} kin_bench_text;

// Requires a compute loop that was entered. *first_ms: time to the first token; *rest_ms: from the first to the last token. Also
// fails if it is stopped or the context is full.
int kin_bench_write(kin_compute_loop *loop, const kin_bench_text *text, double *first_ms, double *rest_ms, kin_err *err);
