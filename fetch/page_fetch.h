// Pages of the KV cache from other processes' disks (engine/kv_file.h):
//
//   wanted   those that a shard needs now, because its layers were another's before: each peer is asked in turn for what is still
//            missing, until all is here, nobody has more, nothing has come for a second, or the patience is over. Links on which
//            something is missing then are closed: they would bring it too late
//   copies   of what another device has written, for the day when it is lost: one at a time, from that device. While the process
//            computes they are fetched in small slices with rests (fetch/download.h). While pages are wanted copies wait; if
//            there are too many, the oldest are left out. A peer of whom nothing comes for half a minute, though its link is
//            open, is left: its copies are left out, and those of others go on
//
// Pages come as files of bytes, encrypted, and are written by libuv's thread pool. They are looked into by who uses them
// (engine/kv_page.h): a page of a bad peer does not open, and is computed.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's, but for kin_page_fetch_want and _settle. After
// kin_page_fetch_close the loop must run until it has nothing to do.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv_file.h"
#include "net/endpoint.h"

typedef struct kin_page_fetch kin_page_fetch;

typedef struct kin_page_fetch_options {
    kin_endpoint *endpoint;      // borrowed
    const char *dir;             // of caches; copied
    uint64_t cap;                // bytes of all pages there; 0: a twentieth of the disk
    bool (*is_busy)(void *user); // steps are computed; in the loop's thread. NULL: never
    void *user;
    uint32_t copy_patience_ms; // for a copy of which nothing comes; 0: half a minute
} kin_page_fetch_options;

// In the loop's thread.
int kin_page_fetch_open(kin_page_fetch **out, const kin_page_fetch_options *options, kin_err *err);
void kin_page_fetch_close(kin_page_fetch *fetch); // nobody waits in kin_page_fetch_want. NULL is allowed

// Who may be asked from now on; `forget`: nobody, until they are known again.
void kin_page_fetch_forget(kin_page_fetch *fetch);
void kin_page_fetch_know(kin_page_fetch *fetch, const kin_proto_id *id, const kin_proto_endpoint *endpoint);

// That device has written these pages.
void kin_page_fetch_copy(kin_page_fetch *fetch, const kin_proto_kept *kept);

// Any other thread, one at a time: waits until these pages, files of `bytes` each, are here, or not to be had in patience_ms.
void kin_page_fetch_want(kin_page_fetch *fetch, const kin_page_name *names, int n, size_t bytes, int patience_ms);

// Any other thread, one at a time: waits until the copies that were told of are here, without rests, for two seconds at most.
void kin_page_fetch_settle(kin_page_fetch *fetch);

// A page's name, as messages have it, and back.
kin_proto_hash kin_page_fetch_hash(const kin_page_name *name);
bool kin_page_fetch_name(const kin_proto_hash *hash, kin_page_name *name); // false: that is no page's

typedef struct kin_page_fetch_stats {
    uint64_t n_wanted, n_found, n_copied, n_left_out;
    uint64_t bytes; // of all that came
} kin_page_fetch_stats;

kin_page_fetch_stats kin_page_fetch_stats_now(const kin_page_fetch *fetch);
