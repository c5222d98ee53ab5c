// The chunk writer: verifies downloaded chunks against their hashes and writes them to the store, in libuv's thread pool. It
// writes a bounded number at a time; the others wait in order of arrival.
//
// Owner: the caller that opened it. Thread: the loop's, for every function and callback.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_parts.h"
#include "fetch/chunk_store.h"

typedef struct kin_chunk_writer kin_chunk_writer;

// Called for each chunk, with the values of kin_chunk_writer_put but without bytes. reason: for WRONG and FAILED. The writer may
// be closed inside.
typedef void (*kin_chunk_writer_kept)(void *user, int sender, const kin_chunk_part *chunk, kin_store_result result,
                                      const char *reason);

// Holds a reference to the chunk store until no work is running.
int kin_chunk_writer_open(kin_chunk_writer **out, uv_loop_t *loop, kin_chunk_store *chunks, kin_chunk_writer_kept kept,
                          void *user, kin_err *err);

// Drops waiting chunks; a write that is running completes without a callback. NULL is allowed.
void kin_chunk_writer_close(kin_chunk_writer *writer);

// Takes over the bytes of a whole chunk. sender: any number, passed to `kept`. Fails only if out of memory.
int kin_chunk_writer_put(kin_chunk_writer *writer, int sender, const kin_chunk_part *whole, kin_err *err);

// True if a chunk from that sender is not yet written.
bool kin_chunk_writer_has_from(const kin_chunk_writer *writer, int sender);
