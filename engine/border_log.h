// What a device passed on to the next: the hidden states of tokens at a border, where one of its windows ends and another
// device's begins. When that device is lost, its layers are computed from them alone (engine/kv_pages.h).
//
// They are kept as keys and values are (engine/kv_store.h): a page is what 64 tokens, a block of the KV cache, have at a border,
// f32 [64, n_embd]; its name is that of the tokens and of the layer behind the border. Until a block has a name its rows are in
// memory. The head gives names behind the step that fills a block (pipeline/scheduler.c), so these are the rows of a step, and
// the last block of each text: there is room for so many rows as a step has and 1024 more. Where that is not enough (more than 16
// texts at once; several rounds, where names come when the steps are back), blocks are left out. No other device has copies.
//
// Rows are what the next device computed from: rounded as they are on the wire (`--wire`), if they were sent.
//
// Owner and thread: the shard's.
#pragma once

#include "engine/kv_blocks.h"
#include "engine/kv_store.h"
#include "pure/proto/activations.h"

typedef struct kin_border_log kin_border_log;

// What is logged.
typedef struct kin_border_rows {
    int n_embd;               // values of a row
    int n_batch;              // most tokens of a step
    kin_activation_type wire; // as what rows are sent; n_embd is a multiple of its unit
} kin_border_rows;

// Most bytes of rows in memory. n_batch: most tokens of a step.
uint64_t kin_border_log_most_bytes(int n_embd, int n_batch);

// variant: of the KV cache's pages.
int kin_border_log_open(kin_border_log **out, const kin_border_rows *rows, const kin_kv_disk *disk,
                        const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err);
// As kin_kv_store_close. NULL is allowed.
void kin_border_log_close(kin_border_log *log);

// Tokens of a step were computed up to the border before layer `il`, and are sent: cells // i64 [n] of the KV cache,
// x // f32 [n, n_embd]
void kin_border_log_add(kin_border_log *log, int il, const int64_t *cells, int n, const float *x);
// A block's rows are another one's, too; they are no more.
void kin_border_log_copy(kin_border_log *log, int from, int to);
void kin_border_log_forget(kin_border_log *log, int block);

// Keeps what the block has at each border, if all of its rows are known and finite. It has this name. What the disk did not take
// is tried again with later ones, as long as its room is not needed.
void kin_border_log_keep(kin_border_log *log, int block, const kin_page_key *name);

// The same of rows // f32 [64, n_embd] at the border before layer `il`. is_sent: in steps; else the next device computes from
// these bits. Others can have it after kin_border_log_settle.
void kin_border_log_put(kin_border_log *log, int il, const kin_page_key *name, const float *rows, bool is_sent);
// Nothing is kept under these names [n] any more, at the borders before all n_layer layers.
void kin_border_log_drop(kin_border_log *log, const kin_page_key *names, int n, int n_layer);
void kin_border_log_settle(kin_border_log *log);

// Asks other devices for what is not here of these [n <= KIN_BORDER_PAGES_MAX], and waits so long at most.
enum { KIN_BORDER_PAGES_MAX = 8 };
void kin_border_log_fetch(kin_border_log *log, int il, const kin_page_key *names, int n, int patience_ms);

// -> rows // f32 [64, n_embd]. False: they are not here. rows NULL: only to know that.
bool kin_border_log_get(kin_border_log *log, int il, const kin_page_key *name, float *rows);

uint64_t kin_border_log_bytes(const kin_border_log *log); // of rows in memory now
