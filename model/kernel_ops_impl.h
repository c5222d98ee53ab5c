// Internals of kin_op_*: a node's parameters and how its work is divided.
#pragma once

#include <stdatomic.h>

#include "model/kernel_ops.h"

enum {
    KIN_OP_TILE = 128,       // batch rows that are rounded and multiplied together
    KIN_OP_GATED_PANELS = 4, // of a gated chunk of a whole tile: its second product is on the stack, 32 KiB
    KIN_OP_ARGS = 9,         // maximum tensors that a node reads (ggml's limit for custom operators)
};

// Computes a node: each of the pool's n_threads threads calls it and does its share.
typedef void (*kin_op_run)(struct ggml_tensor *y, struct kin_op *op, int n_threads);

// The kind of a node, for code that computes it other than by `run` (web/engine/gpu.c).
typedef enum kin_op_code {
    KIN_OP_OTHER,
    KIN_OP_NORM,
    KIN_OP_ROUND,
    KIN_OP_LINEAR,
    KIN_OP_GATED,
    KIN_OP_TURNS,
    KIN_OP_HEADS,
    KIN_OP_ATTEND,
    KIN_OP_MERGE,
} kin_op_code;

// A node's parameters besides its tensors. Lives as long as its graph.
struct kin_op {
    kin_op_code code;
    kin_op_run run;
    void *graph; // an address common to all nodes of a graph
    const kin_kernels *kernels;
    const kin_hparams *hp;
    kin_layer layer; // the layer that heads and attention belong to
    kin_gate gate;
    int i_rope;
    float scale;
    int n_weights;
    kin_act_kind kind[KIN_OP_MATRICES];
    bool has_bias[KIN_OP_MATRICES];
    bool has_residual;
    const kin_graph_rows *rows;
    int n_q, n_kv; // heads
    kin_graph_sums *sums;
    bool has_q_norm, has_k_norm, has_factors, has_partial;
    bool norms_all; // queries and keys are normalised over all heads at once
    bool has_sinks;
    bool is_stacked; // one weight has the rows of gate, then those of up
    bool has_expert_bias;

    char apart[64];        // padding: the counters below are written constantly, and must not share a cache line with the fields
                           // above, which are read
    atomic_int next, done; // chunks of a run: the next to take; the number of threads that found none left
};

// Allocates a node's parameters, zero except for code, kernels and hp.
struct kin_op *kin_op_new(kin_graph *g, kin_op_code code);

struct ggml_tensor *kin_op_node(kin_graph *g, enum ggml_type type, int64_t ne0, int64_t ne1, struct ggml_tensor **args,
                                int n_args, kin_op_run run, struct kin_op *op);
// Adds a node that changes y.
struct ggml_tensor *kin_op_inplace(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor **args, int n_args, kin_op_run run,
                                   struct kin_op *op);

// Takes the next of n chunks. Returns false if none is left; this thread then must not ask again in this run. The last thread to
// find none resets the counter for the next run.
bool kin_op_take(struct kin_op *op, int n_threads, int n, int *i);

// A thread's chunk, and the next one, taken in advance so that its weights can be prefetched.
typedef struct kin_op_chunk {
    int i, next;
    bool has_next;
    bool has_ended; // kin_op_take has returned false
} kin_op_chunk;

// Like kin_op_take; *c is {0} at first. The last chunks are not taken in advance: a slow thread would delay all others.
bool kin_op_take_ahead(struct kin_op *op, int n_threads, int n, kin_op_chunk *c);

// Returns the rows of the tile that begins at row `begin` of n.
static inline int64_t kin_op_tile_rows(int64_t n, int64_t begin) {
    return n - begin < KIN_OP_TILE ? n - begin : KIN_OP_TILE;
}

// Returns the panels of 16 rows [begin, end) of a matrix, or of one expert's.
kin_matrix kin_op_matrix(const struct ggml_tensor *weight, int64_t i_expert, int64_t begin, int64_t end);

// Returns the number of panels (16 rows each) of a matrix.
static inline int64_t kin_op_panels(const struct ggml_tensor *weight) {
    return (weight->ne[1] + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS;
}

// Multiplies all n rows of an input: y // f32 [n, ldy]
void kin_op_multiply(const struct kin_op *op, const kin_matrix *w, kin_act_kind kind, const void *input, int64_t n, float *y,
                     int64_t ldy);
// Two matrices of at most kin_op_gated_panels panels, and the biases added to their products // f32 [rows], NULL: none.
typedef struct kin_op_pair {
    kin_matrix gate, up;
    const float *gate_bias, *up_bias;
} kin_op_pair;

// Does the same for such a pair: y = activation(gate) * up, with op->gate
void kin_op_multiply_gated(const struct kin_op *op, const kin_op_pair *pair, kin_act_kind kind, const void *input, int64_t n,
                           float *y, int64_t ldy);

// Adds rows of n floats: y += x. ldx 0: x is a single row.
void kin_op_add_rows(const struct kin_op *op, int64_t n_rows, int64_t n, const float *x, int64_t ldx, float *y, int64_t ldy);

// Returns the number of panels in a chunk.
int64_t kin_op_chunk_panels(int64_t n_panels, int n_threads);
// Returns the maximum number of panels of each matrix in a gated chunk, for an input of n rows.
static inline int64_t kin_op_gated_panels(int64_t n) {
    return KIN_OP_GATED_PANELS * KIN_OP_TILE / kin_op_tile_rows(n, 0);
}
