// Batching: into how many micro-batches the texts that are written at the same time are divided, and what they get together.
//
// A micro-batch is a step with the next token of b texts. m of them follow each other round the ring; each takes T(b) for all
// rounds, and for busy_d(b) of that it has device d to itself (latency.h). All of them come round once in
//
//     period(m, b) = max(T(b), m max_d busy_d(b))            rate = n_texts / period(m, ceil(n_texts / m))
//
// Where weights are resident, more micro-batches keep more devices at work. Where they are streamed, a pass reads them once for
// all its texts: busy_d is at least the disk's work, and one micro-batch is best until computing binds. In several rounds it is
// the only choice there: passes that share a device come to its windows in turns, each to the same ones, and the streamer reads
// ahead in the order of one pass (engine/stream.h), and drops that for another one. T(b) is simulated there (timeline.h): weight
// blocks are whole, so of windows alike some wait for one more than the mean, which the closed form does not see.
#pragma once

#include "pure/plan/latency.h"

typedef struct kin_batching {
    int n_batches;   // micro-batches at once
    double period_s; // from a text's token to its next
    double rate;     // tokens per second of all texts together
} kin_batching;

enum { KIN_BATCHING_MAX_TEXTS = 256 };

// The best for n_texts (1 to KIN_BATCHING_MAX_TEXTS), each after n_cached tokens, with at most `most` micro-batches. The fewest
// micro-batches win where the rates are within 2 %. Fails where kin_latency_texts does.
int kin_batching_choose(const kin_facts *facts, const kin_plan *plan, int n_texts, int n_cached, int most, kin_batching *out,
                        kin_err *err);
