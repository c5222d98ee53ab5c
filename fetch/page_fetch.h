// Fetches pages of the KV cache from other processes' disks (engine/kv/file.h):
//
//   wanted   pages that a shard needs now, because another device computed its layers before: each peer is asked in turn for the
//            pages still missing, until all are present, no peer has more, nothing has arrived for a second, or the timeout
//            passes. Links with outstanding pages are then closed: those pages would come too late
//   copies   pages that another device has written, kept in case it is lost: one at a time, from that device. While the process
//            computes they are fetched in small slices with pauses (fetch/download.h). Copies wait while pages are wanted; if
//            there are too many, the oldest are dropped. A peer that sends nothing for half a minute although its link is open is
//            skipped: its copies are dropped, and those of others continue
//
// Pages arrive as encrypted files, and libuv's thread pool writes them. Only the code that uses them opens them
// (engine/kv/page.h): a page from a bad peer fails to decrypt, and is recomputed.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's, except for kin_page_fetch_want and _settle. After
// kin_page_fetch_close the loop must run until it has nothing to do.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv/file.h"
#include "net/endpoint.h"

typedef struct kin_page_fetch kin_page_fetch;

typedef struct kin_page_fetch_options {
    kin_endpoint *endpoint;      // borrowed
    const char *dir;             // cache folder; copied
    uint64_t cap;                // byte limit of all pages there; 0: a twentieth of the disk
    bool (*is_busy)(void *user); // steps are being computed; called in the loop's thread. NULL: never
    void *user;
    uint32_t copy_timeout_ms; // timeout for a copy without data; 0: half a minute
} kin_page_fetch_options;

// Call in the loop's thread.
int kin_page_fetch_open(kin_page_fetch **out, const kin_page_fetch_options *options, kin_err *err);
void kin_page_fetch_close(kin_page_fetch *fetch); // no thread may be waiting in kin_page_fetch_want. NULL is allowed

// Registers the peers that may be asked; `forget` removes all of them.
void kin_page_fetch_forget(kin_page_fetch *fetch);
void kin_page_fetch_know(kin_page_fetch *fetch, const kin_proto_id *id, const kin_proto_endpoint *endpoint);

// Records that a device has written these pages.
void kin_page_fetch_copy(kin_page_fetch *fetch, const kin_proto_kept *kept);

// Any other thread, one at a time: waits until these pages, files of `bytes` each, are present, or unavailable within
// timeout_ms.
void kin_page_fetch_want(kin_page_fetch *fetch, const kin_page_name *names, int n, size_t bytes, int timeout_ms);

// Any other thread, one at a time: waits until all announced copies are present, fetched without pauses, for at most two seconds.
void kin_page_fetch_settle(kin_page_fetch *fetch);

// Convert a page's name to its form in messages, and back.
kin_proto_hash kin_page_fetch_hash(const kin_page_name *name);
bool kin_page_fetch_name(const kin_proto_hash *hash, kin_page_name *name); // false: not the name of a page

typedef struct kin_page_fetch_stats {
    uint64_t n_wanted, n_found, n_copied, n_left_out;
    uint64_t bytes; // of all pages received
} kin_page_fetch_stats;

kin_page_fetch_stats kin_page_fetch_stats_now(const kin_page_fetch *fetch);
