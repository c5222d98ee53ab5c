// The pages of a device's KV cache, kept on its disk and taken from there (engine/kv_store.h), as the head asks for them.
//
// Pages of a device that was lost may be nowhere. Then its layers alone are computed again, from the hidden states that were
// passed on to it (engine/border_log.h): by whoever has these layers now, one member after the other:
//
//     layers     0 ............ 8 ............ 16 ............ 24          a had 0 to 8, b 8 to 16, c 16 to 24; b is lost
//     a has      pages of its own │ 8 to 12: from its own log of border 8, and logs what comes of them at border 12
//     c has                            12 to 16: from a's log of border 12 │ pages of its own
//
// Owner and thread: the shard's.
#pragma once

#include "engine/border_log.h"
#include "engine/kv.h"
#include "engine/kv_store.h"

typedef struct kin_kv_pages kin_kv_pages;

// Computes layers layer_begin .. layer_end - 1 of n tokens, which have their cells: those of the sequence from position `pos` on.
// x // f32 [n, n_embd] before these layers -> after them, in place.
typedef struct kin_kv_compute {
    int (*layers)(void *user, int layer_begin, int layer_end, int32_t seq, int pos, int n, float *x, kin_err *err);
    void *user;
} kin_kv_compute;

// Of the cache; pages of another variant are not found. rows: of the hidden states that are logged at borders; n_embd 0: none
// are.
int kin_kv_pages_open(kin_kv_pages **out, kin_kv *kv, const kin_border_rows *rows, const kin_kv_disk *disk,
                      const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err);
// Waits until what was kept is written, for some seconds at most. NULL is allowed. Before the cache is closed.
void kin_kv_pages_close(kin_kv_pages *pages);

// How many of the first pages of the request are as they should be: kept, or found and now in the cache; with `recomputes` none
// is looked for yet. One that cannot be used is no failure. KIN_FAIL: the sequence has not those pages to keep, or cannot have
// those to take. pages NULL: none is kept or found, but the sequence has those that were to be taken.
int kin_kv_pages_take(kin_kv_pages *pages, kin_kv *kv, const kin_page_request *request, kin_err *err);

// The second half of a request that recomputes: what is not found is computed. How many of its first pages are as they should be.
// For others' pages and hidden states it waits as long as the request says, in all. KIN_FAIL: computing failed.
int kin_kv_pages_recompute(kin_kv_pages *pages, kin_kv *kv, const kin_page_request *request, const kin_kv_compute *compute,
                           kin_err *err);

// A step's tokens were computed up to the border before layer `il`, and are passed on: cells // i64 [n], x // f32 [n, n_embd]
void kin_kv_pages_pass(kin_kv_pages *pages, int il, const int64_t *cells, int n, const float *x);

// What the tokens of a request's pages have at the border before layer `il`, as steps send it: x // f32 [n * 64, n_embd]. Others
// can have it on return.
void kin_kv_pages_put_border(kin_kv_pages *pages, int il, const kin_page_request *request, const float *x);

uint64_t kin_kv_pages_bytes(const kin_kv_pages *pages); // of hidden states in memory now. NULL is allowed
