// A share: gives parts of the model file to whoever asks on a FETCH link (messages HASHES_WANTED and GET of
// pure/proto/message.h). A head shares its own files, a device what it has fetched so far.
//
// Who listens, answers OPEN and says ACCEPT is not here: the owner does that, and then hands the link over. Nobody is trusted:
// whoever asks for what cannot be, or for too much at a time, is told so and loses the link; the others go on. What is asked for
// and not here is answered by LACK.
//
// The disk is read in libuv's thread pool, a piece of at most KIN_FRAME_DATA_BYTES at a time: one for a link, n_reads for all.
// Links take turns. A link that is slow to take its bytes is read for no further than its queue has room: give links that may
// become FETCH links a queue_max of KIN_SHARE_QUEUE_BYTES (kin_listener_options.link), for that is the memory one of them can
// cost.
//
// Owner: who opened it. Thread: the loop's, for every function. After kin_share_close the loop must run until it has nothing to
// do.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "ring/link.h"
#include "ring/stock.h"

#define KIN_SHARE_QUEUE_BYTES ((size_t)2 << 20)

typedef struct kin_share kin_share;

typedef struct kin_share_options {
    int n_links;    // at a time (32); one more is closed with a sentence
    int n_requests; // of one link that are not answered yet (16); one more ends the link
    int n_reads;    // in the thread pool at a time (2)
} kin_share_options;

kin_share_options kin_share_options_default(void);

// Shares nothing until it has a stock. options: NULL for the defaults.
int kin_share_open(kin_share **out, uv_loop_t *loop, const kin_share_options *options, kin_err *err);

// Links are closed with a sentence, reads that are under way come to nothing. NULL is allowed.
void kin_share_close(kin_share *share);

// What is shared from now on; held by the share until another takes its place. NULL: nothing.
void kin_share_set_stock(kin_share *share, kin_stock *stock);

// Takes over a FETCH link whose OPEN was answered by ACCEPT.
void kin_share_accept(kin_share *share, kin_link *link);

// ---- inspection

typedef struct kin_share_stats {
    uint64_t bytes;    // of the model, handed to links since it was opened
    uint64_t n_chunks; // whose last asked byte was handed over
    int n_links;       // now
} kin_share_stats;

kin_share_stats kin_share_stats_now(const kin_share *share);
