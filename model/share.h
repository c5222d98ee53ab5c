// A share of each layer: what one device of a tensor-parallel group computes of it.
//
// Attention is shared by heads of keys and values, each with the query heads that look at it; the feed-forward block (of experts:
// each of them) by its inner columns. So each device multiplies with rows of the first matrices and with columns of the last one,
// and what it gets is a part of the layer's result: the parts of all devices are added up twice in each layer (kin_sum in
// model/graph.h). Norms, the router and the residual are everywhere.
//
// Shares end where slices of all weights may end (model/slice.h).
//
// Plain data and pure functions. Thread: any.
#pragma once

#include "model/model.h"
#include "model/slice.h"

enum { KIN_SHARE_RANKS = 8 }; // most devices of a group

typedef struct kin_share {
    int rank, n_ranks;        // n_ranks 0: whole layers; the rest does not count then
    int head_begin, head_end; // of keys and values
    int ff_begin, ff_end;     // columns of the feed-forward block, of each expert
} kin_share;

static inline bool kin_share_is_whole(const kin_share *share) {
    return share->n_ranks == 0;
}

// The least pieces of a model's layers that a share can be made of, for a KV cache of that type (an enum ggml_type).
typedef struct kin_share_pieces {
    int n_heads, heads; // so many pieces of so many heads of keys and values; n_heads 0: they cannot be shared
    int n_ff, ff;       // and of columns
} kin_share_pieces;

kin_share_pieces kin_share_pieces_of(const kin_model *model, int kv_type);

// Shares in proportion to weights // [n_ranks], as near as pieces allow; each has one piece of both at least. Fails with a
// sentence if there are too few pieces.
int kin_share_split(const kin_model *model, int kv_type, const double *weights, int n_ranks, kin_share *shares, kin_err *err);

// Fails with a sentence if the model's layers have no such share: the rank is none, or it does not end where pieces do.
int kin_share_check(const kin_share *share, const kin_model *model, int kv_type, kin_err *err);

// The share passed kin_share_check.
kin_slices kin_share_slices(const kin_share *share, const kin_hparams *hp);
// The model's numbers as this share's graphs have them: fewer heads and columns.
kin_hparams kin_share_hparams(const kin_share *share, const kin_hparams *hp);
// Bytes of a layer's weights that the share has.
uint64_t kin_share_layer_bytes(const kin_share *share, const kin_model *model, int il);
