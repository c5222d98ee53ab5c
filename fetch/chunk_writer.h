// The chunk writer: checks downloaded chunks against their hashes and writes them to the store, in libuv's thread pool. A
// bounded number is written at a time; the others wait in the order in which they came.
//
// Owner: who opened it. Thread: the loop's, for every function and callback.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_parts.h"
#include "fetch/chunk_store.h"

typedef struct kin_chunk_writer kin_chunk_writer;

// chunk: as it was put, but without bytes. reason: for WRONG and FAILED. The writer may be closed inside.
typedef void (*kin_chunk_writer_kept)(void *user, int sender, const kin_chunk_part *chunk, kin_store_result result,
                                      const char *reason);

// Holds the chunks until nothing is under way any more.
int kin_chunk_writer_open(kin_chunk_writer **out, uv_loop_t *loop, kin_chunk_store *chunks, kin_chunk_writer_kept kept,
                          void *user, kin_err *err);

// What waits is dropped; what is being written is, and nobody is told. NULL is allowed.
void kin_chunk_writer_close(kin_chunk_writer *writer);

// Takes over the bytes of a whole chunk. sender: any number, told to `kept`. Fails only if out of memory.
int kin_chunk_writer_put(kin_chunk_writer *writer, int sender, const kin_chunk_part *whole, kin_err *err);

// Whether something of that sender is not kept yet.
bool kin_chunk_writer_has_from(const kin_chunk_writer *writer, int sender);
