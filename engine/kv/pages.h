// Keeps pages of a device's KV cache on its disk and loads them from there (engine/kv/store.h), at the head's request.
//
// Layers without pages (kin_kv_n_parts) keep their states at checkpoints instead: parts of a page's size, under the name of the
// last page before, in the same files. Large states need several requests: each keeps some of them, and the last one returns that
// all are kept. Pages before a checkpoint are of use only with all of its parts.
//
// The pages of a lost device may be on no disk. Then only its layers are recomputed, from the hidden states that were passed on
// to it (engine/border_log.h), by the members that have these layers now, one after the other:
//
//     layers     0 ............ 8 ............ 16 ............ 24          a had 0 to 8, b 8 to 16, c 16 to 24; b is lost
//     a now has  its own pages │ 8 to 12: from its own log of border 8; logs the results at border 12
//     c now has                       12 to 16: from a's log of border 12 │ its own pages
//
// Owner and thread: the shard's.
#pragma once

#include "engine/border_log.h"
#include "engine/kv.h"
#include "engine/kv/store.h"

typedef struct kin_kv_pages kin_kv_pages;

// Computes layers layer_begin .. layer_end - 1 for n tokens whose cells are assigned: those of the sequence from position `pos`
// on. x // f32 [n, n_embd] before these layers -> after them, in place.
typedef struct kin_kv_compute {
    int (*layers)(void *user, int layer_begin, int layer_end, int32_t seq, int pos, int n, float *x, kin_err *err);
    void *user;
} kin_kv_compute;

// Opens the pages of this cache; pages of another variant are not found. rows: shape of the hidden states logged at borders;
// n_embd 0: none are logged.
int kin_kv_pages_open(kin_kv_pages **out, kin_kv *kv, const kin_border_rows *rows, const kin_kv_disk *disk,
                      const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err);
// Waits until kept pages are written, for a few seconds at most. NULL is allowed. Call before the cache is closed.
void kin_kv_pages_close(kin_kv_pages *pages);

// Returns the number of leading pages of the request that are kept, or loaded into the cache; with `recomputes` none is loaded
// yet, and n is returned. A page that cannot be used is no failure. KIN_FAIL: the sequence does not have the pages to keep, or
// cannot take the pages to load. pages NULL: none is kept or found, but after a load request the sequence still has its blocks.
int kin_kv_pages_handle(kin_kv_pages *pages, kin_kv *kv, const kin_page_request *request, kin_err *err);

// Does the second half of a request that recomputes: computes what is not found. Returns the number of leading pages that are
// valid. Waits for other devices' pages and hidden states for at most request->timeout_ms in total. KIN_FAIL: computing failed.
int kin_kv_pages_recompute(kin_kv_pages *pages, kin_kv *kv, const kin_page_request *request, const kin_kv_compute *compute,
                           kin_err *err);

// Logs a step's tokens at the border before layer `il`, about to be passed on: cells // i64 [n], x // f32 [n, n_embd]
void kin_kv_pages_pass(kin_kv_pages *pages, int il, const int64_t *cells, int n, const float *x);

// Stores the hidden states of the tokens of a request's pages at the border before layer `il`, as steps would send them: x // f32
// [n * 64, n_embd]. Other devices can fetch them on return.
void kin_kv_pages_put_border(kin_kv_pages *pages, int il, const kin_page_request *request, const float *x);

uint64_t kin_kv_pages_bytes(const kin_kv_pages *pages); // of hidden states in memory now. NULL is allowed
