// Internals of kin_fetch, shared by fetch.c (peers, requests and callbacks) and fetch_work.c (phases and their work in the thread
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

enum { KIN_FETCH_HEAD = 0 }; // the head's peer number

typedef enum kin_fetch_phase {
    KIN_FETCH_FINDING,  // searches the cache for the manifest
    KIN_FETCH_ASKING,   // requests the hashes from the head
    KIN_FETCH_OPENING,  // opens the store
    KIN_FETCH_SCANNING, // determines the needed chunks
    KIN_FETCH_FETCHING,
    KIN_FETCH_SYNCING, // waits for the disk
    KIN_FETCH_RESTING, // everything that the windows need is present
    KIN_FETCH_FAILED,
    KIN_FETCH_CANCELLED,
} kin_fetch_phase;

struct kin_fetch {
    uv_loop_t *loop;
    uv_timer_t timer;
    int n_held; // handles and requests that libuv still uses
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
    kin_share share; // share of the windows' layers
    uint64_t most;   // limit of bytes to fetch for them
    bool is_gentle;
    unsigned n_rate_ticks;
    bool windows_changed; // since the last scan began
    int n_in_flight_all;
    uint32_t answer_ms, give_up_ms;

    uv_work_t work; // work of the phase
    bool is_working;
    atomic_bool stop; // ends the work early
    int rc;
    kin_err err;
    kin_windows work_windows;
    kin_share work_share;
    uint64_t work_most;
    kin_missing_chunks scan; // used by the work while it runs
    int n_windows;           // windows found by the scan
    kin_store *opened;

    kin_download_peers *peers;
    kin_manifest manifest; // until the store owns it
    uint32_t n_hashes;     // hashes of it received
    bool is_checked;       // its hash matches the model's
    int n_tries;
    kin_time retry_at, asked_at;

    kin_chunk_store *chunks;
    kin_chunk_writer *writer;
    kin_swarm *swarm;
    int swarm_of[KIN_DOWNLOAD_PEERS_MAX], peer_of[KIN_SWARM_SOURCES]; // -1: none
    kin_chunk_bitmap bitmap;                                          // `first` bits: headers and first window
    kin_chunk_parts parts;
    uint64_t doubted; // bit set of peers whose parts are not kept, see take_wrong_chunk
    uint64_t bytes_head, bytes_peers;
    bool is_first_reported, has_new_chunks; // has_new_chunks: more chunks are present than `have_changed` has reported
    kin_time progress_at, have_at;
};

void kin_fetch_release(kin_fetch *f); // releases one handle or request of libuv
void kin_fetch_fail(kin_fetch *f, const char *reason);

// The owner may cancel inside: check the phase afterwards.
void kin_fetch_report_progress(kin_fetch *f);
void kin_fetch_report_have(kin_fetch *f);
void kin_fetch_report_first_window(kin_fetch *f); // if it is present and was not reported

// Sends all requests that are due, and moves on when everything is present.
void kin_fetch_pump(kin_fetch *f);

// Schedules a check for links to open and requests to send, outside the owner's present call.
void kin_fetch_kick(kin_fetch *f);

void kin_fetch_on_kept(void *user, int peer, const kin_chunk_part *chunk, kin_store_result result, const char *reason);
void kin_fetch_on_peer_opened(void *user, int peer);

// ---- fetch_work.c: phases that begin with work in the thread pool; one runs at a time

void kin_fetch_begin_find(kin_fetch *f);
void kin_fetch_begin_open(kin_fetch *f);
void kin_fetch_begin_scan(kin_fetch *f);
void kin_fetch_begin_sync(kin_fetch *f);
