// Inside of kin_fetch, for fetch.c (whom it asks, what it tells) and fetch_work.c (its phases, and their work in the thread
// pool).
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "base/clock.h"
#include "fetch/chunk_bitmap.h"
#include "fetch/chunk_parts.h"
#include "fetch/chunk_writer.h"
#include "fetch/download_peers.h"
#include "fetch/fetch.h"
#include "fetch/missing_chunks.h"
#include "pure/proto/swarm.h"

enum { KIN_FETCH_HEAD = 0 }; // the peer

typedef enum kin_fetch_phase {
    KIN_FETCH_FINDING,   // looks for the manifest in the cache
    KIN_FETCH_ASKING,    // the head, for the hashes
    KIN_FETCH_OPENING,   // the store
    KIN_FETCH_SURVEYING, // finds out which chunks are needed
    KIN_FETCH_FETCHING,
    KIN_FETCH_SYNCING, // waits for the disk
    KIN_FETCH_RESTING, // all that the windows need is there
    KIN_FETCH_FAILED,
    KIN_FETCH_CANCELLED,
} kin_fetch_phase;

struct kin_fetch {
    uv_loop_t *loop;
    uv_timer_t timer;
    int n_held; // handles and requests that libuv has
    kin_fetch_callbacks callbacks;
    void *user;
    kin_fetch_phase phase;

    char *cache_dir;
    uint64_t cache_cap;
    kin_proto_hash model;
    kin_proto_id id;
    int n_files;
    uint64_t file_sizes[KIN_PROTO_MAX_FILES];
    kin_windows windows;
    kin_share share; // of their layers
    uint64_t most;   // bytes to fetch for them
    bool is_gentle;
    unsigned n_paces;
    bool windows_changed; // since the last survey began
    int n_in_flight_all;
    uint32_t answer_ms, give_up_ms;

    uv_work_t work; // of the phase
    bool is_working;
    atomic_bool stop; // ends the work
    int rc;
    kin_err err;
    kin_windows work_windows;
    kin_share work_share;
    uint64_t work_most;
    kin_missing_chunks survey; // the work's while there is some
    int n_windows;             // that it found
    kin_store *opened;

    kin_download_peers *peers;
    kin_manifest manifest; // until the store has it
    uint32_t n_hashes;     // of it that are here
    bool is_checked;       // its hash is the model's
    int n_tries;
    kin_time retry_at, asked_at;

    kin_chunk_store *chunks;
    kin_chunk_writer *writer;
    kin_swarm *swarm;
    int swarm_of[KIN_DOWNLOAD_PEERS_MAX], peer_of[KIN_SWARM_SOURCES]; // -1: none
    kin_chunk_bitmap bitmap;                                          // first: headers and first window
    kin_chunk_parts parts;
    uint64_t doubted; // bits of peers: no parts of theirs are kept, see take_wrong_chunk
    uint64_t bytes_head, bytes_peers;
    bool is_first_told, has_news; // news: more is here than was told
    kin_time progress_at, have_at;
};

void kin_fetch_let_go(kin_fetch *f); // of one thing that libuv had
void kin_fetch_fail(kin_fetch *f, const char *reason);

// The owner may cancel inside: look at the phase afterwards.
void kin_fetch_tell_progress(kin_fetch *f);
void kin_fetch_tell_have(kin_fetch *f);
void kin_fetch_tell_first_window(kin_fetch *f); // if it is here, and not told

// Asks for whatever is to be asked for now, and goes on when all is there.
void kin_fetch_pump(kin_fetch *f);

// Looks whom to connect to and whom to ask, soon, but not inside of the function that the owner calls now.
void kin_fetch_kick(kin_fetch *f);

void kin_fetch_on_kept(void *user, int peer, const kin_chunk_part *chunk, kin_store_result result, const char *reason);
void kin_fetch_on_peer_opened(void *user, int peer);

// ---- fetch_work.c: phases that begin with work in the thread pool; there is one at a time

void kin_fetch_begin_find(kin_fetch *f);
void kin_fetch_begin_open(kin_fetch *f);
void kin_fetch_begin_survey(kin_fetch *f);
void kin_fetch_begin_sync(kin_fetch *f);
