// A head and a device among hostile peers that have the key: every message at every moment, wrong epochs, steps with impossible
// numbers, missing answers, half frames. Nothing may crash or hang, and afterwards everything works as before.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/endpoint.h"
#include "net/listener.h"
#include "pipeline/engine_instance.h"
#include "pipeline/loopback.h"
#include "pipeline/neighbours.h"
#include "pure/proto/id.h"
#include "testkit/head_eval.h"
#include "tests/null_malloc.h" // a plan may ask for more memory than there is; that must fail cleanly
#include "tests/small_cluster.h"

enum {
    N_ROUNDS = 2,
    N_IDS = 8,
    DEVICE_ID = 99,
    TIMEOUT_MS = 40000,
};

static const int32_t ids[N_IDS] = {1, 50, 60, 70, 80, 90, 100, 110};
static float want[N_IDS * N_VOCAB];

static void one_machine(void **state) {
    (void)state;
    kin_shard_options so = small_shard();
    kin_shard *shard;
    kin_loopback_head alone;
    kin_err err;
    assert_int_equal(kin_shard_open(&shard, &model, &devices, &so, &err), 0);
    assert_int_equal(kin_loopback_head_open(&alone, &model, shard, N_BATCH, &err), 0);
    assert_int_equal(kin_head_eval(alone.head, 0, 0, ids, N_IDS, want, N_IDS, &err), 0);
    kin_loopback_head_close(&alone);
    kin_shard_close(shard);
}

// ---- impossible steps, without a network

static kin_proto_plan plan_of_all(int n_ctx, int n_batch) {
    kin_proto_plan p = {
        .n_files = 1, .file_size = {manifest.files[0].size}, .n_ctx = (uint32_t)n_ctx, .n_seq = 4, .n_threads = 1};
    memcpy(p.model.bytes, manifest.hash, sizeof p.model.bytes);
    p.n_batch = (uint32_t)n_batch;
    p.n_rounds = N_ROUNDS;
    p.n_windows = 2;
    p.window[0] = (kin_proto_window){0, 0, 2, 0, 0};
    p.window[1] = (kin_proto_window){1, 2, N_LAYER, 0, 0};
    return p;
}

typedef struct desk { // an engine instance, and its buffers
    kin_message_pool *pool;
    kin_engine_instance *instance;
} desk;

static desk open_desk(const kin_proto_plan *plan) {
    desk d;
    kin_err err;
    assert_int_equal(kin_message_pool_open(&d.pool, 4, &err), 0);
    kin_engine_instance_options o = {.model_path = model_path, .n_threads = 1, .pool = d.pool};
    if (kin_engine_instance_open(&d.instance, plan, &o, &err) != 0) fail_msg("%s", err.text);
    return d;
}
#define open_desk(...) FROM_TEST(open_desk(__VA_ARGS__))

static void close_desk(desk *d) {
    kin_engine_instance_close(d->instance);
    kin_message_pool_close(d->pool);
}

// Rows of hidden states. give_rows wants the first n_out tokens' rows, and sends positions in round 0.
static float given[N_BATCH * N_EMBD];

static int give_rows(desk *d, uint64_t step, int round, int n_tokens, int n_out, int n_rows, kin_err *err) {
    const float *x = given;
    int32_t pos[N_BATCH];
    for (int i = 0; i < N_BATCH; i++) pos[i] = i;
    kin_steps s = {.n_embd = N_EMBD, .n_batch = N_BATCH, .n_seq = 4, .n_rounds = N_ROUNDS};
    kin_batch batch = {.n_tokens = n_tokens, .pos = pos, .out = n_out < n_tokens ? pos : NULL, .n_out = n_out};
    kin_hop hop = {.step = step, .round = round, .n_rows = n_rows};
    kin_message_buffer *buffer = kin_steps_pack(&s, d->pool, 1, &hop, &batch, x);
    assert_non_null(buffer);
    err->text[0] = '\0';
    int rc = kin_worker_handle(kin_engine_instance_worker(d->instance), &buffer, err);
    kin_message_pool_give(d->pool, buffer);
    return rc;
}
#define give_rows(...) FROM_TEST(give_rows(__VA_ARGS__))

static int give_step(desk *d, uint64_t step, int round, int n_tokens, kin_err *err) {
    return give_rows(d, step, round, n_tokens, n_tokens, n_tokens, err);
}
#define give_step(...) FROM_TEST(give_step(__VA_ARGS__))

static void a_step_with_other_rows_than_it_has_is_refused(void **state) {
    (void)state;
    kin_err err;
    kin_proto_plan plan = plan_of_all(N_CTX, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_rows(&d, 1, 0, N_BATCH, 1, N_BATCH, &err), 0);
    assert_int_equal(give_rows(&d, 1, 1, N_BATCH, 1, 1, &err), KIN_FAIL); // a frame of one row, for a step of sixteen
    assert_string_equal(err.text, "step 1 arrived with 1 rows, but has 16 tokens");
    assert_int_equal(give_step(&d, 2, 0, 1, &err), 0); // the failed step has no effect
    assert_int_equal(give_step(&d, 2, 1, 1, &err), 0);
    close_desk(&d);
}

static void a_step_that_has_other_tokens_in_a_later_round_is_refused(void **state) {
    (void)state;
    kin_err err;
    kin_proto_plan plan = plan_of_all(N_CTX, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_step(&d, 1, 0, N_BATCH, &err), 0);
    assert_int_equal(give_step(&d, 1, 1, 1, &err), KIN_FAIL);
    assert_string_equal(err.text, "step 1 arrived with 1 tokens and 1 outputs; it began with 16 and 16");
    assert_int_equal(give_step(&d, 1, 1, N_BATCH, &err), KIN_FAIL); // it is over
    assert_non_null(strstr(err.text, "without positions"));
    assert_int_equal(give_step(&d, 2, 0, 2, &err), 0);
    assert_int_equal(give_step(&d, 2, 1, 2, &err), 0);
    close_desk(&d);
}

static void a_step_that_is_not_due_is_refused(void **state) {
    (void)state;
    static const uint64_t wrong[] = {9, 8, 11, 0, UINT64_MAX};
    kin_err err;
    kin_proto_plan plan = plan_of_all(N_CTX, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_step(&d, 9, 0, 1, &err), 0); // the first step of an epoch may have any number
    assert_int_equal(give_step(&d, 9, 1, 1, &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(give_step(&d, wrong[i], 0, 1, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "arrived, but step 10 is due"));
        assert_true(kin_engine_instance_got_wrong(d.instance));
    }
    close_desk(&d);
}

static void a_step_in_a_round_that_is_not_due_is_refused(void **state) {
    (void)state;
    kin_err err;
    kin_proto_plan plan = plan_of_all(N_CTX, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_step(&d, 1, 0, 2, &err), 0);
    assert_int_equal(give_step(&d, 1, 1, 2, &err), 0);
    assert_int_equal(give_step(&d, 1, 1, 2, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "without positions"));
    plan.n_rounds = 3;
    close_desk(&d);
    d = open_desk(&plan);
    assert_int_equal(give_step(&d, 1, 0, 2, &err), 0);
    plan.n_rounds = N_ROUNDS;
    assert_int_equal(give_step(&d, 1, 1, 2, &err), 0);
    assert_int_equal(give_step(&d, 1, 1, 2, &err), KIN_FAIL);
    assert_string_equal(err.text, "step 1 arrived in round 1, but round 2 is due");
    close_desk(&d);
}

static void what_came_wrongly_is_told_from_what_was_computed_wrongly(void **state) {
    (void)state;
    kin_err err;
    kin_proto_plan plan = plan_of_all(N_CTX, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_rows(&d, 1, 0, 2, 1, 2, &err), 0);
    assert_false(kin_engine_instance_got_wrong(d.instance));
    assert_int_equal(give_rows(&d, 1, 1, 2, 1, 1, &err), KIN_FAIL);
    assert_true(kin_engine_instance_got_wrong(d.instance));
    given[5] = NAN;
    assert_int_equal(give_step(&d, 2, 0, 2, &err), KIN_FAIL);
    assert_string_equal(err.text, "hidden states that are not finite");
    assert_true(kin_engine_instance_got_wrong(d.instance));
    given[5] = 0;
    assert_int_equal(give_step(&d, 3, 0, 1, &err), 0); // it still works
    assert_false(kin_engine_instance_got_wrong(d.instance));
    close_desk(&d);
}

static void a_plan_with_batches_beyond_its_context_is_cut(void **state) {
    (void)state;
    kin_err err;
    kin_proto_plan plan = plan_of_all(4, N_BATCH);
    desk d = open_desk(&plan);
    assert_int_equal(give_step(&d, 1, 0, 5, &err), KIN_FAIL);
    assert_string_equal(err.text, "a step of 5 tokens, but the plan allows 4");
    assert_int_equal(give_step(&d, 2, 0, 4, &err), 0);
    close_desk(&d);
}

#include "tests/hostile_peer.inc"
#include "tests/place.h"

// ---- honest peers

static void open_device(device *d, uint16_t head_port) {
    kin_join_options o = device_with_model(DEVICE_ID, "anna", head_port);
    start_device(d, &o, NULL);
}
#define open_device(...) FROM_TEST(open_device(__VA_ARGS__))

// Lets links be measured, and the planner be asked after every request.
static const kin_device_facts facts = {.memory_bytes = 1e9};

static bool wants_again(kin_planner *user, const kin_planner_measured *m) {
    (void)user;
    return m->n > 0;
}

static atomic_bool is_told; // the planner knows that a device cannot stream slices, and that the head can

static int plan_and_look(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    if (q->n == 2 && q->facts.devices[1].no_slices && !q->facts.devices[0].no_slices) atomic_store(&is_told, true);
    return plan_two_rounds(user, q, out, err);
}

static kin_cluster *open_cluster(uint16_t port, atomic_bool *stop) {
    kin_cluster_options o = cluster_options(1);
    o.port = port;
    o.facts = &facts;
    o.calls.ask = plan_and_look;
    o.calls.add_measured = wants_again;
    o.stop = stop;
    return open_small_cluster(&o);
}
#define open_cluster(...) FROM_TEST(open_cluster(__VA_ARGS__))

static int ask(kin_cluster *c, float *logits, kin_err *err) {
    if (kin_cluster_begin(c, err) != 0) return KIN_FAIL;
    kin_head *head = kin_cluster_head(c);
    kin_head_set_chunk(head, N_BATCH);
    kin_head_clear(head);
    int rc = kin_head_eval(head, 0, 0, ids, N_IDS, logits, N_IDS, err);
    kin_cluster_end(c);
    return rc;
}

// With an honest device the ring works, with the bits of one machine.
static void expect_service(kin_cluster *c) {
    static float got[N_IDS * N_VOCAB];
    kin_err err = {""};
    kin_time begun = kin_clock_now();
    int rc = KIN_FAIL;
    while ((rc != 0 || kin_cluster_n_members(c) < 2) && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS)
        rc = ask(c, got, &err); // at first perhaps without the device, which returns late to a head that it has lost
    if (rc != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_cluster_n_members(c), 2);
    assert_memory_equal(got, want, sizeof got);
}
#define expect_service(...) FROM_TEST(expect_service(__VA_ARGS__))

static void a_head_outlives_hostile_devices(void **state) {
    (void)state;
    static float logits[N_IDS * N_VOCAB];
    static hostile_peer v;
    device d;
    atomic_bool stop = false;
    kin_cluster *c = open_cluster(0, &stop);
    v = (hostile_peer){.target = kin_cluster_port(c), .victim = {{100}}, .seed = 1000, .stop = &stop};
    open_villain(&v);
    int n_good = 0, n_bad = 0;
    while (!atomic_load(&stop)) {
        kin_err err = {""};
        bool good = ask(c, logits, &err) == 0;
        n_good += good;
        n_bad += !good;
        assert_true(good || err.text[0]);
    }
    join_villain(&v);
    print_message("%d requests were answered, %d ended with a sentence\n", n_good, n_bad);
    atomic_store(&stop, false);
    open_device(&d, kin_cluster_port(c));
    expect_service(c);
    close_device(&d);
    kin_cluster_close(c);
}

static void a_device_outlives_hostile_heads(void **state) {
    (void)state;
    static hostile_peer v;
    device d;
    v = (hostile_peer){.is_head = true, .victim = {{DEVICE_ID}}, .seed = 2000};
    open_villain(&v);
    open_device(&d, v.port);
    join_villain(&v);
    atomic_bool stop = false;
    kin_cluster *c = open_cluster(v.port, &stop);
    expect_service(c);
    kin_cluster_close(c);
    close_device(&d);
}

static void the_planner_is_told_of_a_device_without_a_cache(void **state) {
    (void)state;
    device d;
    atomic_bool stop = false;
    atomic_store(&is_told, false);
    kin_cluster *c = open_cluster(0, &stop);
    open_device(&d, kin_cluster_port(c)); // no_cache
    expect_service(c);
    assert_true(atomic_load(&is_told));
    close_device(&d);
    kin_cluster_close(c);
}

// ---- silence

static void *stop_soon(void *stop) {
    usleep(1500000);
    atomic_store((atomic_bool *)stop, true);
    return NULL;
}

static void a_device_that_never_answers_does_not_prevent_stopping(void **state) {
    (void)state;
    static float logits[N_IDS * N_VOCAB];
    static hostile_peer v;
    device d;
    pthread_t thread;
    kin_err err = {""};
    atomic_bool stop = false;
    kin_cluster *c = open_cluster(0, &stop);
    v = (hostile_peer){.target = kin_cluster_port(c), .victim = {{100}}, .is_mute = true};
    open_villain(&v);
    assert_int_equal(kin_cluster_begin(c, &err), 0);
    while (kin_cluster_n_members(c) < 2) { // it may have started without the device
        kin_cluster_end(c);
        usleep(100000);
        assert_int_equal(kin_cluster_begin(c, &err), 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, &stop), 0);
    assert_int_equal(kin_head_eval(kin_cluster_head(c), 0, 0, ids, N_IDS, logits, N_IDS, &err), KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    kin_cluster_end(c);
    pthread_join(thread, NULL);
    atomic_store(&stop, false);
    atomic_store(&v.leaves, true);
    join_villain(&v);
    open_device(&d, kin_cluster_port(c));
    expect_service(c);
    close_device(&d);
    kin_cluster_close(c);
}

static void flush_tls(int fd, kin_tls *tls) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(tls, &n);
    if (n > 0) assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    kin_tls_output_done(tls);
}

// Connects with the key, sends OPEN and then these bytes, and nothing else. Returns after the head has closed the connection: the
// plain bytes received, as many as fit // u8 [cap]
static size_t send_after_open(uint16_t port, kin_proto_role role, const uint8_t *said, size_t n_said, uint8_t *heard,
                              size_t cap) {
    static kin_proto_message open;
    uint8_t bytes[4096];
    size_t n_heard = 0, n_read;
    kin_err err;
    kin_tls_ctx *ctx;
    kin_tls *tls;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(kin_tls_ctx_open(&ctx, key.bytes, &err), 0);
    assert_int_equal(kin_tls_open(&tls, ctx, true, &err), 0);
    flush_tls(fd, tls);
    ssize_t got = 0;
    while (kin_tls_state_now(tls) != KIN_TLS_OPEN && (got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        assert_int_equal(kin_tls_feed(tls, bytes, (size_t)got, &err), 0);
        flush_tls(fd, tls);
    }
    open.type = KIN_FRAME_OPEN;
    open.open.role = role;
    open.open.id.bytes[0] = 77;
    open.open.versions = KIN_PROTO_VERSIONS;
    kin_label_set(open.open.version, KIN_PROTO_MAX_STR, "test");
    assert_int_equal(kin_tls_write(tls, bytes, kin_proto_encode(bytes, sizeof bytes, 1, &open), &err), 0);
    assert_int_equal(kin_tls_write(tls, said, n_said, &err), 0);
    flush_tls(fd, tls);
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        if (kin_tls_feed(tls, bytes, (size_t)got, &err) != 0) break;
        while (n_heard < cap && kin_tls_read(tls, heard + n_heard, cap - n_heard, &n_read, &err) == 0 && n_read > 0)
            n_heard += n_read;
    }
    kin_tls_close(tls);
    kin_tls_ctx_close(ctx);
    close(fd);
    return n_heard;
}
#define send_after_open(...) FROM_TEST(send_after_open(__VA_ARGS__))

// Sends the first `n` bytes of DEVICE.
static void send_half(uint16_t port, kin_proto_role role, size_t n) {
    static kin_proto_message facts;
    uint8_t bytes[4096], heard[4096];
    facts.type = KIN_FRAME_DEVICE;
    facts.device.n_threads = facts.device.endpoint.port = 1;
    assert_true(n < kin_proto_encode(bytes, sizeof bytes, 1, &facts));
    send_after_open(port, role, bytes, n, heard, sizeof heard);
}
#define send_half(...) FROM_TEST(send_half(__VA_ARGS__))

static bool is_in(const uint8_t *bytes, size_t n, const char *words) {
    return memmem(bytes, n, words, strlen(words)) != NULL;
}

// Returns the first chunk that has only bytes of the embedding, or of the output.
static uint32_t first_private(const kin_gguf_tensor *t) {
    uint32_t begin, end, size = manifest.chunk_bytes;
    kin_err err;
    uint64_t at = (t->offset + size - 1) / size * size;
    assert_true(at + size <= t->offset + t->n_bytes);
    assert_int_equal(kin_manifest_chunks_of_range(&manifest, 0, at, size, &begin, &end, &err), 0);
    return begin;
}
#define first_private(...) FROM_TEST(first_private(__VA_ARGS__))

static void embedding_and_output_layer_are_given_to_no_device(void **state) {
    (void)state;
    static uint8_t heard[1 << 16];
    uint8_t bytes[256];
    atomic_bool stop = false;
    device d;
    kin_cluster *c = open_cluster(0, &stop);
    const kin_gguf_tensor *of[] = {model.token_embd, model.output};
    for (int i = 0; i < 2; i++) {
        kin_proto_message get = {.type = KIN_FRAME_GET, .get = {.i_chunk = first_private(of[i]), .length = 1000}};
        memcpy(get.get.model.bytes, manifest.hash, sizeof get.get.model.bytes);
        size_t n_said = kin_proto_encode(bytes, sizeof bytes, 0, &get);
        size_t n = send_after_open(kin_cluster_port(c), KIN_PROTO_FETCH, bytes, n_said, heard, sizeof heard);
        assert_true(n < 1000);
        assert_true(is_in(heard, n, "those stay on the head"));
    }
    open_device(&d, kin_cluster_port(c));
    expect_service(c);
    close_device(&d);
    kin_cluster_close(c);
}

static void half_a_frame_ends_its_link_only(void **state) {
    (void)state;
    atomic_bool stop = false;
    device d;
    kin_cluster *c = open_cluster(0, &stop);
    open_device(&d, kin_cluster_port(c));
    expect_service(c);
    send_half(kin_cluster_port(c), KIN_PROTO_CONTROL, 9);
    send_half(kin_cluster_port(c), KIN_PROTO_CONTROL, 40);
    send_half(kin_cluster_port(c), KIN_PROTO_FETCH, 20);
    send_half(kin_cluster_port(c), KIN_PROTO_RING, 20);
    expect_service(c);
    close_device(&d);
    kin_cluster_close(c);
}

// ---- a slow network

static void on_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    (void)epoch, (void)reason;
    if (side == KIN_SIDE_NEXT) atomic_store((atomic_int *)user, is_open ? 1 : -1);
}

static kin_endpoint *slow_endpoint;
static kin_neighbours *slow_neighbours;
static kin_proto_endpoint slow_address;
static const kin_proto_id slow_id = {{2}};
enum { LARGE = 4 << 20 };

static void begin_slow(void *arg) {
    (void)arg;
    kin_neighbours_enter(slow_neighbours, &(kin_ring_place){.epoch = 5, .frame_max = LARGE, .who = {slow_id}});
    kin_neighbours_connect(slow_neighbours, KIN_SIDE_NEXT, &slow_address, NULL);
}

static void end_slow(void *arg) {
    (void)arg;
    kin_neighbours_close(slow_neighbours, "over");
}

static void frame_counted(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    tie *t = user;
    (void)payload;
    if (frame->type == KIN_FRAME_OPEN) {
        kin_proto_message m = {.type = KIN_FRAME_ACCEPT, .accept = {.id = slow_id, .versions = KIN_PROTO_VERSIONS}};
        kin_link_set_frame_max(link, LARGE);
        kin_endpoint_send_message(link, 0, &m);
    }
    t->v->n_heard += frame->type == KIN_FRAME_STEP;
}

static void slow_accepted(void *user, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = frame_counted, .closed = tie_closed};
    hostile_peer *v = user;
    v->ties[0] = (tie){.v = v, .link = link};
    kin_link_accept(link, &callbacks, &v->ties[0]);
}

static void all_steps_may_wait_for_a_slow_link(void **state) {
    (void)state;
    static hostile_peer v;
    static atomic_int open;
    static const kin_endpoint_callbacks callbacks = {0};
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_err err;
    v = (hostile_peer){0};
    uv_loop_init(&v.loop);
    assert_int_equal(kin_tls_ctx_open(&v.tls, key.bytes, &err), 0);
    kin_listener_options lo = kin_listener_options_default(v.tls);
    assert_int_equal(kin_listener_open(&v.listener, &v.loop, "127.0.0.1", 0, &lo, slow_accepted, &v, &err), 0);
    slow_address = (kin_proto_endpoint){kin_listener_port(v.listener), 1, {"127.0.0.1"}};
    assert_int_equal(kin_message_pool_open(&pool, KIN_STEPS_IN_FLIGHT, &err), 0);
    assert_int_equal(kin_message_queue_open(&in, &err), 0);
    kin_endpoint_options so = {.id = {{1}}, .name = "a", .version = "test", .key = key, .listen = "127.0.0.1"};
    assert_int_equal(kin_endpoint_open(&slow_endpoint, &so, &callbacks, NULL, &err), 0);
    kin_neighbours_options no = {.endpoint = slow_endpoint, .pool = pool, .in = in};
    assert_int_equal(kin_neighbours_open(&slow_neighbours, &no, on_hop, &open, &err), 0);
    assert_int_equal(kin_endpoint_start(slow_endpoint, begin_slow, NULL, &err), 0);
    while (!atomic_load(&open)) uv_run(&v.loop, UV_RUN_NOWAIT);
    assert_int_equal(atomic_load(&open), 1);
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) {
        kin_message_buffer *buffer = kin_message_pool_get(pool, LARGE);
        assert_non_null(buffer);
        memset(buffer->payload, i, LARGE);
        buffer->frame = (kin_frame){KIN_FRAME_STEP, 5, LARGE};
        kin_neighbours_send(slow_neighbours, buffer);
    }
    usleep(300000); // nothing is read for a while
    kin_time begun = kin_clock_now();
    while (v.n_heard < KIN_STEPS_IN_FLIGHT && atomic_load(&open) == 1 && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS)
        uv_run(&v.loop, UV_RUN_NOWAIT);
    assert_int_equal(v.n_heard, KIN_STEPS_IN_FLIGHT);
    kin_endpoint_close(slow_endpoint, end_slow, NULL);
    kin_link_close(v.ties[0].link, NULL);
    kin_listener_close(v.listener);
    uv_run(&v.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&v.loop), 0);
    kin_tls_ctx_close(v.tls);
    kin_message_queue_close(in);
    kin_message_pool_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_machine), // computes the result that the others compare with
        cmocka_unit_test(a_step_with_other_rows_than_it_has_is_refused),
        cmocka_unit_test(a_step_that_has_other_tokens_in_a_later_round_is_refused),
        cmocka_unit_test(a_step_that_is_not_due_is_refused),
        cmocka_unit_test(a_step_in_a_round_that_is_not_due_is_refused),
        cmocka_unit_test(what_came_wrongly_is_told_from_what_was_computed_wrongly),
        cmocka_unit_test(a_plan_with_batches_beyond_its_context_is_cut),
        cmocka_unit_test(all_steps_may_wait_for_a_slow_link),
        cmocka_unit_test(a_device_that_never_answers_does_not_prevent_stopping),
        cmocka_unit_test(embedding_and_output_layer_are_given_to_no_device),
        cmocka_unit_test(half_a_frame_ends_its_link_only),
        cmocka_unit_test(a_head_outlives_hostile_devices),
        cmocka_unit_test(a_device_outlives_hostile_heads),
        cmocka_unit_test(the_planner_is_told_of_a_device_without_a_cache),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
