// The input of a graph builder: one step's inputs, and the weights and caches of the layers, as ggml tensors.
//
// The engine fills a kin_graph and owns everything in it; the families only add nodes. Nothing here allocates data. Thread: the
// one that builds the graph.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "model/hparams.h"
#include "model/weights.h"
#include "sys/team/team.h"

enum { KIN_GRAPH_ROUNDED = 4 };

// An extra cell that a token of the batch is written to: in a block of another sequence that also has the token.
typedef struct kin_row_cell {
    int32_t row, cell;
    int32_t window_cell; // in windowed layers
} kin_row_cell;

// Tokens of one sequence in a step, for recurrent layers. A state lags behind its sequence: it has a log of the inputs of up to
// KIN_STATE_LOG last tokens, which a later step adds, or forgets because they were drafts that were rejected.
enum { KIN_STATE_LOG = 8 };
typedef struct kin_run {
    int32_t state;       // number of the sequence's state
    const int32_t *rows; // [n] the tokens' rows in the batch, in order
    int32_t n;
    int32_t n_logged; // tokens of the log that come before them: they are added to the state
    bool stores;      // the tokens are added, too; else they become the log, and are at most KIN_STATE_LOG
    bool is_new;      // the state is zeros before its first token, whatever is there
} kin_run;

// The token data that kin's attention needs. Plain arrays [n], set for every run.
typedef struct kin_rows {
    const int32_t *pos;
    const int32_t *cells;       // the cache cell that each token writes
    const kin_row_cell *copies; // [n_copies] extra cells
    int n_copies;
    const int32_t *n_cells;       // cells of its sequence that it attends to: up to and including itself
    const int32_t *first_cells;   // the first cell that it attends to in a windowed layer; NULL: the model has none
    const int32_t *const *tables; // the block table of its sequence (kin_kv_table)
    const int32_t *window_cells;  // cells and tables of windowed layers
    const int32_t *const *window_tables;
    const kin_run *runs; // [n_runs] the same tokens by sequence; NULL: the model has no recurrent layers
    int n_runs;
} kin_rows;

// Tokens that pass through attention as queries, with the data that attention needs.
typedef struct kin_graph_rows {
    int n;
    struct ggml_tensor *pos;         // i32 [n]: position of each token in its sequence
    struct ggml_tensor *mask;        // f16 [n_kv, n]: 0 where the token may attend, -inf elsewhere
    struct ggml_tensor *window_mask; // the same for windowed layers; NULL: the model has none

    // With kin's kernels:
    kin_rows plain;
    struct ggml_tensor *cos_sin[KIN_ROPES]; // f32 [n_rot, n]: cosines and sines of each token's position; NULL until a layer
                                            // needs them
} kin_graph_rows;

// A recurrent layer's state of one sequence: f32
//   [KIN_STATE_LOG + n_taps - 1][n_channels]    the convolution's inputs: of the last tokens before the log, and of the log
//   for each value head
//     [head_dim / 16][key_dim][16]              its matrix before the log (kin_delta_rule.m)
//     [KIN_STATE_LOG][key_dim + head_dim + 16]          the log: key, value, decay and beta of each token; with decays_rows there
//                                                       are key_dim more after these, its decays
enum { KIN_STATE_FORMAT = 2 }; // version of this layout: states of another version are not read from disks
static inline size_t kin_delta_log_row(const kin_delta_net *d) {
    return (size_t)d->key_dim + (size_t)d->head_dim + 16 + (d->decays_rows ? (size_t)d->key_dim : 0);
}
static inline size_t kin_delta_head_floats(const kin_delta_net *d) {
    return (size_t)d->key_dim * (size_t)d->head_dim + KIN_STATE_LOG * kin_delta_log_row(d);
}
static inline size_t kin_delta_history_floats(const kin_delta_net *d) {
    return (size_t)(KIN_STATE_LOG + d->n_taps - 1) * (size_t)kin_delta_n_channels(d);
}
static inline size_t kin_delta_state_floats(const kin_delta_net *d) { // a multiple of 16
    return kin_delta_history_floats(d) + (size_t)d->n_value_heads * kin_delta_head_floats(d);
}

// The same of a layer with a short convolution: f32 [KIN_STATE_LOG + n_taps - 1][n_embd], the convolution's inputs.
static inline size_t kin_conv_state_floats(const kin_hparams *hp) {
    return (size_t)(KIN_STATE_LOG + hp->conv.n_taps - 1) * (size_t)hp->n_embd;
}

// Behind the state of the layer with an embedding of the last tokens: f32 [KIN_STATE_LOG + n_before][n_embd + KIN_NGRAM_EXTRA],
// of the tokens that the convolution reaches, and of the log: the value that is added, then by stream the gate, and what makes
// the convolution's input of the value.
enum { KIN_NGRAM_EXTRA = 16, KIN_NGRAM_GATES = 0, KIN_NGRAM_FACTORS = 8 };
static inline size_t kin_ngram_row_floats(const kin_hparams *hp) {
    return (size_t)hp->n_embd + KIN_NGRAM_EXTRA;
}
static inline int kin_ngram_n_before(const kin_hparams *hp) {
    return (hp->ngram.n_taps - 1) * hp->ngram.size;
}
static inline size_t kin_ngram_state_floats(const kin_hparams *hp, int il) {
    if (hp->ngram.size == 0 || il != hp->ngram.layer) return 0;
    return (size_t)(KIN_STATE_LOG + kin_ngram_n_before(hp)) * kin_ngram_row_floats(hp);
}

// Returns the size of a state of a recurrent layer.
static inline size_t kin_state_floats(const kin_hparams *hp, int il) {
    return hp->conv.n_taps > 0 ? kin_conv_state_floats(hp) : kin_delta_state_floats(&hp->delta) + kin_ngram_state_floats(hp, il);
}

typedef struct kin_graph_layer {
    struct ggml_tensor *w[KIN_W_COUNT]; // NULL if the family does not have it
    struct ggml_tensor *k, *v;          // KV cache [n_embd_k, n_cells], [n_embd_v, n_cells]; NULL in recurrent layers, v also in
                                        // latent ones
    struct ggml_tensor *index;          // an indexer's keys f16 [kin_layer_n_index, n_cells]; NULL: it has none, or they are in k
    float *states;                      // [number of states][kin_state_floats] in recurrent layers
} kin_graph_layer;

// Activations already rounded for matrix products.
typedef struct kin_graph_rounded {
    struct ggml_tensor *x;
    kin_act_kind kind;
    struct ggml_tensor *act;
} kin_graph_rounded;

// How the devices of a group add up their partial results of a layer (model/share.h).
typedef struct kin_sum {
    void (*begin)(void *user, uint64_t step, int round); // announces that the next sums belong to this round of this step; may be
                                                         // NULL
    // x // f32 [n_rows, n_embd], this device's part -> the sum of all devices' parts, added in the order of their ranks, so that
    // all devices get the same bits. Called by one thread at a time, while the other threads of the pool wait.
    int (*add)(void *user, float *x, int n_rows, int n_embd, kin_err *err);
    // Returns the maximum bytes that adding up this many values takes on each of n_ranks devices; may be NULL.
    size_t (*bytes)(int n_ranks, size_t n_values);
    void *user;
} kin_sum;

// The sums of one run: after a failure no further one is attempted.
typedef struct kin_graph_sums {
    kin_sum sum;
    bool failed;
    kin_err err;
} kin_graph_sums;

// Locates a layer's experts if not all of them are in memory. Computing threads call these functions, while the
// others compute or wait. NULL: all experts are in their tensors.
enum { KIN_EXPERT_GATE, KIN_EXPERT_UP, KIN_EXPERT_DOWN, KIN_EXPERT_MATRICES };
typedef struct kin_expert_source {
    // n_tokens tokens have chosen n experts of a layer: order // [n], ascending. Expert i multiplies the rows [begin[i], begin[i
    // + 1]). Does not wait for them; may put `order` into the order in which they should be computed. Returns how many of them
    // are the first group: all, unless in_groups.
    int (*choose)(void *user, int il, int n_tokens, const int32_t *begin, int32_t *order, int n, bool in_groups);
    // The last group has been computed, and its experts may leave memory. order // [n]: the experts after it. Returns how many of
    // them are the next group.
    int (*choose_next)(void *user, int il, int32_t *order, int n);
    // Returns a matrix of an expert; NULL: it is in the weight's tensor. waits: only when it is in memory. Holds nothing, so that
    // its thread may be interrupted.
    const uint8_t *(*find)(void *user, int il, int expert, int matrix, bool waits);
    // Look-ahead; NULL: none. is_due: after `choose` of the layer before, whether this layer's experts are guessed in this step.
    // expect: these experts are likely, each token's most likely one first: likely // [n_tokens, stride], of which n_expert_used
    bool (*is_due)(void *user, int il);
    void (*expect)(void *user, int il, const int32_t *likely, int n_tokens, int stride);
    void *user;
} kin_expert_source;

// A function with the type of ggml_backend_graph_compute.
typedef enum ggml_status kin_compute_fn(ggml_backend_t backend, struct ggml_cgraph *graph);

// How a device computes graphs that consist of kin's nodes.
typedef struct kin_compute {
    bool repeats_small;        // for tests: chunks may be computed twice in small graphs too
    kin_team *team;            // NULL: ggml's threads compute
    bool (*stops)(void *user); // called between two nodes; true ends the graph. NULL: nothing ends it
    void *stops_user;
    // Set by the lab: computes a graph with `compute`, at the pace of a slower processor. NULL in other programs.
    enum ggml_status (*pace)(kin_compute_fn *compute, ggml_backend_t backend, struct ggml_cgraph *graph);
} kin_compute;

typedef struct kin_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *gf;
    const kin_hparams *hp;
    const kin_graph_layer *layers;               // [n_layer], by the model's layer number
    struct ggml_tensor *rope_factors;            // f32 [n_rot / 2], NULL if the model has none
    struct ggml_tensor *yarn_factors[KIN_ROPES]; // f32 [n_rot / 2] used instead of YaRN where ggml would round its corners; or
                                                 // NULL
    bool flash;                                  // use the fused attention operator
    kin_graph_sums *sums;                        // for a group whose devices share each layer; NULL: the layers are whole
    const kin_expert_source *experts;            // with kin's kernels; NULL: all experts are in their tensors

    int layers_end;               // the layers before this one are in the graph, so their weights are in memory; 0: only one is
    int n_kv;                     // cells that attention reads
    struct ggml_tensor *cells;    // i64 [all.n]: the cache cell that each token writes
    kin_graph_rows all;           // every token of the batch
    kin_graph_rows out;           // the tokens whose result is needed after the model's last layer
    struct ggml_tensor *residual; // f32 [n_embd, all.n]: added to the result of the second half of a feed-forward block
    struct ggml_tensor *inputs;   // f32 [n_input * n_layer, all.n]: the layers' inputs; NULL: they have none
    struct ggml_tensor *tokens;   // i32 [1, all.n]: their numbers in the vocabulary; NULL: no layer needs them
    struct ggml_tensor *ngrams;   // f32 [any, all.n]: the embeddings of the last tokens (kin_ngram); NULL: the model has none
    struct ggml_tensor *out_rows; // i32 [out.n]: their numbers in the batch; NULL: all tokens are needed
    struct ggml_tensor *choice;   // i32 [n_chosen, at least all.n]: what the last indexer has chosen, for layers that share it,
                                  // also of later graphs; NULL: no layers do

    // With kin's kernels:
    const kin_kernels *kernels; // NULL: use ggml's
    const kin_compute *compute; // NULL: ggml's threads compute
    bool keeps_all;             // no two nodes share memory, so a node's inputs stay unchanged until the graph is done
    int n_threads;              // the number of threads that will compute the graph
    int active_threads;         // how many of them compute it this time; 0: all
    struct kin_op *ops;         // [max_ops] parameters of the graph's nodes
    int n_ops, max_ops;
    struct ggml_tensor *partial;                  // scratch of attention; NULL: not allocated yet
    kin_graph_rounded rounded[KIN_GRAPH_ROUNDED]; // the most recent ones
    int n_rounded;
} kin_graph;
