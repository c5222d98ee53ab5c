// The chunk server: sends parts of the model file on FETCH links (messages HASHES_WANTED and GET of pure/proto/message.h). A head
// serves its own files, a device what it has fetched so far. It also serves pages of the KV cache by name.
//
// Chunks that hold only the embedding or the output layer are never sent (kin_ranges_private): they stay on the head.
//
// The owner answers OPEN and then hands the link over. Clients are not trusted: one that requests something impossible or
// withheld, or too much at a time, is told why and disconnected; other links are not affected. A request for an absent chunk is
// answered by LACK.
//
// The disk is read in libuv's thread pool, at most KIN_FRAME_DATA_BYTES at a time: one read per link, n_reads in all. Links take
// turns. For a slow link it reads only as far as the link's queue has room, 2 MiB, which bounds the memory of a link.
//
// Owner: the caller that opened it. Thread: the loop's, for every function. After kin_chunk_server_close the loop must run until
// it has nothing to do.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_store.h"
#include "net/link.h"

typedef struct kin_chunk_server kin_chunk_server;

typedef struct kin_chunk_server_options {
    int n_links;    // open links (32); a further link is closed, and the client is told why
    int n_requests; // pending requests per link (16); a further request ends the link
    int n_reads;    // concurrent reads in the thread pool (2)
} kin_chunk_server_options;

kin_chunk_server_options kin_chunk_server_options_default(void);

// Serves nothing until it has a chunk store. options: NULL for the defaults.
int kin_chunk_server_open(kin_chunk_server **out, uv_loop_t *loop, const kin_chunk_server_options *options, kin_err *err);

// Closes links, giving clients the reason, and discards the results of running reads. NULL is allowed.
void kin_chunk_server_close(kin_chunk_server *server);

// Sets the store to serve; the server holds it until the next call. NULL: serves nothing.
void kin_chunk_server_set_store(kin_chunk_server *server, kin_chunk_store *chunks);

// Also serves the pages of the KV cache (engine/kv/file.h) in this cache folder. Call once.
int kin_chunk_server_give_pages(kin_chunk_server *server, const char *dir, kin_err *err);

// Takes over a FETCH link whose OPEN was answered with ACCEPT.
void kin_chunk_server_accept(kin_chunk_server *server, kin_link *link);

// ---- inspection

typedef struct kin_chunk_server_stats {
    uint64_t bytes;    // of the model, passed to links since open
    uint64_t n_chunks; // chunks whose last requested byte was passed on
    int n_links;       // now
} kin_chunk_server_stats;

kin_chunk_server_stats kin_chunk_server_stats_now(const kin_chunk_server *server);
