// The choice of an indexer that later layers share (kin_layer.choice_back): the positions that each token of a step sees.
//
// It is memory beside the graphs (kin_graph.choice): layers that are computed one by one, from different graphs, write and read
// it. At the borders of windows it crosses with the rows (model/border.h), because another step may be computed in between.
//
// Owner: a shard. Thread: the shard's.
#pragma once

#include <ggml-backend.h>

#include "base/err.h"
#include "model/border.h"

typedef struct kin_shared_choice {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *at; // i32 [n_chosen, n_batch]; NULL: no layers share a choice
    void *memory;
} kin_shared_choice;

// Returns the bytes for steps of n_batch tokens.
uint64_t kin_shared_choice_bytes(const kin_hparams *hp, int n_batch);

int kin_shared_choice_open(kin_shared_choice *choice, const kin_hparams *hp, int n_batch, kin_err *err);
void kin_shared_choice_close(kin_shared_choice *choice);

// Writes the choices of n tokens, which have n_seen cells before and with themselves, as digits: rows // f32 [n, width]
void kin_shared_choice_give(const kin_shared_choice *choice, int n, const int32_t *n_seen, int width, float *rows);
// Reads them. Fails if they are not positions that the tokens may see, since they come from the network.
int kin_shared_choice_take(const kin_shared_choice *choice, int n, const int32_t *n_seen, int width, const float *rows,
                           kin_err *err);
