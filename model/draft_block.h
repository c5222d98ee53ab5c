// A model's draft block (NextN, multi-token prediction): the block after a file's last layer, trained to continue the model's own
// text. For the token at position p it takes the token's embedding and the model's hidden state at p - 1, and computes a hidden
// state from which the output matrix predicts the token at p + 1. That state also stands in for the model's own at p, so the
// block can be applied again to its own prediction. Both states are normalised: by the output norm and by the block's own one.
//
// It is opened as a model of one layer: its embeddings are the layer's inputs (n_input), its hidden states the layer's x. Without
// an output matrix of its own it uses the model's.
//
// Plain data. Owner: the code that opened it. Thread: any; nothing changes after open.
#pragma once

#include "model/model.h"

typedef struct kin_draft_block {
    kin_model view;                  // the block as a model of one layer; it borrows the model's file
    bool has_output;                 // view.output is its own; false: the model's
    const float *in_norm, *out_norm; // f32 [n_embd] norms of the model's states and of its own
} kin_draft_block;

// True if the file announces draft blocks, whether or not kin can compute them.
bool kin_draft_block_is_in(const kin_model *model);

// Opens the block of a model, which is borrowed until close. Fails with a sentence if the file has none, or one that kin does not
// compute.
int kin_draft_block_open(kin_draft_block *block, const kin_model *model, kin_err *err);
void kin_draft_block_close(kin_draft_block *block);
