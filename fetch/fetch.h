// A fetch: brings the parts of a model that a device needs onto its disk, from the head and from other devices.
//
// It gets the model's manifest (from the cache, or from the head), opens the store, gets the files' headers, finds out which
// chunks the windows are in (of a group's device: its slices of their layers), and gets those: the first window's first.
// Everything is checked against the model's hash. What is there already, from an earlier time too, is not fetched again. Whom to
// ask for what is pure/proto/swarm.h's to decide; here are the links, which are opened again when they break, and the disk, in
// libuv's thread pool. What came of a chunk before its link broke stays in memory, and only the rest is asked for again.
//
// Life: kin_fetch_start; `opened`, `progress`..., `headers_here`, `kept`..., `first_window_here`, `done`. A finished fetch rests,
// with no links, until kin_fetch_set_windows wants more; then all of it but `opened` comes again. Or `failed`, after which it
// does nothing more. In any state the owner ends it by kin_fetch_cancel, after which nothing is called. All functions may be
// called inside of all callbacks; callbacks are never called inside of a function here.
//
// Owner: who started it. Thread: the loop's, for every function and callback. After kin_fetch_cancel the loop must run until it
// has nothing to do before it is closed.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "fetch/chunk_store.h"
#include "model/share.h"
#include "net/link.h"
#include "pure/plan/window.h"
#include "pure/proto/message.h"

typedef struct kin_fetch kin_fetch;

typedef struct kin_fetch_options { // all of it is copied, but the context for TLS
    kin_link_options link;         // of the links that it opens; frame_max is set here
    kin_proto_id id;               // of this device
    const char *name, *version;    // for OPEN
    const char *cache_dir;         // where stores are (model/store.h)
    uint64_t cache_cap;            // bytes that all of them may take; 0: half of the disk
    kin_chunk_store *chunks; // that is open already (a store is filled by one at a time); of another model: not used. NULL: none
    kin_proto_hash model;    // as PLAN has it
    int n_files;             // as PLAN has them
    const uint64_t *file_sizes; // [n_files]
    const char *head_address;   // as its control link was opened
    uint16_t head_port;
    kin_proto_id head_id;       // zeros: whoever answers there
    const kin_windows *windows; // none: the headers only
    int n_links;                // to devices, at a time (16)
    int n_in_flight_all;        // chunks asked for at a time; each takes a chunk of memory (16)
    uint32_t answer_ms;         // without a byte of what was asked for, before others are asked (10000)
    uint32_t give_up_ms;        // without a byte from anybody (60000)
} kin_fetch_options;

kin_fetch_options kin_fetch_options_default(kin_tls_ctx *tls);

typedef struct kin_fetch_progress {
    // As PROGRESS has it: HASHING until the store is open, then FETCHING. done and total count what the windows need, with what
    // was there before; until all headers are there, the headers only. total 0: not known yet.
    kin_proto_progress sent;
    uint64_t left_ns; // UINT64_MAX: not known
} kin_fetch_progress;

typedef struct kin_fetch_callbacks { // each may be NULL but `failed`
    // The store is there: to be shared, to be opened by its paths later. The fetch holds it until kin_fetch_cancel: hold it, too.
    // For the next fetch of the same model hand it over as options.chunks, or let go of it everywhere.
    void (*opened)(void *user, kin_chunk_store *chunks);
    // Twice a second, and when something begins or ends.
    void (*progress)(void *user, const kin_fetch_progress *progress);
    // What this device has now: the model, its id, no endpoint; valid during the call. After `opened`, then when there is more,
    // at most twice a second, and before `done`.
    void (*have_changed)(void *user, const kin_proto_have *have);
    // The headers are there: the files can be opened as a model. Its weights are still in flight. Once for each set of
    // windows.
    void (*headers_here)(void *user);
    // A chunk is there, checked: weights may be read as far as the chunk store has them.
    void (*kept)(void *user);
    // The headers and all weights of the first window are there. Comes before `done`, and if nothing was to be fetched, too.
    void (*first_window_here)(void *user);
    // All that the windows need is there, safe on the disk.
    void (*done)(void *user);
    // One sentence. Nothing more is called.
    void (*failed)(void *user, const char *reason);
} kin_fetch_callbacks;

// Fails only if it is out of memory; everything else is told to `failed`. The callbacks are copied.
int kin_fetch_start(kin_fetch **out, uv_loop_t *loop, const kin_fetch_options *options, const kin_fetch_callbacks *callbacks,
                    void *user, kin_err *err);

// NULL is allowed. What came so far stays on the disk.
void kin_fetch_cancel(kin_fetch *fetch);

// Other windows of the same model. What is there stays, what the old windows needed and these do not is not fetched
// any more.
void kin_fetch_set_windows(kin_fetch *fetch, const kin_windows *windows);

// Right after start or set_windows: of these windows' layers only this share, as a device of a group has it; else whole layers.
// What it needs are the chunks that hold bytes of its slices.
void kin_fetch_set_share(kin_fetch *fetch, const kin_share *share);

// Right after start or set_windows: of these windows only so many, from the first one on, as take no more than so many bytes that
// are not here yet. kin_fetch_stats has how many those were.
void kin_fetch_set_most(kin_fetch *fetch, uint64_t bytes);

// Gently: what is fetched must not disturb what else uses the link, and takes a quarter of it at most. At first it is not.
void kin_fetch_set_gently(kin_fetch *fetch, bool is_gentle);

// HAVE as the head passes it on: who has what, and where. Of another model, of this device itself, or without an address:
// ignored.
void kin_fetch_have(kin_fetch *fetch, const kin_proto_have *have);

// That device is gone, says the head. Its link ends; it may come back by kin_fetch_have.
void kin_fetch_gone(kin_fetch *fetch, const kin_proto_id *id);

// ---- inspection

typedef struct kin_fetch_stats {
    uint64_t bytes_head, bytes_peers; // of chunks, that came
    uint32_t n_chunks;                // of the model; 0: not known yet
    int n_windows;                    // that it fetches, or has: see kin_fetch_set_most
    uint32_t n_wanted, n_here;        // chunks; those of the wanted ones that are here
    int n_links;                      // open now
    int n_bad_peers;                  // sources that sent wrong bytes
} kin_fetch_stats;

kin_fetch_stats kin_fetch_stats_now(const kin_fetch *fetch);
