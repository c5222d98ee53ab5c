// The row of a token at the border between two layers: the residual, and in some models what layers after the border
// need besides it. It is all that such layers need to know of the layers before them, so a device that is given it computes what
// one device with all layers does.
//
// One row of float32 for each token:
//   [stream width]          the residual (kin_hparams_stream_width)
//   [n_layer - il][n_input] the inputs of the layers after it
//   [kin_ngram_width]       the embedding of the last tokens, if the layer before which it is added is after the border
//   for each layer before the border whose keys and values layers after it read, the first one first:
//     [n_embd_k][n_embd_v]  the token's keys and values
//   if layers after the border share the choice of an indexer before it:
//     [KIN_CHOICE_DIGITS][n_chosen] the positions that the token sees, ascending: their digits, the lowest first; zeros if the
//                           token sees all. Then zeros up to a multiple of 32. A digit is exact after any rounding on the wire
// At the end of the model there is the residual only.
//
// Plain functions: any thread.
#pragma once

#include "model/hparams.h"

enum {
    KIN_BORDER_SOURCES = 2, // most layers whose keys and values others read: a windowed one and another
    KIN_CHOICE_DIGITS = 3,
    KIN_CHOICE_BASE = 128,
    KIN_CHOICE_POSITIONS = KIN_CHOICE_BASE * KIN_CHOICE_BASE * KIN_CHOICE_BASE, // so a context is at most as long
};

typedef struct kin_border {
    int il;        // the layer after it; n_layer: the end of the model
    int width;     // numbers of a row
    int stream;    // the first numbers of a row: the residual,
    int inputs;    // then the inputs,
    int ngrams;    // then the embedding,
    int n_sources; // then the keys and values of these layers, in ascending order,
    int sources[KIN_BORDER_SOURCES];
    int keys[KIN_BORDER_SOURCES]; // numbers of the keys and values of each,
    int choice;                   // then the choice
} kin_border;

// Returns the border before layer `il`, 0 to n_layer.
kin_border kin_border_before(const kin_hparams *hp, int il);

// Returns the widest row, and the mean of all borders between layers, rounded up.
int kin_border_most(const kin_hparams *hp);
int kin_border_mean(const kin_hparams *hp);

// True if only the residual crosses the borders of the model.
bool kin_border_is_plain(const kin_hparams *hp);
