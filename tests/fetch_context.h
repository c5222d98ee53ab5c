// A test environment for fetches and chunk servers: a head, devices and misbehaving link ends in one loop, with real links and
// a small model of random weights.
//
// Only for such tests; all functions assert through cmocka. One thread.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "fetch/chunk_server.h"
#include "fetch/fetch.h"
#include "fetch/manifest_transfer.h"
#include "model/manifest.h"
#include "model/model.h"
#include "model/ranges.h"
#include "net/listener.h"
#include "pure/proto/versions.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { TIMEOUT_MS = 30000, CHUNK = 64 << 10, MAX_DEVICES = 3, MAX_RAW = 8, N_LAYER = 6, N_PARTS = 3 };

static const uint8_t key[KIN_TLS_KEY_BYTES] = {7};

typedef struct context context;

// A head or a device, and a record of its callbacks.
typedef struct node {
    context *w;
    kin_proto_id id;
    kin_listener *listener;
    uint16_t port;
    kin_chunk_server *server;
    kin_fetch *fetch;
    char cache[128];
    kin_chunk_store *chunks;
    kin_windows windows;
    kin_share share; // the part of each layer that this device computes
    int n_opened, n_progress, n_have, n_headers, n_kept, n_first, n_done;
    uint32_t here_at_headers, here_at_first; // chunks present when the headers, or the first window, were complete
    uint64_t missing_bytes;                  // bytes of the whole model that were missing when the store was opened
    kin_fetch_progress progress;
    char reason[512];      // why the fetch failed
    const char *cancel_in; // name of the callback in which the fetch is cancelled; NULL: none
    bool pauses_head; // the head serves nothing from `opened` until bytes from another device, or a request to a fake, arrived
} node;

// An end of a link under the test's direct control, for misbehaving peers.
typedef struct raw {
    context *w;
    kin_link *link;
    bool is_accepted, is_closed;
    int n_frames, n_lack, n_data;
    char reason[512];
} raw;

struct context {
    uv_loop_t loop;
    uv_timer_t timer;
    kin_tls_ctx *tls;
    char folder[64];
    char path[N_PARTS][160];
    int n_files;
    kin_manifest manifest;
    uint64_t sizes[N_PARTS];
    node head, devices[MAX_DEVICES];
    raw raws[MAX_RAW];
    int n_raws;
    int n_asked_fake;                                  // GETs that fakes received
    bool spoils_hashes, spoils_sizes, is_mute, strays; // what fakes do wrong
    bool halves;                                       // they send half of each chunk, then close the link
    uint32_t chunk_bytes;
};

// ---- listening

static inline void serve_fake_get(raw *r, const uint8_t *payload, size_t n) {
    static uint8_t bytes[8 + CHUNK];
    kin_proto_get get;
    assert_int_equal(kin_proto_decode_get(payload, n, &get, NULL), 0);
    kin_proto_data data = {.i_chunk = get.i_chunk, .n_bytes = get.length, .bytes = bytes};
    size_t size = kin_proto_encode_data_head(bytes, sizeof bytes, &data);
    r->w->n_asked_fake++;
    if (r->w->is_mute) return;
    if (r->w->strays) bytes[0] ^= 1; // the number of another chunk
    assert_in_range(get.length, 1, CHUNK);
    if (r->w->halves) get.length /= 2;
    kin_link_send(r->link, KIN_FRAME_DATA, 0, 1, &(kin_frame_part){bytes, size + get.length});
    if (!r->w->halves) return;
    kin_link_close(r->link, "that is all");
    r->link = NULL;
}

static inline void serve_fake_hashes(raw *r) {
    static kin_proto_hashes m;
    static uint8_t bytes[1 << 16];
    kin_manifest_transfer_give(&m, &r->w->manifest, 0);
    if (r->w->spoils_sizes) m.file[0].size++;
    size_t n = kin_proto_encode_hashes(bytes, sizeof bytes, &m);
    if (r->w->spoils_hashes) bytes[n - 1] ^= 1;
    kin_link_send(r->link, KIN_FRAME_HASHES, 0, 1, &(kin_frame_part){bytes, n});
}

static inline void send_accept(kin_link *link, const kin_proto_id *id) {
    uint8_t bytes[256];
    kin_proto_accept accept = {.id = *id, .versions = KIN_PROTO_VERSIONS, .name = "test", .version = "1"};
    kin_link_send(link, KIN_FRAME_ACCEPT, 0, 1, &(kin_frame_part){bytes, kin_proto_encode_accept(bytes, sizeof bytes, &accept)});
}

static inline void on_open(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    node *n = user;
    kin_proto_open hello;
    assert_int_equal(frame->type, KIN_FRAME_OPEN);
    assert_int_equal(kin_proto_decode_open(payload, frame->length, &hello, NULL), 0);
    assert_int_equal(hello.role, KIN_PROTO_FETCH);
    send_accept(link, &n->id);
    kin_chunk_server_accept(n->server, link);
}

static inline void on_open_as_fake(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    raw *r = user;
    node *liar = &r->w->devices[MAX_DEVICES - 1];
    r->n_frames++;
    if (frame->type == KIN_FRAME_OPEN) send_accept(link, r->w->head.server ? &liar->id : &r->w->head.id);
    if (frame->type == KIN_FRAME_GET) serve_fake_get(r, payload, frame->length);
    if (frame->type == KIN_FRAME_HASHES_WANTED) serve_fake_hashes(r);
}

static inline void ignore_end(void *user, kin_link *link, const char *reason) {
    (void)user, (void)link, (void)reason;
}

static inline void forget_raw(void *user, kin_link *link, const char *reason) {
    raw *r = user;
    (void)link;
    r->link = NULL;
    r->is_closed = true;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
}

static inline void on_connection(void *user, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = on_open, .closed = ignore_end};
    kin_link_accept(link, &callbacks, user);
}

static inline void on_fake_connection(void *user, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = on_open_as_fake, .closed = forget_raw};
    context *w = ((node *)user)->w;
    assert_true(w->n_raws < MAX_RAW || w->halves);
    if (w->n_raws == MAX_RAW) {
        kin_link_close(link, "that was all");
        return;
    }
    raw *r = &w->raws[w->n_raws++];
    *r = (raw){.w = w, .link = link};
    kin_link_accept(link, &callbacks, r);
}

static inline void listen_with(node *n, uint16_t port, kin_listener_accepted accepted) {
    kin_listener_options o = kin_listener_options_default(n->w->tls);
    kin_err err;
    if (kin_listener_open(&n->listener, &n->w->loop, "127.0.0.1", port, &o, accepted, n, &err) != 0) fail_msg("%s", err.text);
    n->port = kin_listener_port(n->listener);
}
#define listen_with(...) FROM_TEST(listen_with(__VA_ARGS__))

static inline void open_chunk_server(node *n, uint16_t port) {
    kin_err err;
    assert_int_equal(kin_chunk_server_open(&n->server, &n->w->loop, NULL, &err), 0);
    kin_chunk_server_set_store(n->server, n->chunks);
    listen_with(n, port, on_connection);
}
#define open_chunk_server(...) FROM_TEST(open_chunk_server(__VA_ARGS__))

static inline void close_share(node *n) {
    kin_listener_close(n->listener);
    kin_chunk_server_close(n->server);
    n->listener = NULL;
    n->server = NULL;
}

// ---- the environment

static inline void make_model(context *w, const char *preset, bool is_split) {
    kin_model_spec spec;
    char prefix[128];
    kin_err err;
    assert_int_equal(kin_model_spec_preset(&spec, preset, &err), 0);
    spec.n_layer = N_LAYER;
    spec.mix = "f16";
    spec.rope_freqs = true;
    w->n_files = is_split ? N_PARTS : 1;
    snprintf(prefix, sizeof prefix, "%s/whole", w->folder);
    for (int i = 0; i < w->n_files; i++) {
        if (is_split)
            snprintf(w->path[i], sizeof w->path[i], "%s-%05d-of-%05d.gguf", prefix, i + 1, N_PARTS);
        else
            snprintf(w->path[i], sizeof w->path[i], "%s.gguf", prefix);
    }
    int rc = is_split ? kin_model_gen_split(&spec, prefix, N_PARTS, &err) : kin_model_gen(&spec, w->path[0], &err);
    if (rc != 0) fail_msg("%s", err.text);
    const char *paths[N_PARTS] = {w->path[0], w->path[1], w->path[2]};
    kin_manifest_options o = kin_manifest_options_defaults();
    o.chunk_bytes = w->chunk_bytes;
    if (kin_manifest_make(&w->manifest, paths, w->n_files, &o, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < w->n_files; i++) w->sizes[i] = w->manifest.files[i].size;
    kin_store *store;
    if (kin_store_open_files(&store, &w->manifest, paths, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_chunk_store_new(&w->head.chunks, &w->loop, store, &err), 0);
}

static inline void on_timer(uv_timer_t *timer) {
    context *w = timer->data;
    for (int i = 0; i < MAX_DEVICES; i++) {
        node *n = &w->devices[i];
        if (!n->pauses_head || !n->fetch || !n->n_opened) continue;
        if (kin_fetch_stats_now(n->fetch).bytes_peers == 0 && w->n_asked_fake == 0) continue;
        kin_chunk_server_set_store(w->head.server, w->head.chunks);
        n->pauses_head = false;
    }
}

static inline int open_context_of(void **state, const char *preset, uint32_t chunk_bytes, bool is_split) {
    context *w = calloc(1, sizeof *w);
    kin_err err;
    strcpy(w->folder, "/tmp/kin-test-fetch-XXXXXX");
    if (!mkdtemp(w->folder)) return -1;
    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, on_timer, 5, 5);
    assert_int_equal(kin_tls_ctx_open(&w->tls, key, &err), 0);
    w->head.w = w;
    w->head.id.bytes[0] = 100;
    w->chunk_bytes = chunk_bytes;
    make_model(w, preset, is_split);
    open_chunk_server(&w->head, 0);
    for (int i = 0; i < MAX_DEVICES; i++) {
        node *n = &w->devices[i];
        n->w = w;
        n->id.bytes[0] = (uint8_t)(i + 1);
        snprintf(n->cache, sizeof n->cache, "%s/cache-%d", w->folder, i);
    }
    *state = w;
    return 0;
}
#define open_context_of(...) FROM_TEST(open_context_of(__VA_ARGS__))

static inline int open_context(void **state) {
    return open_context_of(state, "tiny", CHUNK, false);
}

static inline int open_split_context(void **state) {
    return open_context_of(state, "tiny", CHUNK, true);
}

static inline int open_large_context(void **state) {
    return open_context_of(state, "25m", KIN_CHUNK_BYTES, false);
}

static inline void close_node(node *n) {
    kin_fetch_cancel(n->fetch);
    n->fetch = NULL;
    close_share(n);
    kin_chunk_store_release(n->chunks);
    n->chunks = NULL;
}

static inline void remove_store(const node *n) {
    static const char *const names[] = {"manifest",
                                        "chunks",
                                        "checked",
                                        "model.gguf",
                                        "model-00001-of-00003.gguf",
                                        "model-00002-of-00003.gguf",
                                        "model-00003-of-00003.gguf"};
    char folder[256], path[512];
    snprintf(folder, sizeof folder, "%s/models/%.16s", n->cache, kin_hash_to_hex(n->w->manifest.hash).text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    snprintf(path, sizeof path, "%s/models", n->cache);
    rmdir(path);
    rmdir(n->cache);
}

static inline int close_context(void **state) {
    context *w = *state;
    close_node(&w->head);
    for (int i = 0; i < MAX_DEVICES; i++) close_node(&w->devices[i]);
    for (int i = 0; i < w->n_raws; i++) kin_link_close(w->raws[i].link, NULL);
    uv_close((uv_handle_t *)&w->timer, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    kin_tls_ctx_close(w->tls);
    for (int i = 0; i < MAX_DEVICES; i++) remove_store(&w->devices[i]);
    for (int i = 0; i < w->n_files; i++) unlink(w->path[i]);
    kin_manifest_fini(&w->manifest);
    int rc = rmdir(w->folder);
    free(w);
    return rc;
}

#define RUN_UNTIL(w, condition)                                                                                                  \
    do {                                                                                                                         \
        kin_time limit_ = kin_clock_now() + (kin_time)TIMEOUT_MS * 1000000;                                                      \
        while (!(condition)) {                                                                                                   \
            if (kin_clock_now() > limit_) fail_msg("it never came: %s", #condition);                                             \
            uv_run(&(w)->loop, UV_RUN_ONCE);                                                                                     \
        }                                                                                                                        \
    } while (0)

static inline void run_for(context *w, uint64_t ms) {
    kin_time end = kin_clock_now() + ms * 1000000;
    RUN_UNTIL(w, kin_clock_now() >= end);
}
#define run_for(...) FROM_TEST(run_for(__VA_ARGS__))

// ---- fetching

static inline bool cancels(node *n, const char *callback) {
    if (!n->cancel_in || strcmp(n->cancel_in, callback) != 0) return false;
    kin_fetch_cancel(n->fetch);
    n->fetch = NULL;
    return true;
}

static inline void on_opened(void *user, kin_chunk_store *chunks) {
    node *n = user;
    const kin_manifest *m = &n->w->manifest;
    n->n_opened++;
    kin_chunk_store_release(n->chunks);
    n->chunks = kin_chunk_store_hold(chunks);
    if (n->server) kin_chunk_server_set_store(n->server, chunks);
    n->missing_bytes = kin_manifest_total(m);
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        if (kin_store_has(kin_chunk_store_store(chunks), i)) n->missing_bytes -= kin_manifest_chunk(m, i).bytes;
    }
    if (n->pauses_head) kin_chunk_server_set_store(n->w->head.server, NULL);
    cancels(n, "opened");
}

static inline void on_progress(void *user, const kin_fetch_progress *progress) {
    node *n = user;
    n->n_progress++;
    n->progress = *progress;
    assert_true(progress->sent.done <= progress->sent.total);
    cancels(n, "progress");
}

static inline void tell(const node *to, kin_proto_have *have, const node *from) {
    have->id = from->id;
    have->endpoint = (kin_proto_endpoint){.port = from->port, .n_addresses = 1, .address = {"127.0.0.1"}};
    if (to->fetch) kin_fetch_have(to->fetch, have);
}

static inline void on_have(void *user, const kin_proto_have *have) {
    node *n = user;
    n->n_have++;
    assert_memory_equal(&have->id, &n->id, sizeof n->id);
    assert_int_equal(have->n_chunks, n->w->manifest.n_chunks);
    kin_proto_have passed_on = *have;
    for (int i = 0; i < MAX_DEVICES && n->listener; i++) tell(&n->w->devices[i], &passed_on, n);
    cancels(n, "have");
}

static inline void on_headers(void *user) {
    node *n = user;
    n->n_headers++;
    n->here_at_headers = kin_fetch_stats_now(n->fetch).n_here;
    cancels(n, "headers");
}

static inline void on_kept_one(void *user) {
    node *n = user;
    n->n_kept++;
    cancels(n, "kept");
}

static inline void on_first_window(void *user) {
    node *n = user;
    n->n_first++;
    n->here_at_first = kin_fetch_stats_now(n->fetch).n_here;
    cancels(n, "first window");
}

static inline void on_done(void *user) {
    node *n = user;
    n->n_done++;
    kin_fetch_stats s = kin_fetch_stats_now(n->fetch);
    assert_int_equal(s.n_here, s.n_wanted);
    cancels(n, "done");
}

static inline void on_failed(void *user, const char *reason) {
    node *n = user;
    snprintf(n->reason, sizeof n->reason, "%s", reason);
    cancels(n, "failed");
}

static inline kin_fetch_options options_of(node *n) {
    kin_fetch_options o = kin_fetch_options_default(n->w->tls);
    o.id = n->id;
    o.name = "device";
    o.version = "1";
    o.cache_dir = n->cache;
    memcpy(o.model.bytes, n->w->manifest.hash, sizeof o.model.bytes);
    o.n_files = n->w->n_files;
    o.file_sizes = n->w->sizes;
    o.head_address = "127.0.0.1";
    o.head_port = n->w->head.port;
    o.head_id = n->w->head.id;
    o.windows = &n->windows;
    return o;
}

static inline void start_with(node *n, const kin_fetch_options *o) {
    static const kin_fetch_callbacks callbacks = {on_opened,   on_progress,     on_have, on_headers,
                                                  on_kept_one, on_first_window, on_done, on_failed};
    kin_err err;
    n->n_opened = n->n_progress = n->n_have = n->n_headers = n->n_kept = n->n_first = n->n_done = 0;
    n->reason[0] = '\0';
    assert_int_equal(kin_fetch_start(&n->fetch, &n->w->loop, o, &callbacks, n, &err), 0);
    kin_fetch_set_share(n->fetch, &n->share);
}
#define start_with(...) FROM_TEST(start_with(__VA_ARGS__))

static inline void start(node *n) {
    kin_fetch_options o = options_of(n);
    start_with(n, &o);
}
#define start(...) FROM_TEST(start(__VA_ARGS__))

static inline kin_windows two_windows(int begin, int end, int begin2, int end2) {
    return (kin_windows){.n = 2, .at = {{begin, end, 0, 0}, {begin2, end2, 0, 0}}};
}

static inline void end_fetch(node *n) {
    kin_fetch_cancel(n->fetch);
    n->fetch = NULL;
    if (n->server) kin_chunk_server_set_store(n->server, NULL);
    kin_chunk_store_release(n->chunks);
    n->chunks = NULL;
}

static inline void announce_bits(node *to, const node *from, const uint8_t *bits) {
    kin_proto_have have = {.n_chunks = to->w->manifest.n_chunks, .bitmap = bits};
    memcpy(have.model.bytes, to->w->manifest.hash, sizeof have.model.bytes);
    tell(to, &have, from);
}

// Tells `to` which chunks are in the store of `from`.
static inline void announce_store(node *to, const node *from) {
    uint8_t bits[64];
    assert_true(to->w->manifest.n_chunks <= 8 * sizeof bits);
    kin_store_bitmap(kin_chunk_store_store(from->chunks), bits);
    announce_bits(to, from, bits);
}
#define announce_store(...) FROM_TEST(announce_store(__VA_ARGS__))

// Tells `to` that `from` has all chunks.
static inline void announce_all(node *to, const node *from) {
    uint8_t bits[64];
    memset(bits, 0xff, sizeof bits);
    assert_true(to->w->manifest.n_chunks <= 8 * sizeof bits);
    announce_bits(to, from, bits);
}
#define announce_all(...) FROM_TEST(announce_all(__VA_ARGS__))

// ---- what a device must have

static inline void mark_needed(const context *w, const kin_gguf *gguf, const kin_ranges_wanted *wanted, bool *needed) {
    kin_range *ranges;
    uint32_t *chunks;
    size_t n_ranges, n;
    kin_err err;
    if (kin_ranges_list(gguf, wanted, &ranges, &n_ranges, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_ranges_chunks(&w->manifest, ranges, n_ranges, &chunks, &n, &err), 0);
    for (size_t i = 0; i < n; i++) needed[chunks[i]] = true;
    free(chunks);
    free(ranges);
}

static inline bool *needed_by(const node *n) {
    const context *w = n->w;
    bool *needed = calloc(w->manifest.n_chunks, sizeof *needed);
    kin_model model;
    kin_err err;
    if (kin_model_open(&model, w->path[0], &err) != 0) fail_msg("%s", err.text);
    kin_ranges_wanted wanted = {.header = true};
    mark_needed(w, model.gguf, &wanted, needed);
    wanted = (kin_ranges_wanted){.slices = kin_share_slices(&n->share, &model)};
    for (int i = 0; i < n->windows.n; i++) {
        wanted.layer_begin = n->windows.at[i].layer_begin;
        wanted.layer_end = n->windows.at[i].layer_end;
        mark_needed(w, model.gguf, &wanted, needed);
    }
    kin_model_close(&model);
    return needed;
}

static inline uint64_t bytes_needed_by(const node *n) {
    bool *needed = needed_by(n);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n->w->manifest.n_chunks; i++) sum += needed[i] ? kin_manifest_chunk(&n->w->manifest, i).bytes : 0;
    free(needed);
    return sum;
}
#define bytes_needed_by(...) FROM_TEST(bytes_needed_by(__VA_ARGS__))

static inline bool is_right(kin_store *store, uint32_t i_chunk) {
    uint32_t n = kin_manifest_chunk(kin_store_manifest(store), i_chunk).bytes;
    uint8_t *bytes = malloc(n);
    bool is = kin_store_read(store, i_chunk, 0, bytes, n, NULL) == 0 &&
              kin_manifest_check_chunk(kin_store_manifest(store), i_chunk, bytes, n, NULL) == KIN_CHUNK_RIGHT;
    free(bytes);
    return is;
}

static inline void expect_needed_chunks(const node *n, bool exactly) {
    bool *needed = needed_by(n);
    kin_store *store = kin_chunk_store_store(n->chunks);
    int n_beyond = 0;
    for (uint32_t i = 0; i < n->w->manifest.n_chunks; i++) {
        if (needed[i] && !kin_store_has(store, i)) fail_msg("chunk %u is not there", (unsigned)i);
        if (needed[i] && !is_right(store, i)) fail_msg("chunk %u is wrong", (unsigned)i);
        n_beyond += !needed[i] && kin_store_has(store, i);
    }
    free(needed);
    if (exactly) assert_int_equal(n_beyond, 0);
}
#define expect_needed_chunks(...) FROM_TEST(expect_needed_chunks(__VA_ARGS__))

static inline void expect_same_slice(const kin_slice *slice, const kin_gguf_tensor *a, const kin_gguf_tensor *b) {
    kin_slice_view v = kin_slice_view_of(slice, a);
    for (uint64_t k = 0; k < v.n_runs; k++) {
        uint64_t at = v.first + k * v.stride;
        assert_memory_equal((const uint8_t *)a->data + at, (const uint8_t *)b->data + at, v.run);
    }
}

// Asserts that the model opens from the store and that its layers, or this device's share of them, equal the original's.
static inline void expect_layers(const node *n) {
    kin_model whole, ours;
    kin_err err;
    if (kin_model_open(&whole, n->w->path[0], &err) != 0) fail_msg("%s", err.text);
    if (kin_model_open(&ours, kin_store_path(kin_chunk_store_store(n->chunks), 0), &err) != 0) fail_msg("%s", err.text);
    kin_slices slices = kin_share_slices(&n->share, &whole);
    for (int i = 0; i < n->windows.n; i++) {
        for (int il = n->windows.at[i].layer_begin; il < n->windows.at[i].layer_end; il++) {
            for (int k = 0; k < KIN_W_COUNT; k++) {
                const kin_gguf_tensor *a = whole.layers[il].w[k], *b = ours.layers[il].w[k];
                assert_int_equal(!a, !b);
                if (a) expect_same_slice(&slices.of[k], a, b);
            }
        }
    }
    kin_model_close(&ours);
    kin_model_close(&whole);
}
#define expect_layers(...) FROM_TEST(expect_layers(__VA_ARGS__))

static inline void expect_done(node *n) {
    RUN_UNTIL(n->w, n->n_done > 0 || n->reason[0]);
    if (n->reason[0]) fail_msg("%s", n->reason);
    expect_needed_chunks(n, false);
    expect_layers(n);
}
#define expect_done(...) FROM_TEST(expect_done(__VA_ARGS__))

static inline void expect_failed(node *n, const char *words) {
    RUN_UNTIL(n->w, n->n_done > 0 || n->reason[0]);
    if (!strstr(n->reason, words)) fail_msg("'%s' does not say '%s'", n->reason, words);
    assert_int_equal(n->n_done, 0);
}
#define expect_failed(...) FROM_TEST(expect_failed(__VA_ARGS__))

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
