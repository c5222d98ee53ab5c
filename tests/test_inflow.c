// Seats that are opened while their weights are still on their way: they wait for what they need, and compute the bits of a whole
// model afterwards.
#define SMALL_MODEL_MIX "q4_0" // which many CPUs pack
#include "tests/small_model.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "model/store.h"
#include "ring/inflow.h"
#include "ring/seat.h"

enum { TICKET = 3, N_TOKENS = 4, HEADER_CHUNKS = 8 };

// A store that is filled bit by bit, and somebody who opens a seat over it.
typedef struct bench {
    char cache[64];
    kin_store *store, *whole;
    kin_inflow *inflow;
    atomic_bool stop;
    kin_parcels *pool;
    pthread_t thread;
    atomic_bool has_ended;
    kin_seat *seat;
    kin_err err;
} bench;

static kin_proto_plan plan_of_all(void) {
    kin_proto_plan p = {.flags = KIN_PROTO_PLAN_REPACK,
                        .n_files = 1,
                        .file_size = {manifest.files[0].size},
                        .n_ctx = 64,
                        .n_seq = 1,
                        .n_batch = 16};
    memcpy(p.model.bytes, manifest.hash, sizeof p.model.bytes);
    p.n_rounds = p.n_windows = 2;
    p.window[0] = (kin_proto_window){0, 0, 2, 0};
    p.window[1] = (kin_proto_window){1, 2, N_LAYER, 0};
    return p;
}

static void put(bench *b, uint32_t i_chunk) {
    static uint8_t bytes[KIN_CHUNK_BYTES_MIN];
    kin_err err;
    kin_chunk c = kin_manifest_chunk(&manifest, i_chunk);
    assert_int_equal(kin_store_read(b->whole, i_chunk, 0, bytes, c.bytes, &err), 0);
    assert_int_equal(kin_store_put(b->store, i_chunk, bytes, c.bytes, &err), KIN_STORE_OK);
    kin_inflow_news(b->inflow);
}

static void *open_seat(void *arg) {
    bench *b = arg;
    kin_inflow_view view = {b->inflow, TICKET};
    kin_arrival arrival = kin_inflow_arrival(&view);
    kin_proto_plan plan = plan_of_all();
    kin_seat_options o = {.model_path = kin_store_path(b->store, 0),
                          .in_parts = true,
                          .arrival = &arrival,
                          .n_threads = 2,
                          .pool = b->pool,
                          .stop = &b->stop};
    kin_seat_open(&b->seat, &plan, &o, &b->err);
    atomic_store(&b->has_ended, true);
    return NULL;
}

static void set_up(bench *b) {
    kin_err err;
    const char *path = model_path;
    *b = (bench){.cache = "/tmp/kin-test-inflow-XXXXXX"};
    assert_non_null(mkdtemp(b->cache));
    assert_int_equal(kin_store_open_files(&b->whole, &manifest, &path, &err), 0);
    assert_int_equal(kin_store_open(&b->store, b->cache, &manifest, KIN_STORE_FILL, &err), 0);
    assert_int_equal(kin_inflow_open(&b->inflow, &b->stop, &err), 0);
    assert_int_equal(kin_parcels_open(&b->pool, 4, &err), 0);
    for (uint32_t i = 0; i < HEADER_CHUNKS; i++) put(b, i);
    kin_inflow_begin(b->inflow, TICKET, b->store);
    assert_int_equal(pthread_create(&b->thread, NULL, open_seat, b), 0);
}

static void tear_down(bench *b) {
    char command[128];
    kin_seat_close(b->seat);
    kin_parcels_close(b->pool);
    kin_inflow_close(b->inflow);
    kin_store_close(b->store);
    kin_store_close(b->whole);
    snprintf(command, sizeof command, "rm -r %s", b->cache);
    assert_int_equal(system(command), 0);
}

// The hidden state of some tokens after both windows.
static void compute(kin_seat *seat, float *x) {
    static const int32_t pos[N_TOKENS] = {0, 1, 2, 3};
    kin_batch batch = {.n_tokens = N_TOKENS, .pos = pos};
    kin_err err;
    for (int i = 0; i < N_TOKENS * N_EMBD; i++) x[i] = (float)(i % 37) / 37;
    assert_int_equal(kin_part_begin(kin_seat_part(seat), 1, &batch, &err), 0);
    assert_int_equal(kin_part_run(kin_seat_part(seat), 1, 0, N_TOKENS, x, &err), N_TOKENS);
    assert_int_equal(kin_part_run(kin_seat_part(seat), 1, 1, N_TOKENS, x, &err), N_TOKENS);
}

static void a_seat_over_weights_that_come_in_any_order_gives_the_same_bits(void **state) {
    (void)state;
    static float want[N_TOKENS * N_EMBD], got[N_TOKENS * N_EMBD];
    bench b;
    set_up(&b);
    uint32_t n = manifest.n_chunks, *order = malloc(n * sizeof *order);
    kin_rng rng;
    kin_rng_seed(&rng, 5);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)(kin_rng_u64(&rng) % i), last = order[i - 1];
        order[i - 1] = order[k];
        order[k] = last;
    }
    for (uint32_t i = 0; i < n; i++) put(&b, order[i]);
    free(order);
    pthread_join(b.thread, NULL);
    if (!b.seat) fail_msg("%s", b.err.text);
    compute(b.seat, got);
    kin_shard_stats s = kin_seat_stats(b.seat);
    print_message("%llu bytes were packed\n", (unsigned long long)s.weights.packed_bytes);

    kin_proto_plan plan = plan_of_all();
    kin_seat_options o = {.model_path = model_path, .n_threads = 2, .pool = b.pool, .stop = &b.stop};
    kin_seat *seat;
    assert_int_equal(kin_seat_open(&seat, &plan, &o, &b.err), 0);
    compute(seat, want);
    assert_memory_equal(got, want, sizeof got);
    kin_seat_close(seat);
    tear_down(&b);
}

static void expect_failed(bench *b, const char *words) {
    pthread_join(b->thread, NULL);
    assert_null(b->seat);
    if (!strstr(b->err.text, words)) fail_msg("'%s' is not in '%s'", words, b->err.text);
    tear_down(b);
}

static void who_waits_is_told_that_nothing_more_comes(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    kin_inflow_end(b.inflow, "the head is gone");
    expect_failed(&b, "the head is gone");
}

static void another_plan_ends_the_wait_for_the_former(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    kin_inflow_begin(b.inflow, TICKET + 1, b.store);
    expect_failed(&b, "another plan has come");
}

static void a_stop_ends_the_wait(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    atomic_store(&b.stop, true);
    expect_failed(&b, "stopped");
}

static void what_was_not_asked_for_is_not_waited_for(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    for (uint32_t i = HEADER_CHUNKS; i + 1 < manifest.n_chunks; i += 2) put(&b, i);
    assert_false(atomic_load(&b.has_ended)); // half of it is no use
    kin_inflow_is_whole(b.inflow);
    expect_failed(&b, "weights are needed that the plan's windows do not have");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seat_over_weights_that_come_in_any_order_gives_the_same_bits),
        cmocka_unit_test(who_waits_is_told_that_nothing_more_comes),
        cmocka_unit_test(another_plan_ends_the_wait_for_the_former),
        cmocka_unit_test(a_stop_ends_the_wait),
        cmocka_unit_test(what_was_not_asked_for_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
