// The KV cache of a device's layers, with the states of recurrent ones (engine/kv/states.h): keys and values of the processed
// tokens, for several sequences at once.
//
// It consists of cells in blocks of 64; a cell holds one token's keys and values in every layer; windowed layers may have cells
// of their own, for the last tokens of each sequence (engine/kv/window.h). The block table (engine/kv/blocks.h) records which
// blocks a sequence has and which it shares with others. kin's attention walks a sequence's table of blocks; ggml's reads a
// prefix of the cells through a mask.
//
// Owner and thread: the shard's.
#pragma once

#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device.h"
#include "engine/kv/blocks.h"
#include "engine/kv/cells.h"
#include "engine/kv/page.h"
#include "engine/kv/states.h"
#include "engine/kv/window.h"
#include "kernels/kernels.h"
#include "model/graph.h"
#include "model/hparams.h"
#include "pure/plan/window.h"

typedef struct kin_kv kin_kv;

typedef struct kin_kv_options {
    kin_windows windows;  // the layers
    int n_ctx;            // in tokens, shared by all sequences
    enum ggml_type type;  // GGML_TYPE_F16 or GGML_TYPE_Q8_0
    kin_kv_window window; // the blocks of windowed layers, except for those on the GPU, which use the blocks of the others
} kin_kv_options;

enum {
    KIN_PAGES_MAX = 8,   // pages per request: 512 tokens
    KIN_KV_COPIES = 256, // maximum extra cells of a batch's tokens
};

// A request to keep pages of a sequence on each member's disk, to load them from there, or to drop them. The pages are blocks
// first .. first + n - 1. To be kept they must be full. To load them the sequence must have all blocks before them, full, and
// none of these. After a load the sequence has all n blocks, whether they were found or not; the reply says how many leading ones
// are valid, and the head discards the rest.
typedef struct kin_page_request {
    bool loads;      // load from the disk; false: keep there
    bool drops;      // instead of both: remove everything stored on this disk under these names, of all layers
    bool has_states; // without `recomputes`: with what layers without pages need at the end of the last page (kin_kv_n_parts); to
                     // keep or drop: that instead of the pages
    bool recomputes; // with loads: layers whose pages are on no device are recomputed from the hidden states at their border
    int timeout_ms;  // timeout for pages on other devices' disks; 0: none is fetched. To keep states: for this one to have
                     // written what is queued before them
    int32_t seq;
    int first, n;                     // 1 <= n <= KIN_PAGES_MAX
    kin_page_key keys[KIN_PAGES_MAX]; // [n]
    kin_border_set borders;           // if it recomputes: the borders of the ring that computed these pages
} kin_page_request;

// The tokens of one step, and the cache changes to make before them. The arrays are borrowed.
typedef struct kin_batch {
    int n_tokens;
    const int32_t *pos;    // [n_tokens] position in the sequence, from 0
    const int32_t *seq;    // [n_tokens] sequence number, >= 0; NULL: all 0
    const int32_t *tokens; // [n_tokens] their numbers in the vocabulary; NULL: no layer needs them (kin_hparams_token_layers)
    const int32_t *out;    // [n_out] rows whose result is needed after the last layer, ascending; NULL: all
    int n_out;
    const float *inputs;  // f32 [n_tokens, n_layer * n_input]: the layers' inputs; NULL: they have none, or these are in the rows
                          // that the layers are given (model/border.h)
    bool no_output;       // kin_shard_output will not follow, so its weights need not be prepared
    const kin_kv_op *ops; // [n_ops]
    int n_ops;
    const kin_page_request *pages; // handled instead of tokens, after the changes; NULL: none
} kin_batch;

// True if an operation removes tokens that the batch contains.
bool kin_batch_loses(const kin_batch *batch, const kin_kv_op *op);

static inline int kin_batch_n_out(const kin_batch *batch) {
    return batch->out ? batch->n_out : batch->n_tokens;
}

// Returns the number of cells for n_ctx tokens, rounded up to whole blocks.
static inline int kin_kv_n_cells(int n_ctx) {
    return (n_ctx + KIN_KV_CELLS - 1) / KIN_KV_CELLS * KIN_KV_CELLS;
}

uint64_t kin_kv_bytes(const kin_hparams *hp, const kin_kv_options *options);

// Fails if the keys or values of a head are not whole blocks of the type (32 values of Q8_0), because a head is read alone.
int kin_kv_check_type(const kin_hparams *hp, enum ggml_type type, kin_err *err);

// Returns the layer whose cells layer `il` of this window reads: the one whose keys and values these are. If that one is not in
// the window, or on its other device, it is the first layer there that reads them. This one holds a copy, which is written when a
// step comes to the window (engine/side_rows.h): so a later window has a copy of its own, which later steps, still at
// earlier members, do not change yet.
int kin_kv_home(const kin_hparams *hp, const kin_window *window, int il);

int kin_kv_source(const kin_kv *kv, int il); // the layer whose keys and values these are: pages are named after it

// `device_of` returns the device that holds a layer's cache.
int kin_kv_open(kin_kv **out, const kin_hparams *hp, const kin_kv_options *options,
                const kin_device *(*device_of)(const void *user, int il), const void *user, kin_err *err);
void kin_kv_close(kin_kv *kv);

// Extra cells of a batch's tokens, in sequences that were branched off within the batch.
typedef struct kin_kv_copies {
    kin_row_cell at[KIN_KV_COPIES];
    int n;
} kin_kv_copies;

// Applies batch->ops, then assigns a cell to each token of the batch: cells // i64 [n_tokens]. An operation that copies tokens of
// this same batch is applied after those tokens are placed, and later operations wait with it: so sequences can branch within a
// batch. If the copied tokens end within a block, they are also written to the new sequence's block, listed in copies (NULL:
// there is no such operation). Fails if there is no room, if a position of a sequence would get two cells, if an earlier position
// has none, or if an operation removes tokens of the batch. Operations before the failure stay applied, so the cache must be
// cleared.
int kin_kv_place(kin_kv *kv, const kin_batch *batch, int64_t *cells, kin_kv_copies *copies, kin_err *err);

// Fills in the runs of a batch that was just placed: runs // [n_tokens], rows // i32 [n_tokens], which the runs point into.
// Returns their number. Only if the model has recurrent layers.
int kin_kv_runs(const kin_kv *kv, const kin_batch *batch, kin_run *runs, int32_t *rows);

// Copies that operations have asked for, and that are made layer by layer, before the next step that was placed is computed
// there: steps in flight may still read what was there. They are those of states, and of blocks of windowed layers.
typedef struct kin_kv_later {
    kin_state_copies states, blocks;
} kin_kv_later;

// Exchanges *later, whose lists are no longer needed, for the copies asked for since the last call.
void kin_kv_swap_later(kin_kv *kv, kin_kv_later *later);
void kin_kv_copy_later(kin_kv *kv, int il, const kin_kv_later *later);
// Makes the copies asked for since the last call in all layers now. Call while no step is in flight.
void kin_kv_copy_now(kin_kv *kv);
float *kin_kv_layer_states(const kin_kv *kv, int il); // NULL: it is not recurrent, or not here

// Removes the tokens of a placed batch, and everything placed after them in their sequences.
void kin_kv_undo(kin_kv *kv, const kin_batch *batch);
void kin_kv_clear(kin_kv *kv); // forgets all sequences

// Returns the number of cells that a mask must cover: up to the end of the highest block in use.
int kin_kv_n_used(const kin_kv *kv);

// Writes the numbers of the blocks that hold positions 0, 64, 128, ... of a sequence to table // i32 [kin_kv_n_cells(n_ctx) /
// KIN_KV_CELLS].
void kin_kv_table(const kin_kv *kv, int32_t seq, int32_t *table);
// The same for windowed layers. A step may be computed with a table that was made after later steps were placed.
void kin_kv_window_table(const kin_kv *kv, int32_t seq, int32_t *table);
int64_t kin_kv_window_cell(const kin_kv *kv, int32_t seq, int32_t pos); // of a position in windowed layers

// Fills mask // f16 [n_rows, n_kv]: 0 where row i's token may attend (its own sequence, up to its own position), else -inf. rows:
// token numbers in the batch; NULL: all. window: a row attends only to that many tokens, including its own; 0: all.
void kin_kv_mask(const kin_kv *kv, const kin_batch *batch, const int32_t *rows, int n_rows, int n_kv, int window,
                 ggml_fp16_t *mask);

// Returns the bytes of a page, the same in all layers. A page is one block's content in a layer, keys before values, exactly as
// stored in the cache: only the same layer, type and kernels can read it again.
size_t kin_kv_page_bytes(const kin_kv *kv);
// Copies block `i` of a sequence, which must be full, in a layer that has it -> page // [kin_kv_page_bytes], and back.
void kin_kv_page_get(const kin_kv *kv, int32_t seq, int i, int il, uint8_t *page);
void kin_kv_page_set(kin_kv *kv, int32_t seq, int i, int il, const uint8_t *page);
// Returns false if a page of a layer of this cache contains infinities or NaN; for Q8_0 it checks the scales.
bool kin_kv_page_is_finite(const kin_kv *kv, int il, const uint8_t *page);

// Returns false if nothing can be stored on disks: no layer of the model has keys, or a layer's states have too many parts.
bool kin_kv_is_storable(const kin_kv *kv);

// Recurrent layers and windowed ones with blocks of their own have no pages. To go on at a position of full blocks, a sequence
// needs their states there: the recurrent layer's state, the windowed layer's blocks of the window. States are cut into parts of
// a page's size.
//
// Returns the number of parts of a layer of the model at a position of n_blocks blocks; 0: it has pages, or nothing is storable.
int kin_kv_n_parts(const kin_kv *kv, int il, int n_blocks);
bool kin_kv_has_parts(const kin_kv *kv, int il); // the layer is here, and has parts instead of pages
// Returns whether the sequence is n_blocks full blocks long, with states at its end.
bool kin_kv_is_at_checkpoint(const kin_kv *kv, int32_t seq, int n_blocks);
// Copies part `i` of a layer that has parts, at the end of a sequence at a checkpoint -> part // [kin_kv_page_bytes], and back.
void kin_kv_part_get(const kin_kv *kv, int32_t seq, int il, int i, uint8_t *part);
void kin_kv_part_set(kin_kv *kv, int32_t seq, int il, int i, const uint8_t *part);
bool kin_kv_part_is_finite(const kin_kv *kv, int il, const uint8_t *part);

// Gives a sequence of `first` full blocks n more for pages that are loaded: see kin_kv_blocks_load.
int kin_kv_load(kin_kv *kv, int32_t seq, int first, int n, bool has_states, kin_err *err);
// Return what the states of a checkpoint take on disks, in bytes, of all layers; and how far apart those of a long sequence are
// kept, in tokens: so far that states take no more of the disk than pages do, at least 512 and at most 8192. 0: pages are enough.
// options: type and window
uint64_t kin_kv_checkpoint_bytes(const kin_hparams *hp, const kin_kv_options *options);
int kin_kv_checkpoint_gap(const kin_hparams *hp, const kin_kv_options *options);

// Returns the cells of a layer that is here and has values beside its keys. Tokens of a layer with window cells are in those of
// kin_kv_window_cell.
kin_kv_cells kin_kv_cells_of(const kin_kv *kv, int il);
bool kin_kv_has_window_cells(const kin_kv *kv, int il);

int kin_kv_n_layers(const kin_kv *kv); // of the model
bool kin_kv_has_layer(const kin_kv *kv, int il);
bool kin_kv_is_on_gpu(const kin_kv *kv, int il); // for a layer of this cache
int kin_kv_n_tokens(const kin_kv *kv, int32_t seq);
int kin_kv_block(const kin_kv *kv, int32_t seq, int i); // the physical number of the sequence's block `i`, which must exist: its
                                                        // cells begin at 64 times this

// Registers a function that is called for each block that becomes a copy of another.
void kin_kv_on_copy(kin_kv *kv, void (*copied)(void *user, int from, int to), void *user);

// [n_embd_k, n_cells], [n_embd_v, n_cells] and [n_index_key, n_cells] (of windowed layers their own cells), NULL for layers that
// are not here or read those of another layer here (kin_kv_home), V where values are in the keys, and the index where there is
// none; on the CPU with kin's kernels a block's bytes are laid out as kin_kv_layout says.
struct ggml_tensor *kin_kv_k(const kin_kv *kv, int il);
struct ggml_tensor *kin_kv_v(const kin_kv *kv, int il);
struct ggml_tensor *kin_kv_index(const kin_kv *kv, int il); // an indexer's keys
