// The work of a fetch in the thread pool: it finds the model's manifest in the cache, opens the store, determines the missing
// chunks, and waits for the disk. One work runs at a time; fetch.c decides which.
//
// Owner: one fetch. Thread: the loop's, which touches no field while a work runs, except `stop`.
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "fetch/chunk_store.h"
#include "fetch/missing_chunks.h"
#include "pure/plan/window.h"
#include "pure/proto/message.h"

typedef void (*kin_fetch_work_done)(void *user);

typedef struct kin_fetch_work {
    uv_loop_t *loop;
    void *user; // of `done`
    kin_fetch_work_done done;
    uv_work_t request;
    bool is_working;
    atomic_bool stop; // ends the work early

    char *cache_dir; // owned
    uint64_t cache_cap;
    kin_proto_hash model;

    // The result of the last work.
    int rc;
    kin_err err; // if rc is KIN_FAIL

    kin_manifest manifest; // until the store owns it
    bool is_checked;       // its hash matches the model's
    kin_store *opened;
    kin_chunk_store *chunks; // for scan and sync, held by the owner; NULL before

    kin_windows windows; // for scan: what is needed, and the limit of bytes to fetch for it
    kin_share share;
    uint64_t most;
    kin_missing_chunks scan;
} kin_fetch_work;

// Begin a work; `done` is called on the loop's thread when it has ended. No other work may run.
//
// find: fills in the manifest; KIN_ABSENT: the cache does not have it. Does nothing if there is a chunk store.
void kin_fetch_work_find(kin_fetch_work *work, kin_fetch_work_done done);
// open: checks the manifest's hash and opens its store, or fails.
void kin_fetch_work_open(kin_fetch_work *work, kin_fetch_work_done done);
// scan: determines the chunks of the windows, at most as many windows as the limit allows, and makes room for what is missing.
void kin_fetch_work_scan(kin_fetch_work *work, kin_fetch_work_done done);
// sync: waits until the disk has everything.
void kin_fetch_work_sync(kin_fetch_work *work, kin_fetch_work_done done);

// Frees everything. No work may run.
void kin_fetch_work_fini(kin_fetch_work *work);
