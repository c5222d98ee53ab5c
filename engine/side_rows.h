// Side rows cross the borders of a shard's windows beside the residual (model/border.h): rows are taken apart before a window's
// layers are computed, and put together after them.
//
// Owner: a shard, or the head, which makes the rows before the first layer. Thread: the owner's.
#pragma once

#include "base/err.h"
#include "model/border.h"

typedef struct kin_side_rows {
    kin_border all;                  // with all layers whose keys and values others read
    float *x;                        // f32 [n_batch, stream width]; NULL: only the residual crosses the borders
    float *inputs;                   // f32 [n_batch, n_layer * n_input]; NULL: the layers have none
    float *ngrams;                   // f32 [n_batch, kin_ngram_width]; NULL: no layer is given an embedding
    float *keys[KIN_BORDER_SOURCES]; // f32 [n_batch, keys and values] of each source
    float *choice;                   // f32 [n_batch, kin_border.choice]; NULL: no layers share one
} kin_side_rows;

// Returns the bytes for steps of n_batch tokens.
uint64_t kin_side_rows_bytes(const kin_hparams *hp, int n_batch);

int kin_side_rows_open(kin_side_rows *side, const kin_hparams *hp, int n_batch, kin_err *err);
void kin_side_rows_close(kin_side_rows *side);

// Copy n rows before layer `il` out of, and into, rows // f32 [n, kin_border_before(il).width].
void kin_side_rows_take(kin_side_rows *side, const kin_hparams *hp, int il, int n, const float *rows);
void kin_side_rows_give(const kin_side_rows *side, const kin_hparams *hp, int il, int n, float *rows);

// Returns the keys and values of a token that a layer has made for others.
float *kin_side_rows_keys(const kin_side_rows *side, int source, int token);
