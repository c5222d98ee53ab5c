#include "fetch/fetch_work.h"

#include <stdlib.h>

#include "engine/cache_dir.h"
#include "sys/cpu.h"

static void on_done(uv_work_t *request, int status) {
    kin_fetch_work *w = request->data;
    (void)status; // work is never cancelled here
    w->is_working = false;
    w->done(w->user);
}

static void begin(kin_fetch_work *w, uv_work_cb run, kin_fetch_work_done done) {
    kin_assert(!w->is_working);
    w->is_working = true;
    w->done = done;
    w->request.data = w;
    uv_queue_work(w->loop, &w->request, run, on_done);
}

// There is nothing to find if a chunk store was given.
static void run_find(uv_work_t *request) {
    kin_fetch_work *w = request->data;
    if (!w->chunks) w->rc = kin_store_find_manifest(&w->manifest, w->cache_dir, w->model.bytes, &w->err);
}

void kin_fetch_work_find(kin_fetch_work *w, kin_fetch_work_done done) {
    begin(w, run_find, done);
}

static void run_open(uv_work_t *request) {
    kin_fetch_work *w = request->data;
    w->rc = w->is_checked ? 0 : kin_manifest_finish(&w->manifest, w->model.bytes, &w->err);
    w->is_checked = w->rc == 0;
    if (w->rc == 0) w->rc = kin_store_open(&w->opened, w->cache_dir, &w->manifest, KIN_STORE_FILL, &w->err);
    if (w->rc == 0) w->rc = kin_store_verify(w->opened, kin_cpu_n_cores(), &w->stop, &w->err);
}

void kin_fetch_work_open(kin_fetch_work *w, kin_fetch_work_done done) {
    begin(w, run_open, done);
}

// Makes room for the missing data, and leaves some to others.
static int make_room_for_model(kin_fetch_work *w) {
    kin_store *store = kin_chunk_store_store(w->chunks);
    uint64_t need = 0;
    for (size_t i = 0; i < w->scan.n; i++) {
        uint32_t i_chunk = w->scan.chunks[i];
        if (!kin_store_has(store, i_chunk)) need += kin_manifest_chunk(kin_store_manifest(store), i_chunk).bytes;
    }
    return kin_cache_dir_make_room_for_model(w->cache_dir, need, w->cache_cap, &w->err);
}

// Keeps only the first windows that fit the limit.
static void cut_windows(kin_fetch_work *w) {
    kin_store *store = kin_chunk_store_store(w->chunks);
    uint64_t need = 0;
    size_t at = 0;
    for (int g = 0; g < w->scan.n_groups; g++) {
        for (; at < w->scan.ends[g]; at++) {
            uint32_t i_chunk = w->scan.chunks[at];
            if (!kin_store_has(store, i_chunk)) need += kin_manifest_chunk(kin_store_manifest(store), i_chunk).bytes;
        }
        if (g == 0 || need <= w->most) continue;
        w->scan.n_groups = g;
        w->scan.n = w->scan.ends[g - 1];
        return;
    }
}

static void run_scan(uv_work_t *request) {
    kin_fetch_work *w = request->data;
    w->rc = kin_missing_chunks_make(&w->scan, kin_chunk_store_store(w->chunks), &w->windows, &w->share, &w->err);
    if (w->rc == 0 && w->scan.is_whole) cut_windows(w);
    if (w->rc == 0) w->rc = make_room_for_model(w);
}

void kin_fetch_work_scan(kin_fetch_work *w, kin_fetch_work_done done) {
    begin(w, run_scan, done);
}

static void run_sync(uv_work_t *request) {
    kin_fetch_work *w = request->data;
    w->rc = kin_store_sync(kin_chunk_store_store(w->chunks), &w->err);
}

void kin_fetch_work_sync(kin_fetch_work *w, kin_fetch_work_done done) {
    begin(w, run_sync, done);
}

void kin_fetch_work_fini(kin_fetch_work *w) {
    kin_store_close(w->opened);
    kin_chunk_store_release(w->chunks);
    kin_missing_chunks_fini(&w->scan);
    kin_manifest_fini(&w->manifest);
    free(w->cache_dir);
}
