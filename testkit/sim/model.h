// A model for simulated clusters: a chain of hashes of a token, its position and, in each layer, everything that its sequence has
// in the KV cache there. So a page of another sequence, a cell that was not filled again, or a token that was computed twice
// leads to other output.
//
// Pure functions: any thread.
#pragma once

#include "engine/kv.h"
#include "pure/sampling/draft.h"

enum { KIN_SIM_MOST_LAYERS = 16 };

uint64_t kin_sim_mix(uint64_t a, uint64_t b);
uint64_t kin_sim_embed(int32_t id, int32_t pos);

// Computes a layer for n tokens: x // u64 [n] before the layer -> after it. Uses 8 bytes of a cell's keys and of its values. A
// token is also written to its further cells (copies; NULL: none) before the next one is computed.
void kin_sim_compute_layer(const kin_kv *kv, int il, const int32_t *seq, const int32_t *pos, const int64_t *cells,
                           const kin_kv_copies *copies, int n, uint64_t *x);

float kin_sim_logit(uint64_t x); // after the last layer
// A sampler with a state: it must see each row exactly once.
int32_t kin_sim_sample(float logit, int n_made);

// Returns token k of the i-th sequence of a schedule. Two sequences begin alike, and the third has their second block after a
// different first one.
int32_t kin_sim_prompt_token(int i, int k);

// Writes the output of an undisturbed run: tokens [n_prompt] -> expected [n_prompt + n_most]
void kin_sim_write_undisturbed(const int32_t *tokens, int n_prompt, int n_layer, int n_most, int32_t *expected);

// Drafts for a known output: a guess is right or wrong consistently, sometimes with a second one beside it.
typedef struct kin_sim_guesses {
    uint64_t seed;
    int most; // tokens of a draft
    bool has_branches;
} kin_sim_guesses;

// Drafts at most `most` tokens after n tokens of expected [n_all]; beyond its end all are wrong.
void kin_sim_guess(const kin_sim_guesses *guesses, const int32_t *expected, int n_all, int n, int most, kin_draft *out);
