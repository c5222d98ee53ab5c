// A share: the part of each layer that one device of a tensor-parallel group computes.
//
// Attention is divided by key/value heads, each with the query heads that use it; the feed-forward block (with experts: each of
// them, and those that every token uses) by its inner columns. Each device multiplies with rows of the first matrices and with
// columns of the last one, which gives a partial result: the parts of all devices are added up twice per layer (kin_sum in
// model/graph.h). Norms, also those of a block's output after the sum, the router and the residual are computed on every device.
//
// Shares end where slices of all weights may end (model/slice.h). A share counts columns of experts, or of dense blocks in models
// without experts; of another width, such as that of dense layers before those with experts, it has the same part, rounded to
// what can be cut.
//
// Plain data and pure functions. Thread: any.
#pragma once

#include "model/model.h"
#include "model/slice.h"

enum { KIN_SHARE_RANKS = 8 }; // maximum devices per group

typedef struct kin_share {
    int rank, n_ranks;        // n_ranks 0: whole layers; the other fields are unused then
    int head_begin, head_end; // key/value heads
    int ff_begin, ff_end;     // columns of the feed-forward block; in models with experts of each expert
} kin_share;

static inline bool kin_share_is_whole(const kin_share *share) {
    return share->n_ranks == 0;
}

// The smallest pieces of a model's layers that shares are made of, for a KV cache of that type (an enum ggml_type).
typedef struct kin_share_pieces {
    int n_heads, heads; // n_heads pieces of `heads` key/value heads each; n_heads 0: the layers cannot be shared
    int n_ff, ff;       // n_ff pieces of `ff` columns each
} kin_share_pieces;

// Fails with a sentence that says what in the model cannot be shared.
int kin_share_allowed(const kin_model *model, kin_err *err);

kin_share_pieces kin_share_pieces_of(const kin_model *model, int kv_type);

// Splits in proportion to weights // [n_ranks], as closely as pieces allow; each share gets at least one piece of both kinds.
// Fails if there are too few pieces.
int kin_share_split(const kin_model *model, int kv_type, const double *weights, int n_ranks, kin_share *shares, kin_err *err);

// Fails if the model's layers have no such share: the rank is invalid, or an end is not at a piece boundary.
int kin_share_check(const kin_share *share, const kin_model *model, int kv_type, kin_err *err);

// Returns the slices of a share that passed kin_share_check, of the weights that the model has. Those of another share are wrong,
// which kin_slice_check finds.
kin_slices kin_share_slices(const kin_share *share, const kin_model *model);
// Returns the model's hyper-parameters for this share's graphs: fewer heads and columns.
kin_hparams kin_share_hparams(const kin_share *share, const kin_model *model);
// Returns the bytes of a layer's weights in the share.
uint64_t kin_share_layer_bytes(const kin_share *share, const kin_model *model, int il);
