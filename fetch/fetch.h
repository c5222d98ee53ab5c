// A fetch: brings the parts of a model that a device needs onto its disk, from the head and from other devices.
//
// It gets the model's manifest (from the cache or from the head), opens the store, fetches the files' headers, determines the
// chunks that its windows need (for a device in a group: its slices of their layers), and fetches them, those of the first window
// first. Everything is verified against the model's hash. Chunks that are present, also from earlier runs, are not fetched again.
// pure/proto/swarm.h decides which peer is asked for which chunk; this module handles the links, which it reopens when they
// break, and the disk, in libuv's thread pool. A partially received chunk stays in memory when its link breaks, and only the rest
// is requested again.
//
// Life: kin_fetch_start; `opened`, `progress`..., `headers_here`, `kept`..., `first_window_here`, `done`. A finished fetch rests,
// without links, until kin_fetch_set_windows needs more; then all callbacks but `opened` come again. On `failed` it does nothing
// more. In any state the owner ends it with kin_fetch_cancel, after which no callback comes. All functions may be called inside
// all callbacks; no function here calls a callback.
//
// Owner: the caller that started it. Thread: the loop's, for every function and callback. After kin_fetch_cancel run the loop
// until it has nothing to do before closing it.
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

typedef struct kin_fetch_options { // copied, except for the TLS context
    kin_link_options link;         // for the links that it opens; frame_max is set here
    kin_proto_id id;               // of this device
    const char *name, *version;    // sent in OPEN
    const char *cache_dir;         // folder of stores (model/store.h)
    uint64_t cache_cap;            // byte limit of all stores; 0: half of the disk
    kin_chunk_store *chunks;    // an open chunk store to continue (only one fetch may fill a store); ignored if it is of another
                                // model. NULL: none
    kin_proto_hash model;       // as in PLAN
    int n_files;                // as in PLAN
    const uint64_t *file_sizes; // [n_files]
    const char *head_address;   // address of its control link
    uint16_t head_port;
    kin_proto_id head_id;       // zeros: any process at that address
    const kin_windows *windows; // empty: only the headers
    int n_links;                // to devices, at a time (16)
    int n_in_flight_all;        // most chunks requested at a time; each takes a chunk of memory (16)
    uint32_t answer_ms;         // time without requested bytes after which other peers are asked (10000)
    uint32_t give_up_ms;        // time without bytes from any peer after which it fails (60000)
} kin_fetch_options;

kin_fetch_options kin_fetch_options_default(kin_tls_ctx *tls);

typedef struct kin_fetch_progress {
    // Content of PROGRESS: HASHING until the store is open, then FETCHING. done and total count what the windows need, including
    // what was present before; until all headers are present, only the headers. total 0: unknown.
    kin_proto_progress sent;
    uint64_t left_ns; // UINT64_MAX: unknown
} kin_fetch_progress;

typedef struct kin_fetch_callbacks { // all except `failed` may be NULL
    // The store is open and can be shared, or opened by its paths. The fetch holds it until kin_fetch_cancel; hold it, too.
    // Before another fetch of the same model, pass it as options.chunks, or release every reference.
    void (*opened)(void *user, kin_chunk_store *chunks);
    // Called twice a second, and when a phase begins or ends.
    void (*progress)(void *user, const kin_fetch_progress *progress);
    // The chunks that this device has now: the model, its id, no endpoint; valid during the call. Called after `opened`, then
    // when there is more, at most twice a second, and before `done`.
    void (*have_changed)(void *user, const kin_proto_have *have);
    // The headers are present: the files can be opened as a model. Its weights are still in flight. Once per set of windows.
    void (*headers_here)(void *user);
    // A chunk was verified and written: weights may be read as far as the chunk store has them.
    void (*kept)(void *user);
    // The headers and all weights of the first window are present. Comes before `done`, even if nothing had to be fetched.
    void (*first_window_here)(void *user);
    // Everything that the windows need is present and safe on the disk.
    void (*done)(void *user);
    // The reason is one sentence. No callback follows.
    void (*failed)(void *user, const char *reason);
} kin_fetch_callbacks;

// Fails only if out of memory; everything else is reported to `failed`. The callbacks are copied.
int kin_fetch_start(kin_fetch **out, uv_loop_t *loop, const kin_fetch_options *options, const kin_fetch_callbacks *callbacks,
                    void *user, kin_err *err);

// Received data stays on the disk. NULL is allowed.
void kin_fetch_cancel(kin_fetch *fetch);

// Sets other windows of the same model. Present chunks stay; chunks that only the old windows needed are no longer fetched.
void kin_fetch_set_windows(kin_fetch *fetch, const kin_windows *windows);

// Call right after start or set_windows: fetches only this share of the layers, for a device of a group; without it whole layers.
// The chunks that hold bytes of its slices are needed.
void kin_fetch_set_share(kin_fetch *fetch, const kin_share *share);

// Call right after start or set_windows: limits the fetch to the first windows that need at most `bytes` of missing chunks.
// kin_fetch_stats has their number.
void kin_fetch_set_most(kin_fetch *fetch, uint64_t bytes);

// Rate-limited mode: the fetch leaves the link to other traffic and takes at most a quarter of it. Off initially.
void kin_fetch_set_rate_limited(kin_fetch *fetch, bool is_gentle);

// Handles HAVE, forwarded by the head: a device, its chunks and its address. Ignored for another model, this device itself, or
// without an address.
void kin_fetch_have(kin_fetch *fetch, const kin_proto_have *have);

// The head reports that this device is gone. Its link ends; kin_fetch_have makes it known again.
void kin_fetch_gone(kin_fetch *fetch, const kin_proto_id *id);

// ---- inspection

typedef struct kin_fetch_stats {
    uint64_t bytes_head, bytes_peers; // of received chunks
    uint32_t n_chunks;                // of the model; 0: unknown
    int n_windows;                    // windows that are fetched or present: see kin_fetch_set_most
    uint32_t n_wanted, n_here;        // wanted chunks; those of them that are present
    int n_links;                      // open links
    int n_bad_peers;                  // peers that sent wrong bytes
} kin_fetch_stats;

kin_fetch_stats kin_fetch_stats_now(const kin_fetch *fetch);
