// A prompt: cut into chunks that follow each other round the ring, so that all devices compute at the same time. Predicts the
// time to its first token.
//
// One chunk alone takes P for all k rounds, and occupies the busiest device (or link) for B of that. C chunks follow each other.
// If they keep that device busy for longer than a chunk needs for its pass (C B > P), the device is idle only while the first
// chunk arrives and the last one leaves. Otherwise a chunk finds all devices idle, and follows the previous one by a window. Both
// cases are
//
//     TTFT = ((k - 1) max(P, C B) + C B + P - B) / k + output layer
//
// with means over the chunks, and C B as their sum. At most W chunks are in flight, so if C > W, B is at least P / W.
//
// Here a device that streams is never idle, so its windows do not begin with a full ring: a chunk occupies it for at least its
// stall.
#pragma once

#include "pure/plan/latency.h"

enum {
    KIN_PROMPT_CHUNKS_PER_MEMBER = 2, // more shorten the fill and drain of the pipeline; fewer make each chunk's products faster
    KIN_PROMPT_CHUNK_LEAST = 16,
    KIN_PROMPT_CHUNKS_AT_ONCE = 16,
    KIN_PROMPT_MAX_CHUNKS = 8192, // limit of a prediction
};

// Returns the tokens per chunk of a prompt of n tokens in a ring of n_members, including the head; the last chunk may be shorter.
// worth: the result of kin_prompt_chunk_worth; 0: not known.
static inline int kin_prompt_chunk_tokens(int n, int n_members, int n_batch, int worth) {
    int parts = KIN_PROMPT_CHUNKS_PER_MEMBER * n_members, most = worth > KIN_PROMPT_CHUNK_LEAST ? (n + worth / 2) / worth : parts;
    if (parts > most) parts = most > 0 ? most : 1;
    int share = n / parts + (n % parts > 0);
    if (share < KIN_PROMPT_CHUNK_LEAST) share = KIN_PROMPT_CHUNK_LEAST;
    return n_members < 2 || share > n_batch ? n_batch : share;
}

// Finds the smallest chunk, in tokens and at most a batch, that keeps devices that stream computing as long as they read: for
// each chunk such a device reads all its streamed weights again. Chunks should have about this size. KIN_PROMPT_CHUNK_LEAST:
// there is no reason for larger ones. Fails if kin_latency_pass fails.
int kin_prompt_chunk_worth(const kin_facts *facts, const kin_plan *plan, int *worth, kin_err *err);

// Predicts TTFT of facts->work.n_prompt tokens; 0 if there are none. Fails if kin_latency_pass fails, if there are more than
// KIN_PROMPT_MAX_CHUNKS chunks, or if out of memory.
int kin_prompt_predict(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err);

// The same for n tokens after n_before tokens that are in the KV cache.
int kin_prompt_predict_behind(const kin_facts *facts, const kin_plan *plan, int n, int n_before, double *ttft_s, kin_err *err);

// The same, simulated: every window of every chunk in turn, on devices and links that do one thing at a time.
int kin_prompt_play(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err);
