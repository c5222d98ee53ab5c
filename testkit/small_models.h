// Models of a few thousand random weights of families with layers that do not store pages (kin_kv_n_parts). All weights are F32
// with kernels, so that texts with drafts are exact.
//
// Thread: any. The caller owns the file and removes it.
#pragma once

#include "base/err.h"

typedef enum kin_small_model {
    KIN_SMALL_DELTA,    // qwen35: two of three layers are delta nets
    KIN_SMALL_CONV,     // lfm2: two of three layers are short convolutions
    KIN_SMALL_WINDOWED, // olmo2: three of four layers are windowed
    KIN_SMALL_STATE,    // nemotron_h: half of the layers are state spaces, two are feed-forward blocks
    KIN_SMALL_SHARED,   // gemma4: two of three layers are windowed, the last half reads keys and values of two of the first half,
                        // and all are given inputs
} kin_small_model;

enum {
    KIN_SMALL_VOCAB = 160,
    KIN_SMALL_CTX = 16384,
    KIN_SMALL_DIM = 16, // of all heads
    KIN_SMALL_WINDOW = 96,
    KIN_SMALL_KEY_HEADS = 2, // of the delta nets
    KIN_SMALL_VALUE_HEADS = 16,
};

int kin_small_model_n_layer(kin_small_model kind);
int kin_small_model_n_embd(kin_small_model kind);

// Writes the model to a new file. path: ends in XXXXXX, as for mkstemp
int kin_small_model_make(kin_small_model kind, char *path, kin_err *err);
