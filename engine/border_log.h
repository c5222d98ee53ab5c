// A log of the hidden states that a device passed on to the next: the activations of tokens at a border, where one of its windows
// ends and another device's begins. If that device is lost, its layers are recomputed from them (engine/kv/pages.h).
//
// Rows are stored like keys and values (engine/kv/store.h): a page holds the rows of 64 tokens (a block of the KV cache) at a
// border, f32 [64, n_embd]; its name is that of the tokens and of the layer after the border. Rows stay in memory until their
// block has a name. The head names a block after the step that fills it (pipeline/scheduler.c), so memory holds the rows of one
// step and the last block of each sequence: there is room for a step's rows and 1024 more. Blocks are left out if that is not
// enough (more than 16 sequences at once; several rounds, where names arrive when the steps are back). No other device has
// copies.
//
// Rows are stored as the next device received them: rounded as on the wire (`--wire`) if they were sent.
//
// Owner and thread: the shard's.
#pragma once

#include "engine/kv/blocks.h"
#include "engine/kv/store.h"
#include "pure/proto/activations.h"

typedef struct kin_border_log kin_border_log;

// The shape and format of logged rows.
typedef struct kin_border_rows {
    int n_embd;               // values per row (kin_hparams_stream_width)
    int n_batch;              // maximum tokens per step
    kin_activation_type wire; // the format in which rows are sent; n_embd is a multiple of its unit
} kin_border_rows;

// Returns the maximum bytes of rows in memory. n_batch: maximum tokens per step.
uint64_t kin_border_log_most_bytes(int n_embd, int n_batch);

// variant: that of the KV cache's pages.
int kin_border_log_open(kin_border_log **out, const kin_border_rows *rows, const kin_kv_disk *disk,
                        const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err);
// Like kin_kv_store_close. NULL is allowed.
void kin_border_log_close(kin_border_log *log);

// Adds the rows of a step's tokens, computed up to the border before layer `il` and about to be sent. cells // i64 [n] of the KV
// cache, x // f32 [n, n_embd]
void kin_border_log_add(kin_border_log *log, int il, const int64_t *cells, int n, const float *x);
// Copies a block's rows to another block; removes a block's rows.
void kin_border_log_copy(kin_border_log *log, int from, int to);
void kin_border_log_forget(kin_border_log *log, int block);

// Stores the block's rows at each border under this name, if all of them are known and finite. Rows that the disk did not accept
// are tried again with later ones, until their memory is needed.
void kin_border_log_keep(kin_border_log *log, int block, const kin_page_key *name);

// Stores rows // f32 [64, n_embd] at the border before layer `il`. is_sent: the rows travel in steps; otherwise the next device
// computes from exactly these bits. Other devices can fetch them after kin_border_log_settle.
void kin_border_log_put(kin_border_log *log, int il, const kin_page_key *name, const float *rows, bool is_sent);
// Removes everything stored under these names [n], at the borders before all n_layer layers.
void kin_border_log_drop(kin_border_log *log, const kin_page_key *names, int n, int n_layer);
void kin_border_log_settle(kin_border_log *log);

// Asks other devices for those of these pages [n <= KIN_BORDER_PAGES_MAX] that are missing here; waits at most timeout_ms.
enum { KIN_BORDER_PAGES_MAX = 8 };
void kin_border_log_fetch(kin_border_log *log, int il, const kin_page_key *names, int n, int timeout_ms);

// Reads a page -> rows // f32 [64, n_embd]. Returns false if it is not here. rows NULL: only check that it is.
bool kin_border_log_get(kin_border_log *log, int il, const kin_page_key *name, float *rows);

uint64_t kin_border_log_bytes(const kin_border_log *log); // bytes of rows in memory now
