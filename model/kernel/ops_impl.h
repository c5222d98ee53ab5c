// Internals of kin_op_*: a node's parameters and how its work is divided.
#pragma once

#include <stdatomic.h>

#include "model/kernel/ops.h"
#include "sys/team/team.h"

enum {
    KIN_OP_TILE = 128,       // batch rows that are rounded and multiplied together
    KIN_OP_GATED_PANELS = 4, // of a gated chunk of a whole tile: its second product is on the stack, 32 KiB
    KIN_OP_ARGS = 9,         // maximum tensors that a node reads (ggml's limit for custom operators)
};

// The rectangle of floats that a chunk computes: its place in the tensor, and in the chunk's result.
typedef struct kin_op_area {
    float *at;
    int64_t ld; // floats from one row to the next
    int64_t n_rows, width;
    int64_t result_at, result_ld;
} kin_op_area;

// How a node is computed: it is cut into chunks that threads compute in any order (sys/team/team.h).
typedef struct kin_op_run {
    // Returns the number of chunks; 0: there is nothing to do.
    int (*count)(const struct ggml_tensor *y, const struct kin_op *op, int n_threads);
    void (*compute)(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *chunk);
    // For nodes whose chunks may be computed twice: the maximum size of a chunk's result, and where it belongs. NULL: they may
    // not.
    size_t (*result_bytes)(const struct ggml_tensor *y, const struct kin_op *op, int n_threads);
    kin_op_area (*area)(const struct ggml_tensor *y, const struct kin_op *op, int n_threads, int chunk);
    bool claims_ahead;
    // Called once after the node, when a team computes the graph; NULL: nothing is. Returns the node since which the graph is to
    // be computed again before it goes on, or NULL.
    struct ggml_tensor *(*again)(const struct ggml_tensor *y, const struct kin_op *op);
} kin_op_run;

// Rows that are made of a block of tokens each, in the cells of a cache (made_rows.h).
typedef struct kin_made_rows {
    int n_tokens;  // of a block
    bool overlaps; // a block's row is made of the block before, too: of the first half of its values, and of the second half of
                   // its own
    int at, dim;   // the row's place in the cell of the block's last token, and its width
    int values_at, n_values; // the place of the values in the cells of all, which as many gates follow
} kin_made_rows;

// The kind of a node, for code that computes it other than by `run` (web/engine/gpu.c).
typedef enum kin_op_code {
    KIN_OP_OTHER,
    KIN_OP_NORM,
    KIN_OP_ROUND,
    KIN_OP_LINEAR,
    KIN_OP_GATED,
    KIN_OP_COS_SIN,
    KIN_OP_HEADS,
    KIN_OP_ATTEND,
    KIN_OP_MERGE,
    KIN_OP_ROWS,
} kin_op_code;

// A node's parameters besides its tensors. Lives as long as its graph.
struct kin_op {
    kin_op_code code;
    const kin_op_run *run;
    const kin_graph *graph;
    const kin_kernels *kernels;
    const kin_hparams *hp;
    kin_layer layer; // the layer that heads and attention belong to
    kin_gate gate;
    float gate_limit;
    int i_rope;
    float scale;
    float eps; // of a norm
    int n_weights;
    kin_act_kind kind[KIN_OP_MATRICES];
    bool has_bias[KIN_OP_MATRICES];
    bool has_residual;
    const kin_graph_rows *rows;
    int n_q, n_kv; // heads
    kin_graph_sums *sums;
    bool has_q_norm, has_k_norm, has_factors, has_partial, has_chosen;
    bool v_is_k;     // values are made of the keys' products
    bool norms_all;  // queries and keys are normalised over all heads at once
    bool norms_each; // each head's norm has weights of its own
    bool has_sinks;
    bool is_stacked; // one weight, or one of each expert, has the rows of gate, then those of up
    bool has_expert_scale;
    bool has_expert_bias;
    float *states;       // of a recurrent layer,
    size_t states_apart; // and floats from one to the next
    kin_made_rows made;
    int n_groups, n_fields;
    kin_op_field fields[KIN_OP_FIELDS];
    bool gates;               // a product of experts is gate and up,
    bool is_up;               // or up without a gate; else down
    int il;                   // the layer that experts belong to
    bool in_groups;           // of slots: their experts may be computed in groups, one after the other
    struct ggml_tensor *from; // of the last product of such a group: the first one; else NULL
    bool is_guess;            // computed only if the experts of layer il are to be guessed

    char apart[64]; // padding: the counters below are written constantly, and must not share a cache line with the fields
                    // above, which are read
    atomic_int next, n_done; // for ggml's threads: the next chunk to take; the number of threads that found none left
};

// Allocates a node's parameters, zero except for code, kernels and hp.
struct kin_op *kin_op_new(kin_graph *g, kin_op_code code);

struct ggml_tensor *kin_op_node(kin_graph *g, enum ggml_type type, int64_t ne0, int64_t ne1, struct ggml_tensor **args,
                                int n_args, const kin_op_run *run, struct kin_op *op);
// Adds a node that changes y.
struct ggml_tensor *kin_op_inplace(kin_graph *g, struct ggml_tensor *y, struct ggml_tensor **args, int n_args,
                                   const kin_op_run *run, struct kin_op *op);

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
// Two matrices of at most kin_op_gated_panels panels, with the input of each, rounded to op->kind[0] and [1], and the biases
// added to their products // f32 [rows], NULL: none.
typedef struct kin_op_pair {
    kin_matrix gate, up;
    const void *input[2];
    const float *gate_bias, *up_bias;
} kin_op_pair;

// Does the same for such a pair: y = activation(gate) * up, with op->gate
void kin_op_multiply_gated(const struct kin_op *op, const kin_op_pair *pair, int64_t n, float *y, int64_t ldy);

// Adds rows of n floats: y += x. ldx 0: x is a single row.
void kin_op_add_rows(const struct kin_op *op, int64_t n_rows, int64_t n, const float *x, int64_t ldx, float *y, int64_t ldy);

// Returns the number of panels in a chunk.
int64_t kin_op_chunk_panels(int64_t n_panels, int n_threads);
// Returns the maximum number of panels of each matrix in a gated chunk, for an input of n rows.
static inline int64_t kin_op_gated_panels(int64_t n) {
    return KIN_OP_GATED_PANELS * KIN_OP_TILE / kin_op_tile_rows(n, 0);
}
