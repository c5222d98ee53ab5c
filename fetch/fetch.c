#include "fetch/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "fetch/chunk_bitmap.h"
#include "fetch/chunk_parts.h"
#include "fetch/chunk_writer.h"
#include "fetch/download_peers.h"
#include "fetch/fetch_work.h"
#include "fetch/manifest_transfer.h"
#include "pure/proto/label.h"
#include "pure/proto/swarm.h"

enum {
    TICK_MS = 100,
    RATE_TICK_MS = 5, // tick of a rate-limited fetch: between two slices (fetch/download.c)
    TELL_MS = 500,    // between two calls of `progress`, and of `have_changed`

    SHUFFLE_CHUNKS = 8, // within a window, see want_all
    OPEN_TRIES = 10,    // a cancelled fetch, or a process that ended, may still be closing the store
    OPEN_WAIT_MS = 300,
};

enum { HEAD = 0 }; // the head's peer number

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

    kin_fetch_work work; // of the phase
    int n_windows;       // windows found by the scan

    kin_download_peers *peers;
    uint32_t n_hashes; // hashes of the manifest received
    int n_tries;
    kin_time retry_at, asked_at;

    kin_chunk_writer *writer;
    kin_swarm *swarm;
    int swarm_of[KIN_DOWNLOAD_PEERS_MAX], peer_of[KIN_SWARM_SOURCES]; // -1: none
    kin_chunk_bitmap bitmap;                                          // `first` bits: headers and first window
    kin_chunk_parts parts;
    uint64_t doubted; // bit set of peers whose parts are not kept, see handle_wrong_chunk
    uint64_t bytes_head, bytes_peers;
    bool is_first_reported, has_new_chunks; // has_new_chunks: more chunks are present than `have_changed` has reported
    kin_time progress_at, have_at;
};

// ---- the end

static void release(kin_fetch *f) {
    if (--f->n_held > 0) return;
    kin_fetch_work_fini(&f->work);
    kin_swarm_free(f->swarm);
    kin_chunk_bitmap_fini(&f->bitmap);
    kin_chunk_parts_keep(&f->parts, NULL);
    free(f);
}

static void on_fetch_timer_closed(uv_handle_t *handle) {
    release(handle->data);
}

static void stop(kin_fetch *f, kin_fetch_phase last) {
    kin_download_peers_close(f->peers);
    kin_chunk_writer_close(f->writer);
    f->peers = NULL;
    f->writer = NULL;
    f->phase = last;
    uv_timer_stop(&f->timer);
}

static void fail(kin_fetch *f, const char *reason) {
    char text[sizeof((kin_err *)0)->text];
    snprintf(text, sizeof text, "%s", reason); // `reason` may be inside memory that is freed now
    stop(f, KIN_FETCH_FAILED);
    f->callbacks.failed(f->user, text);
}

// ---- reporting. The owner may cancel inside: check the phase afterwards

static kin_fetch_progress progress_now(const kin_fetch *f) {
    kin_fetch_progress p = {.sent = {.stage = f->writer ? KIN_PROTO_FETCHING : KIN_PROTO_HASHING}, .left_ns = UINT64_MAX};
    p.sent.done = f->bitmap.bytes_here;
    p.sent.total = f->bitmap.bytes_wanted;
    p.sent.from_peers = f->bytes_peers;
    if (!f->swarm) return p;
    kin_swarm_stats stats = kin_swarm_get_stats(f->swarm, kin_clock_now());
    p.sent.rate = f->phase == KIN_FETCH_RESTING ? 0 : stats.rate;
    p.left_ns = stats.left_ns;
    return p;
}

static void report_progress(kin_fetch *f) {
    f->progress_at = kin_clock_now();
    if (!f->callbacks.progress) return;
    kin_fetch_progress p = progress_now(f);
    f->callbacks.progress(f->user, &p);
}

static void report_have(kin_fetch *f) {
    f->have_at = kin_clock_now();
    f->has_new_chunks = false;
    if (!f->callbacks.have_changed) return;
    kin_proto_have have = {.model = f->work.model, .id = f->id, .n_chunks = f->bitmap.n_chunks, .bitmap = f->bitmap.here};
    f->callbacks.have_changed(f->user, &have);
}

// If it is present and was not reported.
static void report_first_window(kin_fetch *f) {
    if (f->is_first_reported || !f->work.scan.is_whole || f->bitmap.n_first_missing > 0) return;
    f->is_first_reported = true;
    if (f->callbacks.first_window_here) f->callbacks.first_window_here(f->user);
}

static bool is_due(kin_time last, kin_time now) {
    return now - last >= (kin_time)TELL_MS * 1000000;
}

static void report_due(kin_fetch *f) {
    kin_time now = kin_clock_now();
    if (f->has_new_chunks && is_due(f->have_at, now)) report_have(f);
    if (f->phase < KIN_FETCH_RESTING && is_due(f->progress_at, now)) report_progress(f);
}

// ---- requests

// True if a request to the peer has timed out: such requests are dropped by closing the link.
static bool is_silent(const kin_fetch *f, int peer) {
    for (int i = 0; i < kin_download_peers_n_asked(f->peers, peer); i++) {
        if (!kin_swarm_is_asked(f->swarm, f->swarm_of[peer], kin_download_peers_asked(f->peers, peer, i))) return true;
    }
    return false;
}

static void drop_peer(kin_fetch *f, int peer, const char *reason) {
    kin_download_peers_drop(f->peers, peer, reason);
    if (f->swarm && f->swarm_of[peer] >= 0) kin_swarm_lost(f->swarm, f->swarm_of[peer]);
}

static void drop_silent(kin_fetch *f) {
    for (int i = 0; i < kin_download_peers_n(f->peers); i++) {
        if (kin_download_peers_is_open(f->peers, i) && is_silent(f, i)) drop_peer(f, i, "it did not answer a request in time");
    }
}

static void give_up(kin_fetch *f, const char *reason) {
    char text[sizeof((kin_err *)0)->text];
    const char *of_head = kin_download_peers_is_open(f->peers, HEAD) ? "" : kin_download_peers_reason(f->peers, HEAD);
    snprintf(text, sizeof text, "%s%s%.300s", reason, of_head[0] ? "; the head: " : "", of_head);
    fail(f, text);
}

// Requests the missing bytes of a chunk.
static void ask_peer(kin_fetch *f, int peer, uint32_t i_chunk) {
    uint32_t n = kin_chunk_bitmap_chunk_bytes(&f->bitmap, i_chunk);
    kin_chunk_part part = kin_chunk_parts_pop(&f->parts, i_chunk);
    if (kin_download_peers_ask(f->peers, peer, &f->work.model, &part, n)) return;
    if (part.bytes) kin_chunk_parts_put(&f->parts, &part);
    drop_peer(f, peer, "cannot send it a request");
}

static void begin_scan(kin_fetch *f);
static void begin_sync(kin_fetch *f);

// Sends all requests that are due, and moves on when everything is present.
static void pump(kin_fetch *f) {
    if (f->phase != KIN_FETCH_FETCHING) return;
    if (kin_swarm_complete(f->swarm)) {
        if (f->work.scan.is_whole && !f->windows_changed)
            begin_sync(f);
        else
            begin_scan(f);
        return;
    }
    for (;;) {
        if (f->is_gentle && kin_download_peers_n_asked_all(f->peers) > 0) return;
        kin_swarm_action a = kin_swarm_next(f->swarm, kin_clock_now());
        if (a.verb == KIN_SWARM_WAIT) return;
        if (a.verb == KIN_SWARM_GIVE_UP) {
            give_up(f, a.reason);
            return;
        }
        ask_peer(f, f->peer_of[a.source], a.chunk);
    }
}

// ---- received chunks

static uint64_t bit_of(int peer) {
    return UINT64_C(1) << peer;
}

// The owner may cancel inside.
static void handle_right_chunk(kin_fetch *f, int peer, const kin_chunk_part *chunk) {
    int source = f->swarm_of[peer];
    if (chunk->senders == bit_of(peer)) f->doubted &= ~bit_of(peer);
    free(kin_chunk_parts_pop(&f->parts, chunk->i_chunk).bytes); // from a second peer
    if (kin_chunk_bitmap_add(&f->bitmap, chunk->i_chunk)) f->has_new_chunks = true;
    if (f->callbacks.kept) f->callbacks.kept(f->user);
    if (f->phase >= KIN_FETCH_FAILED) return;
    kin_swarm_got(f->swarm, source >= 0 ? source : f->swarm_of[HEAD], chunk->i_chunk, kin_clock_now());
    if (f->phase == KIN_FETCH_FETCHING) report_first_window(f);
}

// If a wrong chunk came from several peers, the bad one is unknown. The chunk is requested again, and partial data of those peers
// is no longer kept, so a peer that sends wrong bytes again has sent the whole chunk. The head is exempt: without it nothing
// works, so its parts are always kept.
static void handle_wrong_chunk(kin_fetch *f, int peer, const kin_chunk_part *chunk, const char *reason) {
    int source = f->swarm_of[peer];
    bool is_alone = chunk->senders == bit_of(peer);
    const char *sender = !is_alone ? "several devices" : peer == HEAD ? "the head" : "another device";
    kin_log(KIN_LOG_WARN, "chunks from %s: %s", sender, reason);
    if (!is_alone) f->doubted |= chunk->senders & ~bit_of(HEAD);
    if (is_alone) kin_download_peers_ban(f->peers, peer, reason);
    if (source >= 0 && is_alone) kin_swarm_lied(f->swarm, source, chunk->i_chunk);
    if (source >= 0 && !is_alone) kin_swarm_spoiled(f->swarm, source, chunk->i_chunk);
}

static void on_kept(void *user, int peer, const kin_chunk_part *chunk, kin_store_result result, const char *reason) {
    kin_fetch *f = user;
    if (result == KIN_STORE_FAILED) {
        fail(f, reason);
        return;
    }
    if (result == KIN_STORE_OK)
        handle_right_chunk(f, peer, chunk);
    else
        handle_wrong_chunk(f, peer, chunk, reason);
    pump(f);
}

// ---- peers

static void ask_hashes(kin_fetch *f) {
    kin_manifest_fini(&f->work.manifest);
    if (!kin_download_peers_ask_hashes(f->peers, HEAD, &f->work.model))
        kin_download_peers_drop(f->peers, HEAD, "cannot send it a request");
}

static void on_peer_opened(void *user, int peer) {
    kin_fetch *f = user;
    if (f->phase == KIN_FETCH_ASKING && peer == HEAD) ask_hashes(f);
    if (!f->swarm) return;
    uint8_t id[KIN_SWARM_ID_BYTES] = {(uint8_t)peer}; // the swarm needs an id that is unique here
    int source = kin_swarm_add_source(f->swarm, id, peer == HEAD);
    f->swarm_of[peer] = source;
    if (source < 0) {
        kin_download_peers_ban(f->peers, peer, "it sent damaged chunks");
        return;
    }
    f->peer_of[source] = peer;
    const uint8_t *offer = peer == HEAD ? NULL : kin_download_peers_offer(f->peers, peer, f->bitmap.n_chunks);
    if (offer) kin_swarm_offers(f->swarm, source, offer, kin_chunk_bitmap_bits(&f->bitmap));
    pump(f);
}

// ---- phases that begin with work in the thread pool

// Schedules a check for links to open and requests to send, outside the owner's present call.
static void kick(kin_fetch *f);

static void begin_work(kin_fetch *f, kin_fetch_phase phase, void (*work)(kin_fetch_work *, kin_fetch_work_done),
                       kin_fetch_work_done done) {
    f->phase = phase;
    f->n_held++;
    work(&f->work, done);
}

// Returns false if the fetch was cancelled or has failed while the work ran.
static bool is_alive(const kin_fetch *f) {
    return f->phase < KIN_FETCH_FAILED;
}

static int check_sizes(const kin_fetch *f, const kin_manifest *m, kin_err *err) {
    bool same = m->n_files == f->n_files;
    for (int i = 0; i < f->n_files && same; i++) same = m->files[i].size == f->file_sizes[i];
    return same ? 0 : kin_err_set(err, "the file sizes in the plan differ from the model's");
}

// Sets the chunk store for the rest of the fetch: the one given, or a new one for the opened store.
static int open_chunks(kin_fetch *f) {
    if (!f->work.chunks && kin_chunk_store_new(&f->work.chunks, f->loop, f->work.opened, &f->work.err) != 0) return KIN_FAIL;
    f->work.opened = NULL;
    kin_manifest_fini(&f->work.manifest);
    kin_store *store = kin_chunk_store_store(f->work.chunks);
    if (check_sizes(f, kin_store_manifest(store), &f->work.err) != 0 ||
        kin_chunk_bitmap_init(&f->bitmap, store, &f->work.err) != 0)
        return KIN_FAIL;
    return kin_chunk_writer_open(&f->writer, f->loop, f->work.chunks, on_kept, f, &f->work.err);
}

static void continue_with_chunks(kin_fetch *f) {
    if (open_chunks(f) != 0) {
        fail(f, f->work.err.text);
        return;
    }
    if (f->callbacks.opened) f->callbacks.opened(f->user, f->work.chunks);
    if (f->phase < KIN_FETCH_FAILED) report_have(f);
    if (f->phase < KIN_FETCH_FAILED) begin_scan(f);
}

static void on_opened(void *user) {
    kin_fetch *f = user;
    if (is_alive(f)) {
        if (f->work.rc == 0)
            continue_with_chunks(f);
        else if (f->work.is_checked && ++f->n_tries < OPEN_TRIES)
            f->retry_at = kin_clock_now() + (kin_time)OPEN_WAIT_MS * 1000000;
        else
            fail(f, f->work.err.text);
    }
    release(f);
}

static void begin_open(kin_fetch *f) {
    begin_work(f, KIN_FETCH_OPENING, kin_fetch_work_open, on_opened);
}

static void on_found(void *user) {
    kin_fetch *f = user;
    if (is_alive(f)) {
        f->asked_at = kin_clock_now();
        if (f->work.rc == KIN_ABSENT) f->phase = KIN_FETCH_ASKING;
        if (f->work.chunks)
            continue_with_chunks(f);
        else if (f->work.rc == 0)
            begin_open(f);
        else if (f->work.rc == KIN_ABSENT)
            kick(f);
        else
            fail(f, f->work.err.text);
    }
    release(f);
}

static void begin_find(kin_fetch *f) {
    begin_work(f, KIN_FETCH_FINDING, kin_fetch_work_find, on_found);
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
    for (int g = 0; g < f->work.scan.n_groups; g++) {
        size_t begin = at, n = 0;
        uint32_t *chunks = f->work.scan.chunks;
        for (; at < f->work.scan.ends[g]; at++) {
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
    f->swarm_of[HEAD] = kin_swarm_add_source(f->swarm, nobody, true);
    if (f->swarm_of[HEAD] < 0) return KIN_FAIL;
    f->peer_of[f->swarm_of[HEAD]] = HEAD;
    kin_swarm_lost(f->swarm, f->swarm_of[HEAD]); // until its link is open
    return 0;
}

// Withholds private chunks even if this device received them elsewhere, or before heads withheld them.
static void withhold_private(kin_fetch *f) {
    if (f->work.scan.is_private) kin_chunk_store_set_private(f->work.chunks, f->work.scan.is_private);
    f->work.scan.is_private = NULL;
}

static void on_scanned(void *user) {
    kin_fetch *f = user;
    if (!is_alive(f)) {
        release(f);
        return;
    }
    bool is_new = !f->swarm;
    if (f->work.rc == 0 && settle_swarm(f) != 0) f->work.rc = kin_err_set(&f->work.err, "out of memory");
    if (f->work.rc != 0) {
        fail(f, f->work.err.text);
    } else {
        f->phase = KIN_FETCH_FETCHING;
        f->n_windows = f->work.scan.n_groups > 0 ? f->work.scan.n_groups - 1 : 0;
        withhold_private(f);
        want_all(f);
        kick(f);
        if (f->work.scan.is_whole && !f->windows_changed && f->callbacks.headers_here) f->callbacks.headers_here(f->user);
        if (f->phase == KIN_FETCH_FETCHING) report_first_window(f);
        if (f->phase == KIN_FETCH_FETCHING && is_new && kin_download_peers_is_open(f->peers, HEAD))
            on_peer_opened(f, HEAD); // its link is open since the hashes were requested
        else
            pump(f);
    }
    release(f);
}

static void begin_scan(kin_fetch *f) {
    f->work.windows = f->windows;
    f->work.share = f->share;
    f->work.most = f->most;
    f->windows_changed = f->is_first_reported = false;
    f->n_windows = 0;
    kin_missing_chunks_fini(&f->work.scan);
    begin_work(f, KIN_FETCH_SCANNING, kin_fetch_work_scan, on_scanned);
}

static void rest(kin_fetch *f) {
    f->phase = KIN_FETCH_RESTING;
    for (int i = 0; i < kin_download_peers_n(f->peers); i++) {
        if (f->swarm_of[i] >= 0) kin_swarm_lost(f->swarm, f->swarm_of[i]);
    }
    kin_download_peers_rest(f->peers);
    kin_chunk_parts_keep(&f->parts, NULL);
    uv_timer_stop(&f->timer);
    if (f->has_new_chunks) report_have(f);
    if (f->phase == KIN_FETCH_RESTING) report_progress(f);
    if (f->phase == KIN_FETCH_RESTING && f->callbacks.done) f->callbacks.done(f->user);
}

static void on_synced(void *user) {
    kin_fetch *f = user;
    if (is_alive(f)) {
        if (f->work.rc != 0)
            fail(f, f->work.err.text);
        else if (f->windows_changed)
            begin_scan(f);
        else
            rest(f);
    }
    release(f);
}

static void begin_sync(kin_fetch *f) {
    begin_work(f, KIN_FETCH_SYNCING, kin_fetch_work_sync, on_synced);
}

// ---- messages of peers

static void on_hashes(void *user, int peer, const kin_proto_hashes *hashes) {
    kin_fetch *f = user;
    kin_err err;
    if (f->phase != KIN_FETCH_ASKING || peer != HEAD) return;
    f->asked_at = kin_clock_now();
    switch (kin_manifest_transfer_add(&f->work.manifest, &f->n_hashes, hashes, f->n_files, f->file_sizes, &err)) {
    case KIN_MANIFEST_TRANSFER_MORE: break;
    case KIN_MANIFEST_TRANSFER_WHOLE: begin_open(f); break;
    case KIN_MANIFEST_TRANSFER_BAD:
        kin_err_prefix(&err, "the head");
        fail(f, err.text);
        break;
    }
}

static void on_heard(void *user, int peer, uint32_t n_bytes) {
    kin_fetch *f = user;
    *(peer == HEAD ? &f->bytes_head : &f->bytes_peers) += n_bytes;
    if (f->swarm_of[peer] >= 0) kin_swarm_heard(f->swarm, f->swarm_of[peer], n_bytes, kin_clock_now());
}

static void on_chunk(void *user, int peer, const kin_chunk_part *whole) {
    kin_fetch *f = user;
    kin_err err;
    if (kin_chunk_writer_put(f->writer, peer, whole, &err) != 0) fail(f, err.text);
}

static void on_part(void *user, const kin_chunk_part *part) {
    kin_fetch *f = user;
    bool is_here = kin_chunk_bitmap_is_here(&f->bitmap, part->i_chunk);
    if (is_here || (part->senders & f->doubted))
        free(part->bytes);
    else
        kin_chunk_parts_put(&f->parts, part);
}

static void on_lacks(void *user, int peer, uint32_t i_chunk) {
    kin_fetch *f = user;
    if (i_chunk == KIN_PROTO_NO_CHUNK) {
        drop_peer(f, peer, "it has no chunks of that model");
    } else if (f->swarm && f->swarm_of[peer] >= 0) {
        kin_swarm_lacks(f->swarm, f->swarm_of[peer], i_chunk);
        pump(f);
    }
}

// The next tick asks other peers.
static void on_lost(void *user, int peer, const char *reason) {
    kin_fetch *f = user;
    (void)reason; // kin_download_peers_reason has it
    if (f->swarm && f->swarm_of[peer] >= 0) kin_swarm_lost(f->swarm, f->swarm_of[peer]);
}

// ---- time

static void tick_asking(kin_fetch *f) {
    kin_download_peers_tick(f->peers, NULL, 0);
    if (kin_clock_now() - f->asked_at > (kin_time)f->give_up_ms * 1000000)
        give_up(f, "the model's hashes did not arrive in time");
}

// Chunks that wait for the local disk do not count as their sender's silence.
static void excuse_senders(kin_fetch *f) {
    for (int i = 0; i < kin_download_peers_n(f->peers); i++) {
        if (f->swarm_of[i] >= 0 && kin_chunk_writer_has_from(f->writer, i))
            kin_swarm_heard(f->swarm, f->swarm_of[i], 0, kin_clock_now());
    }
}

static void tick_fetching(kin_fetch *f) {
    kin_download_peers_tick(f->peers, f->bitmap.missing, f->bitmap.n_chunks);
    kin_download_peers_listen(f->peers);
    excuse_senders(f);
    if (f->windows_changed)
        begin_scan(f);
    else
        pump(f);
    if (f->phase == KIN_FETCH_FETCHING) drop_silent(f);
}

static void tick(uv_timer_t *timer) {
    kin_fetch *f = timer->data;
    if (f->is_gentle && f->phase < KIN_FETCH_FAILED) kin_download_peers_tick_rates(f->peers);
    if (f->is_gentle && ++f->n_rate_ticks % (TICK_MS / RATE_TICK_MS) != 0 && f->phase == KIN_FETCH_FETCHING &&
        !f->windows_changed) {
        pump(f);
        return;
    }
    if (f->phase == KIN_FETCH_ASKING) tick_asking(f);
    if (f->phase == KIN_FETCH_OPENING && !f->work.is_working && kin_clock_now() >= f->retry_at) begin_open(f);
    if (f->phase == KIN_FETCH_FETCHING)
        tick_fetching(f);
    else if (f->phase == KIN_FETCH_RESTING && f->windows_changed)
        begin_scan(f);
    if (f->phase < KIN_FETCH_FAILED) report_due(f);
}

static void kick(kin_fetch *f) {
    uv_timer_start(&f->timer, tick, 0, f->is_gentle ? RATE_TICK_MS : TICK_MS);
}

// ---- start and cancel

kin_fetch_options kin_fetch_options_default(kin_tls_ctx *tls) {
    return (kin_fetch_options){
        .link = kin_link_options_default(tls), .n_links = 16, .n_in_flight_all = 16, .answer_ms = 10000, .give_up_ms = 60000};
}

static int open_peers(kin_fetch *f, const kin_fetch_options *o, kin_err *err) {
    static const kin_download_peers_callbacks callbacks = {on_peer_opened, on_hashes, on_heard, on_chunk,
                                                           on_part,        on_lacks,  on_lost};
    kin_download_peers_options p = {.link = o->link,
                                    .self = {.role = KIN_PROTO_FETCH, .id = o->id},
                                    .head_id = o->head_id,
                                    .head_address = o->head_address,
                                    .head_port = o->head_port,
                                    .n_links = o->n_links};
    kin_label_set(p.self.name, KIN_PROTO_MAX_STR, o->name);
    kin_label_set(p.self.version, KIN_PROTO_MAX_STR, o->version);
    return kin_download_peers_open(&f->peers, f->loop, &p, &callbacks, f, err);
}

int kin_fetch_start(kin_fetch **out, uv_loop_t *loop, const kin_fetch_options *o, const kin_fetch_callbacks *callbacks,
                    void *user, kin_err *err) {
    kin_assert(o->n_files >= 1 && o->n_files <= KIN_PROTO_MAX_FILES && callbacks->failed);
    kin_fetch *f = *out = calloc(1, sizeof *f);
    if (!f) return kin_err_set(err, "out of memory");
    f->loop = f->work.loop = loop;
    f->callbacks = *callbacks;
    f->user = user;
    f->work.model = o->model;
    f->id = o->id;
    f->n_files = o->n_files;
    memcpy(f->file_sizes, o->file_sizes, (size_t)o->n_files * sizeof *o->file_sizes);
    f->windows = *o->windows;
    f->most = UINT64_MAX;
    f->n_in_flight_all = o->n_in_flight_all;
    f->answer_ms = o->answer_ms;
    f->give_up_ms = o->give_up_ms;
    f->work.cache_cap = o->cache_cap;
    f->work.cache_dir = strdup(o->cache_dir);
    if (!f->work.cache_dir || open_peers(f, o, err) != 0) {
        free(f->work.cache_dir);
        free(f);
        *out = NULL;
        return kin_err_set(err, "out of memory");
    }
    if (o->chunks && memcmp(kin_store_manifest(kin_chunk_store_store(o->chunks))->hash, &o->model, sizeof o->model) == 0) {
        f->work.chunks = kin_chunk_store_hold(o->chunks);
    }
    for (int i = 0; i < KIN_DOWNLOAD_PEERS_MAX; i++) f->swarm_of[i] = -1;
    f->work.user = f;
    uv_timer_init(loop, &f->timer);
    f->timer.data = f;
    f->n_held = 1;
    kick(f);
    begin_find(f);
    return 0;
}

void kin_fetch_cancel(kin_fetch *f) {
    if (!f) return;
    atomic_store(&f->work.stop, true);
    stop(f, KIN_FETCH_CANCELLED);
    uv_close((uv_handle_t *)&f->timer, on_fetch_timer_closed);
}

// ---- changes by the owner

void kin_fetch_set_windows(kin_fetch *f, const kin_windows *windows) {
    if (f->phase >= KIN_FETCH_FAILED) return;
    f->windows = *windows;
    f->share = (kin_share){0};
    f->most = UINT64_MAX;
    f->windows_changed = true;
    kick(f);
}

void kin_fetch_set_share(kin_fetch *f, const kin_share *share) {
    f->share = *share;
}

void kin_fetch_set_most(kin_fetch *f, uint64_t bytes) {
    f->most = bytes;
}

void kin_fetch_set_rate_limited(kin_fetch *f, bool is_gentle) {
    if (f->phase >= KIN_FETCH_FAILED || f->is_gentle == is_gentle) return;
    f->is_gentle = is_gentle;
    kin_download_peers_set_rate_limited(f->peers, is_gentle);
    kin_download_peers_tick_rates(f->peers);
    if (f->phase != KIN_FETCH_RESTING) kick(f);
}

void kin_fetch_have(kin_fetch *f, const kin_proto_have *have) {
    if (f->phase >= KIN_FETCH_FAILED || memcmp(&have->model, &f->work.model, sizeof f->work.model) != 0) return;
    int peer = kin_download_peers_know(f->peers, have);
    if (peer < 0 || f->phase == KIN_FETCH_RESTING) return;
    if (f->swarm && f->swarm_of[peer] >= 0 && have->n_chunks == f->bitmap.n_chunks) {
        kin_swarm_offers(f->swarm, f->swarm_of[peer], have->bitmap, kin_chunk_bitmap_bits(&f->bitmap));
    }
    kick(f);
}

void kin_fetch_gone(kin_fetch *f, const kin_proto_id *id) {
    int peer = f->phase < KIN_FETCH_FAILED ? kin_download_peers_find(f->peers, id) : -1;
    if (peer < 0) return;
    kin_download_peers_leave(f->peers, peer);
    if (f->swarm && f->swarm_of[peer] >= 0) kin_swarm_lost(f->swarm, f->swarm_of[peer]);
}

// ---- inspection

kin_fetch_stats kin_fetch_stats_now(const kin_fetch *f) {
    kin_fetch_stats stats = {.bytes_head = f->bytes_head,
                             .bytes_peers = f->bytes_peers,
                             .n_chunks = f->bitmap.n_chunks,
                             .n_wanted = f->bitmap.n_wanted,
                             .n_windows = f->n_windows,
                             .n_here = f->bitmap.n_wanted - f->bitmap.n_missing};
    if (f->peers) {
        stats.n_links = kin_download_peers_n_open(f->peers);
        stats.n_bad_peers = kin_download_peers_n_banned(f->peers);
    }
    return stats;
}
