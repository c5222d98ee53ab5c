// A prompt: cut into chunks that follow each other round the ring, so that all devices compute at once. What its first token
// takes.
//
// A chunk alone takes P in all k rounds, and for B of that it has the busiest device (or link) to itself. C chunks follow each
// other. If they keep that device busy for longer than a chunk needs for a round (C B > P), it is idle only while the first
// chunk arrives and the last one leaves. Else a chunk finds all devices idle, and follows the one before it a window later.
// Both are
//
//     TTFT = ((k - 1) max(P, C B) + C B + P - B) / k + output layer
//
// with means over the chunks, and C B their sum. At most W are in flight, so where C > W, B is at least P / W.
//
// A device that streams is never idle here, and its windows do not begin with a full ring: a chunk occupies it for at least
// its stall.
#pragma once

#include "pure/plan/latency.h"

enum {
    KIN_PROMPT_CHUNKS_PER_MEMBER = 2, // more make the pipeline's ends shorter, fewer make each chunk's products faster
    KIN_PROMPT_CHUNK_LEAST = 16,
    KIN_PROMPT_CHUNKS_AT_ONCE = 16,
    KIN_PROMPT_MAX_CHUNKS = 8192, // that are predicted
};

// Tokens of a chunk of a prompt of n in a ring of n_members, the head among them; the last chunk may be shorter. worth: what
// kin_prompt_chunk_worth says; 0: not known.
static inline int kin_prompt_chunk_tokens(int n, int n_members, int n_batch, int worth) {
    int parts = KIN_PROMPT_CHUNKS_PER_MEMBER * n_members, most = worth > KIN_PROMPT_CHUNK_LEAST ? (n + worth / 2) / worth : parts;
    if (parts > most) parts = most > 0 ? most : 1;
    int share = n / parts + (n % parts > 0);
    if (share < KIN_PROMPT_CHUNK_LEAST) share = KIN_PROMPT_CHUNK_LEAST;
    return n_members < 2 || share > n_batch ? n_batch : share;
}

// Each chunk has a device that streams read all of its weights again. Tokens of the least chunk that such devices compute for as
// long as they read for it, at most a batch; a prompt has about so many in each. KIN_PROMPT_CHUNK_LEAST: none is larger for it.
// Fails where kin_latency_pass does.
int kin_prompt_chunk_worth(const kin_facts *facts, const kin_plan *plan, int *worth, kin_err *err);

// TTFT of facts->work.n_prompt tokens; 0 for none. Fails where kin_latency_pass does, for more than KIN_PROMPT_MAX_CHUNKS
// chunks, and without memory.
int kin_prompt_predict(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err);

// The same for n tokens behind n_before that are in the KV cache.
int kin_prompt_predict_behind(const kin_facts *facts, const kin_plan *plan, int n, int n_before, double *ttft_s, kin_err *err);

// The same, simulated: every window of every chunk in turn, on devices and links that do one thing at a time.
int kin_prompt_play(const kin_facts *facts, const kin_plan *plan, double *ttft_s, kin_err *err);
