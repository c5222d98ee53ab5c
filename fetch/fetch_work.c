// The phases of a fetch, and their work in the thread pool.
#include "base/bytes.h"
#include "engine/cache_dir.h"
#include "fetch/fetch_impl.h"
#include "sys/cpu.h"

enum {
    SHUFFLE_CHUNKS = 8, // within a window, see want_all
    OPEN_TRIES = 10,    // a cancelled fetch, or a process that ended, may still be closing the store
    OPEN_WAIT_MS = 300,
};

// ---- work of a phase, in the thread pool

static void begin_work(kin_fetch *f, kin_fetch_phase phase, uv_work_cb run, uv_after_work_cb end) {
    kin_assert(!f->is_working);
    f->phase = phase;
    f->is_working = true;
    f->n_held++;
    uv_queue_work(f->loop, &f->work, run, end);
}

// Returns false if the fetch was cancelled or has failed.
static bool end_work(kin_fetch *f) {
    f->is_working = false;
    return f->phase < KIN_FETCH_FAILED;
}

// ---- the store

static int check_sizes(const kin_fetch *f, const kin_manifest *m, kin_err *err) {
    bool same = m->n_files == f->n_files;
    for (int i = 0; i < f->n_files && same; i++) same = m->files[i].size == f->file_sizes[i];
    return same ? 0 : kin_err_set(err, "the file sizes in the plan differ from the model's");
}

// There is nothing to find if a chunk store was given.
static void run_find(uv_work_t *work) {
    kin_fetch *f = work->data;
    if (!f->chunks) f->rc = kin_store_find_manifest(&f->manifest, f->cache_dir, f->model.bytes, &f->err);
}

static void run_open(uv_work_t *work) {
    kin_fetch *f = work->data;
    f->rc = f->is_checked ? 0 : kin_manifest_finish(&f->manifest, f->model.bytes, &f->err);
    f->is_checked = f->rc == 0;
    if (f->rc == 0) f->rc = kin_store_open(&f->opened, f->cache_dir, &f->manifest, KIN_STORE_FILL, &f->err);
    if (f->rc == 0) f->rc = kin_store_verify(f->opened, kin_cpu_n_cores(), &f->stop, &f->err);
}

// Sets the chunk store for the rest of the fetch: the one given, or a new one for the opened store.
static int open_chunks(kin_fetch *f) {
    if (!f->chunks && kin_chunk_store_new(&f->chunks, f->loop, f->opened, &f->err) != 0) return KIN_FAIL;
    f->opened = NULL;
    kin_manifest_fini(&f->manifest);
    kin_store *store = kin_chunk_store_store(f->chunks);
    if (check_sizes(f, kin_store_manifest(store), &f->err) != 0 || kin_chunk_bitmap_init(&f->bitmap, store, &f->err) != 0)
        return KIN_FAIL;
    return kin_chunk_writer_open(&f->writer, f->loop, f->chunks, kin_fetch_on_kept, f, &f->err);
}

static void continue_with_chunks(kin_fetch *f) {
    if (open_chunks(f) != 0) {
        kin_fetch_fail(f, f->err.text);
        return;
    }
    if (f->callbacks.opened) f->callbacks.opened(f->user, f->chunks);
    if (f->phase < KIN_FETCH_FAILED) kin_fetch_report_have(f);
    if (f->phase < KIN_FETCH_FAILED) kin_fetch_begin_scan(f);
}

static void on_opened(uv_work_t *work, int status) {
    kin_fetch *f = work->data;
    (void)status; // work is never cancelled here
    if (end_work(f)) {
        if (f->rc == 0)
            continue_with_chunks(f);
        else if (f->is_checked && ++f->n_tries < OPEN_TRIES)
            f->retry_at = kin_clock_now() + (kin_time)OPEN_WAIT_MS * 1000000;
        else
            kin_fetch_fail(f, f->err.text);
    }
    kin_fetch_release(f);
}

void kin_fetch_begin_open(kin_fetch *f) {
    begin_work(f, KIN_FETCH_OPENING, run_open, on_opened);
}

static void on_found(uv_work_t *work, int status) {
    kin_fetch *f = work->data;
    (void)status; // work is never cancelled here
    if (end_work(f)) {
        f->asked_at = kin_clock_now();
        if (f->rc == KIN_ABSENT) f->phase = KIN_FETCH_ASKING;
        if (f->chunks)
            continue_with_chunks(f);
        else if (f->rc == 0)
            kin_fetch_begin_open(f);
        else if (f->rc == KIN_ABSENT)
            kin_fetch_kick(f);
        else
            kin_fetch_fail(f, f->err.text);
    }
    kin_fetch_release(f);
}

void kin_fetch_begin_find(kin_fetch *f) {
    begin_work(f, KIN_FETCH_FINDING, run_find, on_found);
}

// ---- scanning

// Makes room for the missing data, and leaves some to others.
static int make_room_for_model(kin_fetch *f) {
    kin_store *store = kin_chunk_store_store(f->chunks);
    uint64_t need = 0;
    for (size_t i = 0; i < f->scan.n; i++) {
        uint32_t i_chunk = f->scan.chunks[i];
        if (!kin_store_has(store, i_chunk)) need += kin_manifest_chunk(kin_store_manifest(store), i_chunk).bytes;
    }
    return kin_cache_dir_make_room_for_model(f->cache_dir, need, f->cache_cap, &f->err);
}

// Keeps only the first windows that fit the limit.
static void cut_windows(kin_fetch *f) {
    kin_store *store = kin_chunk_store_store(f->chunks);
    uint64_t need = 0;
    size_t at = 0;
    for (int g = 0; g < f->scan.n_groups; g++) {
        for (; at < f->scan.ends[g]; at++) {
            uint32_t i_chunk = f->scan.chunks[at];
            if (!kin_store_has(store, i_chunk)) need += kin_manifest_chunk(kin_store_manifest(store), i_chunk).bytes;
        }
        if (g == 0 || need <= f->work_most) continue;
        f->scan.n_groups = g;
        f->scan.n = f->scan.ends[g - 1];
        return;
    }
}

static void run_scan(uv_work_t *work) {
    kin_fetch *f = work->data;
    f->rc = kin_missing_chunks_make(&f->scan, kin_chunk_store_store(f->chunks), &f->work_windows, &f->work_share, &f->err);
    if (f->rc == 0 && f->scan.is_whole) cut_windows(f);
    if (f->rc == 0) f->rc = make_room_for_model(f);
}

// Headers are needed at once. Weights are packed as they arrive, the first ones first, so only neighbours are shuffled: devices
// that fetch the same chunks then have different ones to exchange.
static void want_group(kin_fetch *f, const uint32_t *chunks, size_t n, bool is_header) {
    kin_time now = kin_clock_now();
    size_t step = is_header ? n : SHUFFLE_CHUNKS;
    for (size_t at = 0; at < n; at += step) {
        kin_swarm_want(f->swarm, chunks + at, n - at < step ? n - at : step, is_header, now);
    }
}

static void want_all(kin_fetch *f) {
    size_t at = 0;
    kin_chunk_bitmap_want_nothing(&f->bitmap);
    for (int g = 0; g < f->scan.n_groups; g++) {
        size_t begin = at, n = 0;
        uint32_t *chunks = f->scan.chunks;
        for (; at < f->scan.ends[g]; at++) {
            kin_chunk_bitmap_want(&f->bitmap, chunks[at], g <= 1);
            if (!kin_chunk_bitmap_is_here(&f->bitmap, chunks[at])) chunks[begin + n++] = chunks[at];
        }
        want_group(f, chunks + begin, n, g == 0);
    }
    kin_chunk_parts_keep(&f->parts, f->bitmap.missing);
}

// A swarm that still wants chunks of the old windows is replaced, with its links, because such chunks are queued on them.
static int settle_swarm(kin_fetch *f) {
    static const uint8_t nobody[KIN_SWARM_ID_BYTES];
    if (f->swarm && kin_swarm_complete(f->swarm)) return 0;
    uint64_t seed = kin_get_u64(f->id.bytes);
    kin_swarm_options o = kin_swarm_options_defaults(f->bitmap.n_chunks, f->bitmap.manifest->chunk_bytes, seed);
    o.n_in_flight_all = f->n_in_flight_all;
    o.timeout_ns = (uint64_t)f->answer_ms * 1000000;
    o.give_up_ns = (uint64_t)f->give_up_ms * 1000000;
    if (f->swarm) kin_download_peers_rest(f->peers);
    kin_swarm_free(f->swarm);
    f->swarm = kin_swarm_new(&o, kin_clock_now());
    if (!f->swarm) return KIN_FAIL;
    for (int i = 0; i < KIN_DOWNLOAD_PEERS_MAX; i++) f->swarm_of[i] = -1;
    f->swarm_of[KIN_FETCH_HEAD] = kin_swarm_add_source(f->swarm, nobody, true);
    if (f->swarm_of[KIN_FETCH_HEAD] < 0) return KIN_FAIL;
    f->peer_of[f->swarm_of[KIN_FETCH_HEAD]] = KIN_FETCH_HEAD;
    kin_swarm_lost(f->swarm, f->swarm_of[KIN_FETCH_HEAD]); // until its link is open
    return 0;
}

// Withholds private chunks even if this device received them elsewhere, or before heads withheld them.
static void withhold_private(kin_fetch *f) {
    if (f->scan.is_private) kin_chunk_store_set_private(f->chunks, f->scan.is_private);
    f->scan.is_private = NULL;
}

static void on_scanned(uv_work_t *work, int status) {
    kin_fetch *f = work->data;
    (void)status; // work is never cancelled here
    if (!end_work(f)) {
        kin_fetch_release(f);
        return;
    }
    bool is_new = !f->swarm;
    if (f->rc == 0 && settle_swarm(f) != 0) f->rc = kin_err_set(&f->err, "out of memory");
    if (f->rc != 0) {
        kin_fetch_fail(f, f->err.text);
    } else {
        f->phase = KIN_FETCH_FETCHING;
        f->n_windows = f->scan.n_groups > 0 ? f->scan.n_groups - 1 : 0;
        withhold_private(f);
        want_all(f);
        kin_fetch_kick(f);
        if (f->scan.is_whole && !f->windows_changed && f->callbacks.headers_here) f->callbacks.headers_here(f->user);
        if (f->phase == KIN_FETCH_FETCHING) kin_fetch_report_first_window(f);
        if (f->phase == KIN_FETCH_FETCHING && is_new && kin_download_peers_is_open(f->peers, KIN_FETCH_HEAD))
            kin_fetch_on_peer_opened(f, KIN_FETCH_HEAD); // its link is open since the hashes were requested
        else
            kin_fetch_pump(f);
    }
    kin_fetch_release(f);
}

void kin_fetch_begin_scan(kin_fetch *f) {
    f->work_windows = f->windows;
    f->work_share = f->share;
    f->work_most = f->most;
    f->windows_changed = f->is_first_reported = false;
    f->n_windows = 0;
    kin_missing_chunks_fini(&f->scan);
    begin_work(f, KIN_FETCH_SCANNING, run_scan, on_scanned);
}

// ---- syncing

static void run_sync(uv_work_t *work) {
    kin_fetch *f = work->data;
    f->rc = kin_store_sync(kin_chunk_store_store(f->chunks), &f->err);
}

static void rest(kin_fetch *f) {
    f->phase = KIN_FETCH_RESTING;
    for (int i = 0; i < kin_download_peers_n(f->peers); i++) {
        if (f->swarm_of[i] >= 0) kin_swarm_lost(f->swarm, f->swarm_of[i]);
    }
    kin_download_peers_rest(f->peers);
    kin_chunk_parts_keep(&f->parts, NULL);
    uv_timer_stop(&f->timer);
    if (f->has_new_chunks) kin_fetch_report_have(f);
    if (f->phase == KIN_FETCH_RESTING) kin_fetch_report_progress(f);
    if (f->phase == KIN_FETCH_RESTING && f->callbacks.done) f->callbacks.done(f->user);
}

static void on_synced(uv_work_t *work, int status) {
    kin_fetch *f = work->data;
    (void)status; // work is never cancelled here
    if (end_work(f)) {
        if (f->rc != 0)
            kin_fetch_fail(f, f->err.text);
        else if (f->windows_changed)
            kin_fetch_begin_scan(f);
        else
            rest(f);
    }
    kin_fetch_release(f);
}

void kin_fetch_begin_sync(kin_fetch *f) {
    begin_work(f, KIN_FETCH_SYNCING, run_sync, on_synced);
}
