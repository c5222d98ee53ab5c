// A chunk store: a reference-counted store of model parts (model/store.h). The fetch fills it (fetch/fetch.h), the chunk server
// reads it (fetch/chunk_server.h), and a model runs from it. The last release closes the store in libuv's thread pool, because
// closing may wait for the disk.
//
// Every owner of a pointer holds it once and releases it once.
//
// Thread: the loop's, for every function. Run the loop until it has nothing to do before closing it.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "model/store.h"

typedef struct kin_chunk_store kin_chunk_store;

// Takes over the store, with one reference. On failure the caller keeps the store.
int kin_chunk_store_new(kin_chunk_store **out, uv_loop_t *loop, kin_store *store, kin_err *err);

kin_chunk_store *kin_chunk_store_hold(kin_chunk_store *chunks); // adds a reference; returns `chunks`
void kin_chunk_store_release(kin_chunk_store *chunks);          // drops a reference; NULL is allowed

// Valid while a reference is held.
kin_store *kin_chunk_store_store(const kin_chunk_store *chunks);

// Sets the chunks that are never sent: those of kin_ranges_private // [n_chunks], malloc'ed; takes over the array.
void kin_chunk_store_set_private(kin_chunk_store *chunks, bool *is_private);
bool kin_chunk_store_withholds(const kin_chunk_store *chunks, uint32_t i_chunk); // i_chunk < n_chunks
