// Batching: how many micro-batches the sequences generated at the same time are divided into, and the resulting rate.
//
// A micro-batch is a step with the next token of b sequences. m of them follow each other round the ring; each takes T(b) for all
// rounds, and during busy_d(b) of that time it occupies device d (latency.h). All of them complete once per
//
//     period(m, b) = max(T(b), m max_d busy_d(b))            rate = n_sequences / period(m, ceil(n_sequences / m))
//
// If weights are resident, more micro-batches keep more devices busy. If they are streamed, a pass reads them once for all its
// sequences: busy_d is at least the disk's work, and one micro-batch is best until computing is the limit. With several rounds it
// is then the only choice: passes that share a device alternate in its windows, but the streamer reads ahead in the order of one
// pass (engine/stream.h) and discards that for the next one. T(b) is then simulated (timeline.h): weight blocks are whole, so
// some windows wait for one block more than the mean, which the closed form does not see.
#pragma once

#include "pure/plan/latency.h"

typedef struct kin_batching {
    int n_batches;   // concurrent micro-batches
    double period_s; // from a sequence's token to its next one
    double rate;     // tokens per second of all sequences together
} kin_batching;

enum { KIN_BATCHING_MAX_SEQUENCES = 256 };

// Chooses the best division of n_sequences sequences (1 to KIN_BATCHING_MAX_SEQUENCES), each after n_cached tokens, into at most
// `most` micro-batches. If rates are within 2 %, the fewest micro-batches win. Fails if kin_latency_sequences fails.
int kin_batching_choose(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, int most, kin_batching *out,
                        kin_err *err);
