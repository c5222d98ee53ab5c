// A model for simulated clusters: a chain of hashes, of a token, its position, and in each layer of all that its text has in the
// KV cache there. So a page of another text, a cell that was not filled again, or a token that was computed twice gives another
// text.
//
// Plain functions: any thread.
#pragma once

#include "engine/kv.h"
#include "pure/text/draft.h"

enum { KIN_SIM_MOST_LAYERS = 16 };

uint64_t kin_sim_mix(uint64_t a, uint64_t b);
uint64_t kin_sim_embed(int32_t id, int32_t pos);

// Of n tokens: x // u64 [n] before the layer -> after it. 8 bytes of a cell's keys and of its values are used. A token is in its
// further cells (copies; NULL: none), too, before the next one is computed.
void kin_sim_compute_layer(const kin_kv *kv, int il, const int32_t *seq, const int32_t *pos, const int64_t *cells,
                           const kin_kv_copies *copies, int n, uint64_t *x);

float kin_sim_logit(uint64_t x); // behind the last layer
// A sampler with a state: it sees each row once.
int32_t kin_sim_sample(float logit, int n_made);

// Of the i-th text of a schedule. Two of them begin alike, and the third one has their second block behind another first one.
int32_t kin_sim_prompt_token(int i, int k);

// What an undisturbed run writes: tokens [n_prompt] -> expected [n_prompt + n_most]
void kin_sim_write_undisturbed(const int32_t *tokens, int n_prompt, int n_layer, int n_most, int32_t *expected);

// Drafts of a text that is known: a guess is right or wrong whenever it is made, now and then with a second one beside it.
typedef struct kin_sim_guesses {
    uint64_t seed;
    int most; // tokens of a draft
    bool has_branches;
} kin_sim_guesses;

// Behind n tokens of expected [n_all], at most `most` of them; beyond its end all are wrong.
void kin_sim_guess(const kin_sim_guesses *guesses, const int32_t *expected, int n_all, int n, int most, kin_draft *out);
