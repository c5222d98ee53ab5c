// The states of recurrent layers: for each of a device's recurrent layers, memory for n_states sequences
// (kin_state_floats). The block table (engine/kv/blocks.h) says which sequence has which state.
//
// Steps follow each other through each layer, but several are in flight, in different layers. So a state is copied when the step
// that asked for it reaches the layer.
//
// Owner and thread: the KV cache's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/graph.h"
#include "pure/plan/window.h"

typedef struct kin_kv_states kin_kv_states;

// Returns how many sequences can have states at once: running ones, and prefixes that others may begin with; 0: the model has no
// recurrent layers. All members of a ring agree on it. One of Qwen 3.5's with 35 billion parameters takes 80 MiB in all layers,
// as much as the keys and values of 4000 tokens.
int kin_kv_n_states(const kin_hparams *hp, int n_ctx);

uint64_t kin_kv_states_bytes(const kin_hparams *hp, const kin_windows *windows, int n_ctx);

// *out is NULL if none of the layers is recurrent.
int kin_kv_states_open(kin_kv_states **out, const kin_hparams *hp, const kin_windows *windows, int n_ctx, kin_err *err);
void kin_kv_states_close(kin_kv_states *states);

// Returns the states of a layer; NULL: it is not recurrent, or not here.
float *kin_kv_states_layer(const kin_kv_states *states, int il);

// A state with an empty log can be copied out of the cache without the log: f32, the convolution's inputs, then the heads'
// matrices, then the rows for an embedding of the last tokens, as in a state (model/graph.h). Returns the largest layer's.
size_t kin_kv_states_bare_floats(const kin_hparams *hp);
// Copy floats at .. at + n - 1 of this form, for a layer that is here, out of a state and into it. Behind its end: zeros,
// nothing.
void kin_kv_states_get(const kin_kv_states *states, int il, int state, size_t at, size_t n, float *to);
void kin_kv_states_set(kin_kv_states *states, int il, int state, size_t at, size_t n, const float *from);

// A list of copies, in order.
typedef struct kin_state_copies {
    struct {
        int from, to;
    } * at; // [cap], of which n are used
    int n, cap;
} kin_state_copies;

int kin_state_copies_add(kin_state_copies *copies, int from, int to, kin_err *err);
void kin_kv_states_copy(kin_kv_states *states, int il, const kin_state_copies *copies); // in a layer
