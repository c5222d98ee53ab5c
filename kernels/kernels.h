// kin's CPU kernels: matrix products, attention and the small operators between them.
//
// Plain functions over memory: no ggml, no threads, no allocation, no state except kin_kernels_variants. Callers give each thread
// a range of the work. Unlike ggml's kernels, a row's bits depend neither on the other rows of its batch, nor on how work is
// divided among threads, nor on the CPU. docs/KERNELS.md says how that is done and what it costs.
//
// Thread: any; calls may run concurrently if they write different ranges.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_PANEL_FORMAT = 3, // version of the packed layout: stored bytes of another version cannot be used
    KIN_PANEL_ROWS = 16,  // interleaved rows of a packed matrix
    KIN_ACT_COLUMNS = 256,
    KIN_ROUTE_EXPERTS = 4096,
};

// ---- matrices

// How activations are quantized before they are multiplied with a type's weights.
typedef enum kin_act_kind {
    KIN_ACT_NONE, // no kernel for this type
    KIN_ACT_256,  // one scale for 256 columns
    KIN_ACT_32,   // one scale for 32 columns
    KIN_ACT_F32,  // not quantized: products are computed in float
} kin_act_kind;

// 256 columns of one activation row. A batch is an array [n_blocks][n_rows] of these: blocks of columns first.
typedef struct kin_act {
    int8_t q[KIN_ACT_COLUMNS];
    int16_t sum[16]; // of q: 16 columns each
    float d[8];      // x = d * q: d[0] (KIN_ACT_256), or 32 columns each (KIN_ACT_32)
} kin_act;

// type: a GGUF type number, which equals enum ggml_type
kin_act_kind kin_kernel_act_kind(int type);

// True if a matrix of this type and number of columns can be multiplied: all types that GGUF has for weights, in whole blocks of
// the type.
bool kin_kernel_has(int type, int64_t columns);

// True if such a matrix is faster when it is packed; KIN_ACT_F32 matrices are used as stored in the file.
bool kin_kernel_packs(int type);

// Interleaves the rows: src, as in GGUF, one row after the other -> dst, panels of 16 rows, with the same size in bytes; rows
// after the last whole panel stay as they are. A panel depends only on its 16 rows: a range of rows at panel boundaries is the
// same byte range of src and of dst.
void kin_kernel_pack(int type, int64_t columns, int64_t rows, const void *src, void *dst);

static inline size_t kin_act_bytes(int64_t columns, int64_t n) {
    return (size_t)((columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS * n) * sizeof(kin_act);
}

// Variants of multiplying a row with each type's weights, indexed by type number. The fastest depends on the processor, which
// WebAssembly cannot query, so web/engine.js measures it. All give the same bits. Initially 0, and changed only in browsers,
// because two panels have no prefetch; must not change while anything is computed.
enum {
    KIN_VARIANT_TWO = 1,    // alternates between two panels: two streams from memory
    KIN_VARIANT_FOURS = 2,  // adds products of bytes directly to 32 bits: one instruction with AVX-VNNI or NEON's sdot, three
                            // elsewhere
    KIN_N_VARIANTS = 4,     // any combination of these
    KIN_VARIANT_TYPES = 64, // type numbers are below this
};
extern uint8_t kin_kernels_variants[KIN_VARIANT_TYPES];

typedef struct kin_matrix {
    int type;
    int64_t columns, rows;
    bool is_packed; // by kin_kernel_pack; otherwise the rows are as in the file, which gives the same bits
    const void *data;
    const void *next; // weights that the thread reads next, to be prefetched; NULL: none
} kin_matrix;

// ---- attention

// The KV cache of a layer is two arrays of blocks, K and V. A block is KIN_KV_CELLS cells of one sequence, its positions 64 i ..
// 64 i + 63, for all kv heads: [block][kv head], and within it
//   K  f16   [k_dim][64 cells]                             V  f16   [64 cells][v_dim]
//      q8_0  int8 [k_dim / 4][64][4], f16 [k_dim / 32][64]     q8_0  int8 [64 / 4][v_dim][4], f16 [v_dim / 32][64]
// or, if a layer's attention reads single cells (kin_kv_layout.by_cell),
//   K  f16   [64 cells][k_dim]                             q8_0  int8 [64 cells][k_dim], f16 [64 cells][k_dim / 32]
// q8_0 has one scale per 32 values of a cell's head. Blocks are aligned to 64 bytes.
enum {
    KIN_KV_CELLS = 64,
    KIN_KV_DIM = 576,  // the widest head of K or V
    KIN_KV_FORMAT = 2, // version of the block layout: blocks of another version are not read
};

typedef struct kin_kv_layout {
    int type; // the number of F16 or Q8_0
    int n_head_kv;
    int k_dim, v_dim; // values of a head
    bool v_in_k;      // there is no V: a head's values are the first v_dim of its key
    bool by_cell;     // K is stored by cell; only with v_in_k
} kin_kv_layout;

// True if attention has a kernel for it: k_dim and v_dim must be multiples of 16 up to KIN_KV_DIM, of 32 for Q8_0.
bool kin_kv_has(const kin_kv_layout *kv);

// Returns the bytes of K or of V in one block of one layer: the same as 64 rows take in ggml; 0 for V within K.
size_t kin_kv_block_bytes(const kin_kv_layout *kv, bool is_k);

// Rows of K and V to be stored into cells of the cache.
typedef struct kin_kv_rows {
    kin_kv_layout kv;
    void *k, *v;          // a layer's cache; either may be NULL: then only the other one is stored
    const float *k_rows;  // f32 [n, ldk], of which n_head_kv * k_dim are read
    const float *v_rows;  // f32 [n, ldv], n_head_kv * v_dim
    int64_t ldk, ldv;     // floats from one row to the next
    const int32_t *cells; // [n] block * KIN_KV_CELLS + position % KIN_KV_CELLS
} kin_kv_rows;

// Attention of one layer for a batch: rows of any sequences, each with the cells that it attends to.
//
// The result is defined by spans of KIN_SPAN_CELLS positions: within a span the sums run over its cells in order, then spans are
// merged in order. So a row's bits do not depend on whether spans are separate tasks, on where blocks are, or on other rows.
// Cells that a row does not attend to are never added, whatever bits they hold.
enum { KIN_SPAN_CELLS = 512 };

typedef struct kin_attention {
    kin_kv_layout kv;
    const void *k, *v;  // a layer's cache; v is not read if it is in k
    int n_head;         // query heads: a multiple of n_head_kv
    float scale;        // multiplies q k, usually 1 / sqrt(k_dim)
    float softcap;      // c: scores become c tanh(score / c); 0: unchanged
    const float *sinks; // f32 [n_head] scores that take weight but add no value, or NULL
    int64_t n_rows;
    const float *q; // f32 [n_rows, ldq], of which n_head * k_dim are read
    int64_t ldq;
    const int32_t *n_cells;     // [n_rows] end of the positions that a row attends to: its own + 1. 0: its output is zeros
    const int32_t *first_cells; // [n_rows] the first position that it attends to (sliding windows); NULL: 0
    const int32_t *chosen;      // i32 [n_rows, n_chosen]: rows whose n_cells is above n_chosen attend to these positions only,
                                // which ascend; they take the places of the positions from 0 on in spans. Needs kv.by_cell, and
                                // no first_cells. NULL: rows attend to all
    int n_chosen;
    int chosen_pool; // `chosen` holds whole pools of this many positions, then all positions after the last whole pool: a row
                     // uses the first n_chosen - chosen_pool + 1 + n_cells % chosen_pool entries. 0 or 1: it uses all
    const int32_t *chosen_blocks; // i32 [n_rows, n_head_kv, n_chosen / 64]: the same, but whole blocks of the cache instead of
                                  // positions, for each kv head others. Of the last chosen_step positions a row attends to those
                                  // up to its own. Without by_cell. NULL: rows attend to all
    int chosen_step;
    const int32_t *chosen_groups; // i32 [n_rows, n_chosen / chosen_step]: the same, but groups of chosen_step positions, a
                                  // multiple of 4: group g has those from chosen_step g on. A row attends to them if its
                                  // positions make more whole groups, and then to its positions after the last whole one.
                                  // Without by_cell and v_in_k. NULL: rows attend to all
    const int32_t *const *blocks; // [n_rows] the block of a row's positions 64 i .. Consecutive rows with the same table (the
                                  // same pointer) read K and V once
    float *out;                   // f32 [n_rows, ldo], of which n_head * v_dim are written
    int64_t ldo;
    float *partial; // scratch for the results of spans; NULL: no task is split
    size_t partial_bytes;
    // Set by kin_attention_plan():
    int n_spans;                      // spans that are separate tasks; 1: a task has all of them
    int64_t n_seen;                   // the most cells that a row attends to
    int64_t n_tiles;                  // groups of rows that read K and V together
    int64_t last_tile, last_tile_row; // the tile that attend() computed last, and its first row
} kin_attention;

// Decides whether spans become separate tasks: if there are few rows and heads for this many threads, and `partial` has room.
// Returns the number of tasks for attend(). Tasks differ in length: take a few at a time. If n_spans is above 1, merge() must
// follow when all tasks are done.
int64_t kin_attention_plan(kin_attention *a, int n_threads);

// The floats that a task writes if the batch is a single row: in `partial` if n_spans is above 1, else in `out`.
typedef struct kin_attention_part {
    int64_t begin, n_heads;
    int64_t width, ld; // floats for a head, and from one head to the next
} kin_attention_part;
kin_attention_part kin_attention_part_of(const kin_attention *a, int64_t task);

// True if anything would be split with this many threads, at least for a single row.
bool kin_attention_may_split(int n_head_kv, int n_threads);

// Returns the bytes of `partial` needed to split n_rows rows that attend to at most n_cells cells.
size_t kin_attention_partial_bytes(const kin_kv_layout *kv, int n_head, int64_t n_rows, int64_t n_cells);

// ---- indexers

// Scores of the cells of a block, of one query: the sum over the heads, in order, of weight * max(q . k, least), where each
// product is a sum over the columns in order.
enum { KIN_POOLED_KEYS = 16 }; // keys in a block of cells, if several cells have one together
typedef struct kin_index_query {
    int n_head, dim;      // dim is a multiple of 16
    const float *q;       // f32 [n_head, dim]
    const float *weights; // f32 [n_head]
    float least;          // 0 or -INFINITY
    int n_keys;           // of a block: KIN_KV_CELLS or KIN_POOLED_KEYS
} kin_index_query;

// Finds the n greatest of many scores, of equal ones the first. NaN is less than all others.
enum {
    KIN_CHOSEN_MAX = 4096,
    KIN_GREATEST_ROOM = 2 * KIN_CHOSEN_MAX,
};
typedef struct kin_greatest {
    int n;        // at most KIN_CHOSEN_MAX
    int n_held;   // the first of at and key
    bool is_full; // n have been found, of which `least` is the least
    uint32_t least;
    int32_t at[KIN_GREATEST_ROOM]; // ascending
    uint32_t key[KIN_GREATEST_ROOM];
} kin_greatest;

void kin_greatest_begin(kin_greatest *g, int n);
// Adds the scores // f32 [n_scores] of the numbers first, first + 1, ..., which are above all before.
void kin_greatest_add(kin_greatest *g, int32_t first, int n_scores, const float *scores);
// Writes the numbers of the n greatest to `at`, ascending. At least n must have been added.
void kin_greatest_end(kin_greatest *g, int32_t *at);

// ---- rotary position embedding

enum { KIN_ROPE_PAIRS = 256 }; // maximum n_rot / 2

typedef struct kin_rope {
    int n_rot; // rotated dimensions of a head, even
    double base, freq_scale;
    // YaRN, with llama.cpp's names; ext_factor 0: off
    double ext_factor, attn_factor, beta_fast, beta_slow;
    int n_ctx_orig;
    bool exact_corners;   // YaRN's boundaries between pairs are not rounded to whole pairs (gpt-oss)
    const float *factors; // f32 [n_rot / 2] divisors of the frequencies; NULL: none. Borrowed
} kin_rope;

// Computes the frequency of each pair of dimensions, in radians per position: freq // f64 [n_rot / 2]
void kin_rope_frequencies(const kin_rope *rope, double *freq);

// Returns the factor by which YaRN multiplies cosines and sines.
double kin_rope_length(const kin_rope *rope);

// Computes the factors // f32 [n_rot / 2] that give these frequencies without YaRN and scaling.
void kin_rope_factors(const kin_rope *rope, float *factors);

// Computes cos_sin // f32 [2][n_rot / 2]: cosines and sines of position times freq, multiplied by YaRN's factor.
void kin_rope_cos_sin(const kin_rope *rope, const double *freq, int32_t pos, float *cos_sin);

// Returns 1 + scale * ln(1 + floor(pos / n_ctx_orig)), by which some families multiply their queries.
float kin_rope_temperature(float scale, int n_ctx_orig, int32_t pos);

// ---- feed-forward blocks

typedef enum kin_gate {
    KIN_GATE_SILU,    // g / (1 + e^-g) * u
    KIN_GATE_GELU,    // the tanh form of GELU of g, times u
    KIN_GATE_OAI,     // gpt-oss: g = min(g, 7), u = clamp(u, -7, 7): g / (1 + e^(-1.702 g)) * (u + 1)
    KIN_GATE_CLAMPED, // as SILU, but a limit (gate_limited) is one of g, before anything is made of it
} kin_gate;

// What makes factors of the products that gate the results of attention's heads.
typedef enum kin_head_gate {
    KIN_HEAD_GATE_SIGMOID,
    KIN_HEAD_GATE_SOFTPLUS, // ln(1 + e^g)
} kin_head_gate;

// How a token's experts are chosen and weighted.
typedef enum kin_gating {
    KIN_GATING_CHOSEN,  // softmax of the chosen experts' logits
    KIN_GATING_SOFTMAX, // softmax of all logits
    KIN_GATING_SIGMOID,
    KIN_GATING_SOFTPLUS, // sqrt(ln(1 + e^logit))
} kin_gating;

enum { KIN_ROUTE_GROUPS = 64 };

typedef struct kin_routing {
    int n_expert; // at most KIN_ROUTE_EXPERTS
    int n_used;
    kin_gating gating;
    bool normalize;            // shares are divided by their sum
    float scale;               // multiplies the shares
    int n_group, n_group_used; // experts form n_group groups; only the n_group_used groups with the largest sum of their two best
                               // experts are considered. n_group 0 or 1: all. At most KIN_ROUTE_GROUPS
    const float *bias;         // f32 [n_expert], added when choosing, not when weighting; NULL: none. Borrowed
    const int32_t *given;      // [n_used] the experts, which are not chosen; with a gating of all logits. NULL: they are chosen
} kin_routing;

// ---- residual streams

// The gates of a block of a token with several residual streams, from its products m // f32 [n_streams (2 + n_streams)]:
//   part of stream s in the block's input        sigmoid(m[s] scale[0] + base[s]) + eps
//   factor of the block's result in stream d     2 sigmoid(m[n + d] scale[1] + base[n + d])
//   part of stream s in stream d afterwards      C[s][d], of m[2 n + s n + d] scale[2] + base[..]: a softmax over d, plus eps;
//                                                then in turns divided by their sum (plus eps) over s and over d, n_iterations
//                                                times the former and one time less the latter
typedef struct kin_sinkhorn {
    int n_streams, n_iterations;
    float eps;
    bool is_end; // only the first line: m, base and scale have no more
    const float *base, *scale;
} kin_sinkhorn;

// ---- recurrent layers

// A short convolution over time of some channels: output row r is the sum over i < n_taps of x[r + i] * tap i, by channel, or
// SiLU of it.
typedef struct kin_convolution {
    int n_taps;            // at most KIN_CONVOLUTION_TAPS
    int64_t n;             // channels, a multiple of 16
    const float *taps;     // f32 [n, n_taps]
    const float *bias;     // f32 [n], added to the sum; NULL: none
    int n_rows;            // output rows
    const float *const *x; // [n_taps - 1 + n_rows] input rows // f32 [n], oldest first
    float *const *y;       // [n_rows] output rows // f32 [n]; no input row
    bool is_plain;         // without SiLU
} kin_convolution;

enum { KIN_CONVOLUTION_TAPS = 8 };

// A token of one head of a gated delta net. The head's matrix M has a column for each value, and a row for each number of a key:
//   d = beta (v - decay M^T k)    M = decay M + k d^T    out = scale M^T q
// or, of a state space (Mamba-2), with d = beta v; or, of Kimi's delta attention, with a decay of each row:
//   d = beta (v - M^T (decays k))    M = diag(decays) M + k d^T
typedef struct kin_delta_row {
    const float *q, *k; // f32 [n_key]
    const float *v;     // f32 [n_value]
    float decay, beta;
    const float *decays; // f32 [n_key], with decays_rows
    float *out;          // f32 [n_value]; NULL: not wanted, and q is not read
} kin_delta_row;

enum { KIN_DELTA_KEYS = 256 };

// Tokens of one head, in order.
typedef struct kin_delta_rule {
    int n_key, n_value; // multiples of 16; n_key at most KIN_DELTA_KEYS
    bool is_additive;   // d = beta v
    float scale;
    int n_rows, n_stored; // the first n_stored rows change m; the others only see what it would be
    const kin_delta_row *rows;
    float *m;         // f32 [n_value / 16][n_key][16]: 16 values of each key are adjacent
    bool decays_rows; // decays instead of decay; not with is_additive
} kin_delta_rule;

// ---- the back-ends

typedef struct kin_kernels {
    const char *name; // "avx512"

    // Quantizes rows: x // f32 [n, columns] -> act // [n_blocks][n], the blocks [begin, end) of n_blocks * n.
    void (*quantize)(kin_act_kind kind, int64_t columns, int64_t n, const float *x, kin_act *act, int64_t begin, int64_t end);

    // y[i][r] = the product of activation row i and the matrix's row r, for the panels of 16 rows in [begin, end), of which the
    // last may be shorter, and the n rows of a batch. act // [n_blocks][n]; x // f32 [n, columns]; only one of the two is read,
    // depending on the type. y // f32 [n, ldy]
    void (*matmul)(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                   int64_t end);

    // Stores the rows [begin, end) of K and V in the cache.
    void (*kv_store)(const kin_kv_rows *rows, int64_t begin, int64_t end);

    // Attention: the tasks [begin, end) of kin_attention_plan(); then, if it split them, the rows [begin, end) of out. Each
    // thread needs its own copy of `a`, which remembers the last task: tasks are found quickly in ascending order.
    void (*attend)(kin_attention *a, int64_t begin, int64_t end);
    void (*attend_merge)(const kin_attention *a, int64_t begin, int64_t end);

    // The scores of a block of an indexer's keys: k // f16 [dim][n_keys] -> scores // f32 [n_keys]
    void (*index_scores)(const kin_index_query *query, const uint16_t *k, float *scores);

    // y = x / sqrt(mean(x^2) + eps) * weight; all // f32 [n], n a multiple of 16. y may be x. weight NULL: 1.
    void (*rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y);

    // y = x - mean(x); f32 [n], n a multiple of 16. y may be x.
    void (*center)(int64_t n, const float *x, float *y);

    // y += x; f32 [n]
    void (*add)(int64_t n, const float *x, float *y);

    // y = activation(gate) * up, as kin_gate says; f32 [n]. y may be gate or up.
    void (*gate)(kin_gate kind, int64_t n, const float *gate, const float *up, float *y);

    // y = min(SiLU(gate), limit) * clamp(up, -limit, limit); of KIN_GATE_CLAMPED SiLU(min(gate, limit)) * the same. Otherwise
    // like gate.
    void (*gate_limited)(kin_gate kind, float limit, int64_t n, const float *gate, const float *up, float *y);

    // y = x / (1 + e^-g): f32 [n]; g is one number. y may be x.
    void (*scale_sigmoid)(int64_t n, float g, const float *x, float *y);

    // Multiplies heads x // f32 [n_head, head_dim] by factors made of gate // f32 [n_head] or, if is_each, [n_head, head_dim].
    // head_dim is a multiple of 16.
    void (*gate_heads)(kin_head_gate kind, bool is_each, int n_head, int head_dim, const float *gate, float *x);

    // x = cap tanh(scale x / cap), or scale x if cap is 0; f32 [n]
    void (*cap)(int64_t n, float scale, float cap, float *x);

    // Rotates a head for its token's position. cos_sin // f32 [2][n_rot / 2]: cosines, then sines (kin_rope_cos_sin).
    void (*rope)(bool neox, int n_rot, const float *cos_sin, float *head);

    // Chooses a token's experts from its router's logits // f32 [n_expert]: the numbers and shares of the n_used best, best
    // first. Among equal ones the lower number comes first.
    void (*route)(const kin_routing *routing, const float *logits, int32_t *chosen, float *share);

    // y += share * x; f32 [n], n a multiple of 16
    void (*add_scaled)(int64_t n, float share, const float *x, float *y);

    // gates // f32, as many as there are numbers in m. gates must not be m.
    void (*sinkhorn)(const kin_sinkhorn *sinkhorn, const float *m, float *gates);

    // x = softmax(scale x), where *sink, unless it is NULL, is a further score that takes weight; f32 [n]
    void (*softmax)(int64_t n, float scale, const float *sink, float *x);

    // y = the sum of the rows x, in each column weighted by the softmax of its gates: gate, x // [n_rows] rows f32 [n]; y // f32
    // [n], n a multiple of 16
    void (*pool)(int64_t n, int n_rows, const float *const *gate, const float *const *x, float *y);

    // y = x; n a multiple of 16. F16 is rounded to nearest, ties to even.
    void (*to_f16)(int64_t n, const float *x, uint16_t *y);
    void (*from_f16)(int64_t n, const uint16_t *x, float *y);

    void (*convolve)(const kin_convolution *convolution);

    // x /= max(|x|, eps); f32 [n], n a multiple of 16
    void (*unit)(int64_t n, float eps, float *x);

    // The factors of n tokens of a head: decay = e^(a ln(1 + e^(alpha + dt))), beta = 1 / (1 + e^-b); f32 [n], n a multiple of
    // 16. decay may be alpha, beta may be b.
    void (*delta_factors)(int64_t n, float a, float dt, const float *alpha, const float *b, float *decay, float *beta);
    // The decays of the rows of a head's matrix for a token: e^(a ln(1 + e^(x + dt))), or, with `least` below 0, which is the
    // logarithm of a bound, e^(least / (1 + e^(a (x + dt)))); f32 [n], n a multiple of 16. decays may be x.
    void (*delta_decays)(int64_t n, float a, float least, const float *dt, const float *x, float *decays);
    void (*delta)(const kin_delta_rule *delta);
} kin_kernels;

// Returns the best back-end for this CPU, or the one named by the environment variable KIN_CPU. NULL: KIN_CPU names none that can
// run here (the error lists those that can).
const kin_kernels *kin_kernels_choose(kin_err *err);

// Return the i-th back-end compiled in (NULL beyond the last), and whether this CPU supports it.
const kin_kernels *kin_kernels_at(int i);
bool kin_kernels_can_run(const kin_kernels *kernels);
