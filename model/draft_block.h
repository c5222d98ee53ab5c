// A model's draft blocks (NextN, multi-token prediction): blocks after a file's last layer, or in a file of their own, trained
// to continue the model's own text. For the token at position p the first one takes the token's embedding and the model's hidden
// state at p - 1, and computes a hidden state from which the output matrix predicts the token at p + 1. That state also stands in
// for the model's own at p. So a single block can be applied again to its own prediction. Of several ones, each takes the states
// of the block before it, and the tokens one position later.
//
// States are normalised before a block takes them: by the output norm or by that of the block before, and always by the block's
// own one. In some families only by the last. In models with several residual streams all of these are a block's states; what
// ends the model's streams ends its own, too, unless the block has its own end. A block with one stream takes the mean of the
// model's.
//
// A block is opened as a model of one layer: its embeddings, once for each stream, are the layer's inputs (n_input), its hidden
// states the layer's x.
// Without an output matrix of its own it uses the model's.
//
// Plain data. Owner: the code that opened it. Thread: any; nothing changes after open.
#pragma once

#include "model/model.h"

enum { KIN_DRAFT_BLOCKS = 8 };

typedef struct kin_draft_block {
    kin_model view;        // the block as a model of one layer; it borrows the file
    bool has_output;       // view.output is its own; false: the model's
    kin_model embeds;      // the view with the file that has the embeddings of its tokens, its own or the model's; for kin_embed
    int n_streams;         // of the model; if view has fewer, which is one, the block takes their mean
    const float *in_norm;  // f32 [n_embd] norm of the states that it takes; NULL: they are taken as they are
    bool has_ends;         // view.stream_ends end its streams, and no norm follows; false: the model's
    const float *out_norm; // f32 [n_embd] norm before the output matrix; NULL with has_ends
    bool centers_out;      // it subtracts the mean first
    const float *model_norm; // the same of the model; NULL: it has none
} kin_draft_block;

typedef struct kin_draft_blocks {
    kin_gguf *file; // of their own; NULL: they are in the model's
    int n;
    kin_draft_block at[KIN_DRAFT_BLOCKS];
} kin_draft_blocks;

// True if the model's file has draft blocks, whether or not kin can compute them. A file may announce blocks that it lacks.
bool kin_draft_blocks_are_in(const kin_model *model);

// True if this is a file of draft blocks without the model's layers. False also if it cannot be read.
bool kin_draft_blocks_fill(const char *path);

// Opens the blocks of a model, which is borrowed until close. path: their file; NULL: the model's. Fails with a sentence if there
// are none, if kin does not compute them, or if they are another model's.
int kin_draft_blocks_open(kin_draft_blocks *blocks, const kin_model *model, const char *path, kin_err *err);
void kin_draft_blocks_close(kin_draft_blocks *blocks);

// Returns the weights that a block has besides those of a layer.
kin_weight_set kin_draft_block_weights(const kin_hparams *hp);

// Returns the bytes of all weights that only the blocks use.
uint64_t kin_draft_blocks_bytes(const kin_draft_blocks *blocks);

// Turns *hp, a copy of a model's, into the description of a draft block as a model of one layer: block i_block of n_blocks in the
// file. The caller frees the list of layers in either case.
int kin_draft_block_describe(kin_hparams *hp, const kin_gguf *gguf, int n_blocks, int i_block, kin_err *err);
