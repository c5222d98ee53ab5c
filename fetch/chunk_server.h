// The chunk server: sends parts of the model file on FETCH links (messages HASHES_WANTED and GET of pure/proto/message.h). A
// head serves its own files, a device what it has fetched so far. And pages of the KV cache, under their names.
//
// Chunks that have only embedding or output layer are given to nobody (kin_ranges_private): these stay on the head.
//
// The owner answers OPEN and then hands the link over. No client is trusted: one that asks for what cannot exist or is not
// given, or for too much at a time, gets a sentence and loses its link; the others go on. A chunk that is not here is answered by
// LACK.
//
// The disk is read in libuv's thread pool, a piece of at most KIN_FRAME_DATA_BYTES at a time: one for a link, n_reads for all.
// Links take turns. A link that is slow to take its bytes is read for no further than its queue has room, 2 MiB, which is the
// memory that one of them can cost.
//
// Owner: who opened it. Thread: the loop's, for every function. After kin_chunk_server_close the loop must run until it has
// nothing to do.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_store.h"
#include "net/link.h"

typedef struct kin_chunk_server kin_chunk_server;

typedef struct kin_chunk_server_options {
    int n_links;    // at a time (32); one more is closed with a sentence
    int n_requests; // of one link that are not answered yet (16); one more ends the link
    int n_reads;    // in the thread pool at a time (2)
} kin_chunk_server_options;

kin_chunk_server_options kin_chunk_server_options_default(void);

// Shares nothing until it has a chunk store. options: NULL for the defaults.
int kin_chunk_server_open(kin_chunk_server **out, uv_loop_t *loop, const kin_chunk_server_options *options, kin_err *err);

// Links are closed with a sentence, reads that are under way come to nothing. NULL is allowed.
void kin_chunk_server_close(kin_chunk_server *server);

// What is shared from now on; held by the server until another takes its place. NULL: nothing.
void kin_chunk_server_set_store(kin_chunk_server *server, kin_chunk_store *chunks);

// Pages of the KV cache (engine/kv_file.h) in this folder of caches are given, too. Once.
int kin_chunk_server_give_pages(kin_chunk_server *server, const char *dir, kin_err *err);

// Takes over a FETCH link whose OPEN was answered by ACCEPT.
void kin_chunk_server_accept(kin_chunk_server *server, kin_link *link);

// ---- inspection

typedef struct kin_chunk_server_stats {
    uint64_t bytes;    // of the model, handed to links since it was opened
    uint64_t n_chunks; // whose last asked byte was handed over
    int n_links;       // now
} kin_chunk_server_stats;

kin_chunk_server_stats kin_chunk_server_stats_now(const kin_chunk_server *server);
