// The KV cache of a device's layers: keys and values of the tokens seen, for several sequences at once.
//
// It is cells in blocks of 64: a cell has one token's keys and values in every layer. Which blocks a sequence has, and which it
// shares with others, is written in a book (engine/kv_blocks.h). kin's attention walks a sequence's table of blocks; ggml's looks
// at a prefix of the cells through a mask.
//
// Owner and thread: the shard's.
#pragma once

#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device.h"
#include "engine/kv_blocks.h"
#include "engine/kv_page.h"
#include "kernels/kernels.h"
#include "model/graph.h"
#include "model/hparams.h"
#include "pure/plan/window.h"

typedef struct kin_kv kin_kv;

typedef struct kin_kv_options {
    kin_windows windows; // the layers
    int n_ctx;           // tokens, shared by all sequences
    enum ggml_type type; // GGML_TYPE_F16 or GGML_TYPE_Q8_0
} kin_kv_options;

enum {
    KIN_PAGES_MAX = 8,   // in one request: 512 tokens
    KIN_KV_COPIES = 256, // further cells of a batch's tokens, at most
};

// Pages of a sequence, to be kept on each member's disk, to be taken from there or to leave it: its blocks first .. first + n
// - 1. To be kept they must be full; to be taken the sequence must have all blocks before them, full, and none of them.
// Afterwards it has them, whether they were found or not: the answer says how many of the first ones hold what they should, the
// head forgets the others.
typedef struct kin_page_request {
    bool loads;      // from the disk; else they are kept
    bool drops;      // in place of both: whatever this disk has under these names leaves it, of all layers
    bool recomputes; // with loads: layers whose pages nobody has are computed, from the hidden states at their border
    int patience_ms; // for pages that others' disks have; 0: none of them is fetched
    int32_t seq;
    int first, n;                     // 1 <= n <= KIN_PAGES_MAX
    kin_page_key keys[KIN_PAGES_MAX]; // [n]
    kin_border_set borders;           // if it recomputes: of the ring that computed these pages
} kin_page_request;

// Tokens of one step, and changes of the cache before them. The arrays are borrowed.
typedef struct kin_batch {
    int n_tokens;
    const int32_t *pos; // [n_tokens] position in the sequence, from 0
    const int32_t *seq; // [n_tokens] sequence number, >= 0; NULL: all 0
    const int32_t *out; // [n_out] rows whose result is wanted after the last layer, ascending; NULL: all
    int n_out;
    bool no_output;       // kin_shard_output will not follow: its weights need not be made ready
    const kin_kv_op *ops; // [n_ops]
    int n_ops;
    const kin_page_request *pages; // in place of tokens, after the changes; NULL: none
} kin_batch;

// Whether an operation forgets tokens that the batch has.
bool kin_batch_loses(const kin_batch *batch, const kin_kv_op *op);

static inline int kin_batch_n_out(const kin_batch *batch) {
    return batch->out ? batch->n_out : batch->n_tokens;
}

// Cells for n_ctx tokens: whole blocks.
static inline int kin_kv_n_cells(int n_ctx) {
    return (n_ctx + KIN_KV_CELLS - 1) / KIN_KV_CELLS * KIN_KV_CELLS;
}

uint64_t kin_kv_bytes(const kin_hparams *hp, const kin_kv_options *options);

// `device_of`: where the layer's cache lives.
int kin_kv_open(kin_kv **out, const kin_hparams *hp, const kin_kv_options *options,
                const kin_device *(*device_of)(const void *user, int il), const void *user, kin_err *err);
void kin_kv_close(kin_kv *kv);

// Further cells of a batch's tokens: in sequences that took them within the batch.
typedef struct kin_kv_copies {
    kin_row_cell at[KIN_KV_COPIES];
    int n;
} kin_kv_copies;

// Changes the cache (batch->ops), then gives each token of the batch a cell: cells // i64 [n_tokens]. An operation that takes
// tokens of the batch itself waits for them, and those behind it wait with it: so sequences can branch within a batch. Where the
// tokens taken end within a block, they go to the new sequence's block, too: to copies (NULL: there is no such operation).
// Fails when there is no room, when a position of a sequence would have two cells, when one before it has none, or when an
// operation forgets tokens of the batch; operations that came before the failure stay, so the cache is to be cleared.
int kin_kv_place(kin_kv *kv, const kin_batch *batch, int64_t *cells, kin_kv_copies *copies, kin_err *err);

// Takes back the tokens of a batch that was placed, and what was placed after them in their sequences.
void kin_kv_undo(kin_kv *kv, const kin_batch *batch);
void kin_kv_clear(kin_kv *kv); // forgets all sequences

// Cells that a mask must cover: up to the highest used block's last.
int kin_kv_n_used(const kin_kv *kv);

// table // i32 [kin_kv_n_cells(n_ctx) / KIN_KV_CELLS]: the numbers of the blocks that hold positions 0, 64, 128, ... of a
// sequence
void kin_kv_table(const kin_kv *kv, int32_t seq, int32_t *table);

// mask // f16 [n_rows, n_kv]: 0 where row i's token may look (its own sequence, up to its own position), else -inf.
// rows: numbers of tokens in the batch, NULL: all. window: the row sees only that many tokens, its own included; 0: all of them.
void kin_kv_mask(const kin_kv *kv, const kin_batch *batch, const int32_t *rows, int n_rows, int n_kv, int window,
                 ggml_fp16_t *mask);

// A page is what a block holds in a layer, keys before values, as they lie in the cache: so the same layer, type and kernels read
// it again. Bytes of one, alike in all layers.
size_t kin_kv_page_bytes(const kin_kv *kv);
// Block `i` of a sequence, which has it in full, in a layer that is here -> page // [kin_kv_page_bytes], and back.
void kin_kv_page_get(const kin_kv *kv, int32_t seq, int i, int il, uint8_t *page);
void kin_kv_page_set(kin_kv *kv, int32_t seq, int i, int il, const uint8_t *page);
// False: keys or values of a page of that layer, which is here, are infinite or NaN; of Q8_0 the scales are looked at.
bool kin_kv_page_is_finite(const kin_kv *kv, int il, const uint8_t *page);
int kin_kv_n_layers(const kin_kv *kv); // of the model
bool kin_kv_has_layer(const kin_kv *kv, int il);
bool kin_kv_is_on_gpu(const kin_kv *kv, int il); // of a layer that is here
int kin_kv_n_tokens(const kin_kv *kv, int32_t seq);
int kin_kv_block(const kin_kv *kv, int32_t seq, int i); // where block `i` of a sequence is, which has it: cells 64 * this ...

// From now on told of each block that becomes a copy of another one.
void kin_kv_on_copy(kin_kv *kv, void (*copied)(void *user, int from, int to), void *user);

// [n_embd_kv, n_cells] each; on the CPU with kin's kernels a block's bytes are as kin_kv_layout says.
struct ggml_tensor *kin_kv_k(const kin_kv *kv, int il);
struct ggml_tensor *kin_kv_v(const kin_kv *kv, int il);
