// Look-ahead: which experts of a later layer are read before that layer's router has run.
//
// The router of the next layer, applied to the state of this one, names experts that are likely to be chosen there. How likely
// differs between models and layers, so it is counted: for each layer and each rank of a guess (0: the most likely expert), how
// many of the guessed experts that were not in memory were used. Only ranks of which enough came true are worth a read. A layer
// without such ranks, or with all guessed experts in memory, is guessed only now and then, to notice a change.
//
// Pure: no I/O, no clock, no threads. Owner: engine/experts.h, or a simulation.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_GUESS_TOKENS = 4,  // larger steps are not guessed: they use most experts of a layer anyway
    KIN_GUESS_SELDOM = 16, // a layer whose guesses are not worth a read is guessed in one of so many steps
};

typedef struct kin_expert_guess kin_expert_guess;

int kin_expert_guess_open(kin_expert_guess **out, int n_layer, int n_used, kin_err *err);
void kin_expert_guess_close(kin_expert_guess *guess);

// Returns whether the next step should guess this layer. Counts the steps, so call it once per step and layer.
bool kin_expert_guess_is_due(kin_expert_guess *guess, int il);

// Returns how many of the most likely experts of each token are worth a read; 0: none.
int kin_expert_guess_n_worthy(const kin_expert_guess *guess, int il);

// Notes that an expert which was not in memory was guessed, with this rank // [0, n_used). At most KIN_GUESS_TOKENS * n_used
// until the layer's step.
void kin_expert_guess_note(kin_expert_guess *guess, int il, int32_t expert, int rank);

// The layer's step uses expert i if uses[i] > 0: counts which guesses came true, and forgets them.
void kin_expert_guess_settle(kin_expert_guess *guess, int il, const int32_t *uses);
