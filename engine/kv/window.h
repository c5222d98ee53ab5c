// Windowed layers keep the keys and values of the last tokens of each sequence, in blocks of their own.
//
// In a windowed layer a token sees the last kin_hparams.window tokens. So a sequence needs the window's blocks, those of its
// latest two steps or of the pages that it loads, and 64 positions before them. There are as many blocks as the sequences that
// run at once need, and two more: those that have ended, or are the beginning of a prompt, and wait for others to continue them.
// If that is not less than the whole context, windowed layers use the blocks of the others, which hold all tokens.
//
// All members of a ring agree on the number, and so on which sequences fit. A member may still keep the whole context in some of
// these layers: ggml's operators, on a GPU or a CPU, read keys and values through a mask, which needs them in one place.
#pragma once

#include "engine/kv/blocks.h"
#include "model/hparams.h"

enum { KIN_WINDOW_LOADS = 8 }; // blocks that a request loads at once: KIN_PAGES_MAX

// n_sequences: that run at once; 0: the whole context is kept. n_batch: maximum tokens per step.
kin_kv_window kin_kv_window_of(const kin_hparams *hp, int n_ctx, int n_batch, int n_sequences);

// Returns whether a layer's keys and values are in the window's blocks. window: of kin_kv_window_of
static inline bool kin_kv_window_has(const kin_kv_window *window, const kin_layer *layer) {
    return window->n_blocks > 0 && layer->is_windowed && !layer->is_recurrent;
}
