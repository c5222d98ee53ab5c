// Sampler: picks the next token from logits.
//
// The stages, in the order of llama.cpp's default chain:
//   1. logit bias          l[id] += bias
//   2. penalties           for an id that occurs c > 0 times in the last `penalty_last_n` accepted ids:
//                          l = l > 0 ? l / repeat : l * repeat;  then  l -= c * frequency + presence
//   temperature 0 ends here: the largest logit wins.
//   3. top-k               keep the k largest
//   4. top-p               of those, keep the smallest set of most probable ones whose probabilities sum up to at least p
//   5. min-p               keep those at least min_p times as probable as the most probable one
//   6. temperature         l /= temperature
//   7. draw                by probability
// Stages 4 and 5 use probabilities at temperature 1. At least one token is always kept. Of equal logits the smaller id goes
// first.
//
// The same logits, options and seed give the same ids on every platform: random numbers come from base/rng.h, and no libm
// function is used. A NaN counts as -inf; several +inf share the probability equally.
//
// Owner: one generation, one thread. Everything is allocated by new.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/sampling/constraint.h"

typedef struct kin_sampler kin_sampler;

#define KIN_SAMPLER_MAX_LAST_N 65536

typedef struct kin_logit_bias {
    int32_t id;
    float bias; // -INFINITY forbids the id
} kin_logit_bias;

typedef struct kin_sampler_options {
    uint64_t seed;
    float temperature;          // 0: greedy; >= 0
    int32_t top_k;              // 0: off; >= 0
    float top_p;                // 1: off; (0, 1]
    float min_p;                // 0: off; [0, 1]
    int32_t penalty_last_n;     // number of recent ids that the penalties consider; 0: off; at most KIN_SAMPLER_MAX_LAST_N
    float penalty_repeat;       // 1: off; > 0
    float penalty_frequency;    // 0: off
    float penalty_presence;     // 0: off
    const kin_logit_bias *bias; // [n_bias], copied
    size_t n_bias;
    const int32_t *suppressed; // [n_suppressed] ids that are never sampled, copied
    size_t n_suppressed;
} kin_sampler_options;

// llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties, the last 64 ids; seed 0.
kin_sampler_options kin_sampler_options_defaults(void);

// Fails if an option is out of range (the sentence names it) or memory runs out.
int kin_sampler_new(kin_sampler **out, int32_t n_vocab, const kin_sampler_options *options, kin_err *err);
void kin_sampler_free(kin_sampler *sampler);

// Returns the next id, or KIN_FAIL if all logits are -inf or NaN. Modifies logits [n_vocab] by stages 1 and 2. Does not accept
// the id.
int32_t kin_sampler_sample(kin_sampler *sampler, float *logits);

// The same under a constraint (NULL: none). First samples without it; the mask is computed only if the constraint rejects the
// result. Then all rejected ids are set to -inf in the logits, stages 3 to 7 run again, and the result is drawn from these, so
// that
//   P(id) = p(id) + R q(id) for an allowed id,
// where p is the distribution without the constraint, R the probability that p gives a rejected id, and q the distribution of
// stages 3 to 7 over the allowed ids alone. Without top-k, top-p and min-p this equals q; with them an allowed id that p cut
// off gets R q(id). Greedy: the largest allowed logit. The n-th token of a sequence uses the n-th number of the seed's stream,
// rejected or not: a second draw is seeded with that number, as 64 bits, and uses the first number of the resulting stream.
// Also returns KIN_FAIL if no allowed id has a probability. Accepts the id neither in the sampler nor in the constraint.
int32_t kin_sampler_sample_constrained(kin_sampler *sampler, float *logits, kin_constraint *constraint);

// The candidates of the last draw: the number of ids left after all stages (greedy: 1), and the i-th with its probability. If
// the constraint rejected the first draw: the candidates of the second.
size_t kin_sampler_n_drawn(const kin_sampler *sampler);
int32_t kin_sampler_drawn(const kin_sampler *sampler, size_t i, double *probability);

// True if the options forbid the id, by a bias of -INFINITY or as a suppressed id.
bool kin_sampler_forbids(const kin_sampler *sampler, int32_t id);

// Adds an id to the history for the penalties: every sampled id, and the prompt's ids if they are to count.
void kin_sampler_accept(kin_sampler *sampler, int32_t id);

// Restores the initial state: empty history, the stream of `seed`.
void kin_sampler_reset(kin_sampler *sampler, uint64_t seed);
