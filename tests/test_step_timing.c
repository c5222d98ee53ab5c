// The time of a token: medians (pipeline/step_timing.h), and the steps that a head and a device count.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/loopback.h"
#include "pipeline/metrics.h"
#include "pipeline/step_timing.h"
#include "testkit/head_eval.h"
#include "tests/place.h"
#include "tests/small_model.h"

enum { N_ROUNDS = 2, ALL = KIN_STEP_TIMING_KEPT };

// ---- medians

// Adds a token that takes 100 ns in total: a window of 30, of which it waits `stall`, and one of 20. The disk reads for `stall`,
// 2 bytes per ns.
static void add(kin_step_timing *p, kin_time *now, kin_stream_stats *stream, uint64_t stall, bool is_token) {
    kin_step_timing_begin(p, *now);
    kin_step_timing_enter(p, *now + 10, stream);
    stream->wait_ns += stall;
    stream->busy_ns += stall;
    stream->read_bytes += 2 * stall;
    kin_step_timing_leave(p, *now + 40, stream);
    kin_step_timing_enter(p, *now + 60, stream);
    kin_step_timing_leave(p, *now + 80, stream);
    kin_step_timing_end(p, *now + 100, stream, is_token);
    *now += 1000;
}

static bool is_unknown(kin_token_times t) {
    return t.compute_ns == 0 && t.stall_ns == 0 && t.disk_ns == 0 && t.disk_bytes == 0 && t.total_ns == 0;
}

static void nothing_is_known_before_eight_tokens(void **state) {
    (void)state;
    kin_step_timing p = {0};
    kin_stream_stats stream = {.busy_ns = 70, .read_bytes = 80, .wait_ns = 90};
    kin_time now = 5;
    add(&p, &now, &stream, 1, true); // the counters before it are not known
    for (int i = 0; i < KIN_STEP_TIMING_LEAST; i++) {
        assert_true(is_unknown(kin_step_timing_median(&p)));
        add(&p, &now, &stream, 7, true);
        add(&p, &now, &stream, 9, false); // a chunk of a prompt
    }
    kin_token_times t = kin_step_timing_median(&p);
    assert_true(t.compute_ns == 43 && t.stall_ns == 7 && t.disk_ns == 7 && t.disk_bytes == 14 && t.total_ns == 100);
}

static void one_slow_token_changes_nothing_and_old_ones_are_forgotten(void **state) {
    (void)state;
    kin_step_timing p = {0};
    kin_stream_stats stream = {0};
    kin_time now = 5;
    add(&p, &now, &stream, 0, false);
    for (int i = 0; i < ALL - 1; i++) add(&p, &now, &stream, 0, true);
    add(&p, &now, &stream, 29, true);
    kin_token_times t = kin_step_timing_median(&p);
    assert_true(t.compute_ns == 50 && t.stall_ns == 0 && t.disk_bytes == 0); // zeros count in the median
    for (int i = 0; i < ALL; i++) add(&p, &now, &stream, 10, true);
    t = kin_step_timing_median(&p);
    assert_true(t.compute_ns == 40 && t.stall_ns == 10 && t.disk_bytes == 20);
}

// ---- a head alone

static void a_head_knows_what_its_tokens_take(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static const int32_t ids[] = {1, 50, 60, 70};
    kin_shard *shard;
    kin_loopback_head alone;
    kin_err err;
    kin_shard_options so = small_shard();
    assert_int_equal(kin_shard_open(&shard, &model, &devices, &so, &err), 0);
    assert_int_equal(kin_loopback_head_open(&alone, &model, shard, N_BATCH, &err), 0);
    assert_int_equal(kin_head_eval(alone.head, 0, 0, ids, 4, logits, 1, &err), 0);
    for (int i = 0; i < KIN_STEP_TIMING_LEAST; i++) {
        assert_true(is_unknown(kin_head_token_times(kin_head_get_counts(alone.head))));
        assert_int_equal(kin_head_eval(alone.head, 0, 4 + i, ids, 1, logits, 1, &err), 0);
    }
    kin_token_times t = kin_head_token_times(kin_head_get_counts(alone.head));
    assert_true(t.compute_ns > 0 && t.total_ns >= t.compute_ns && t.stall_ns == 0 && t.disk_bytes == 0);

    const kin_head_ring ring = {.transport = kin_loopback_transport(alone.loopback),
                                .executor = alone.executor,
                                .shard = shard,
                                .n_rounds = 1,
                                .n_members = 1};
    kin_head_set_ring(alone.head, &ring);
    assert_true(is_unknown(kin_head_token_times(kin_head_get_counts(alone.head))));
    kin_loopback_head_close(&alone);
    kin_shard_close(shard);
}

// ---- a device

typedef struct desk {
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_engine_instance *instance;
    kin_metrics *metrics;
    uint64_t n_steps;
    int n_tokens, n_rounds;
} desk;

static void open_desk_of(desk *d, int n_rounds, const char *kv_dir) {
    kin_err err;
    kin_proto_plan plan = {.n_files = 1,
                           .n_ctx = N_CTX,
                           .n_seq = 1,
                           .n_batch = N_BATCH,
                           .n_threads = 1,
                           .n_rounds = (uint16_t)n_rounds,
                           .n_windows = 1, // no window in the second round
                           .window = {{0, 0, N_LAYER - 1, 0, 0}}};
    *d = (desk){.n_rounds = n_rounds};
    assert_int_equal(kin_message_pool_open(&d->pool, 4, &err), 0);
    assert_int_equal(kin_message_queue_open(&d->in, &err), 0);
    assert_int_equal(kin_metrics_open(&d->metrics, &err), 0);
    kin_engine_instance_options o = {.model_path = model_path, .n_threads = 1, .pool = d->pool, .in = d->in};
    o.kv_disk.dir = kv_dir;
    if (kin_engine_instance_open(&d->instance, &plan, &o, &err) != 0) fail_msg("%s", err.text);
}
#define open_desk_of(...) FROM_TEST(open_desk_of(__VA_ARGS__))

static void open_desk(desk *d) {
    open_desk_of(d, N_ROUNDS, NULL);
}
#define open_desk(...) FROM_TEST(open_desk(__VA_ARGS__))

static void close_desk(desk *d) {
    kin_engine_instance_close(d->instance);
    kin_metrics_close(d->metrics);
    kin_message_queue_close(d->in);
    kin_message_pool_close(d->pool);
}

// Returns a step of n_tokens from position `first` on. n_kept: first truncates the sequence to this many tokens; -1: does not.
static kin_message_buffer *pack(desk *d, uint64_t step, int round, int first, int n_tokens, int n_kept) {
    static float x[N_BATCH * N_EMBD];
    int32_t pos[N_BATCH];
    const kin_kv_op op = {.n = n_kept};
    for (int i = 0; i < N_BATCH; i++) pos[i] = first + i;
    for (int i = 0; i < N_BATCH * N_EMBD; i++) x[i] = (float)(i % 7) - 3;
    kin_steps s = {.n_embd = N_EMBD, .n_batch = N_BATCH, .n_seq = 1, .n_rounds = d->n_rounds};
    kin_batch batch = {.n_tokens = n_tokens, .pos = pos, .ops = &op, .n_ops = n_kept >= 0 && round == 0};
    kin_hop hop = {.step = step, .round = round, .n_rows = n_tokens};
    return kin_steps_pack(&s, d->pool, 1, &hop, &batch, x);
}

// Passes the buffer to the worker; afterwards it still belongs to the caller.
static void take(desk *d, kin_message_buffer *buffer) {
    kin_err err;
    kin_metrics_begin(d->metrics, buffer, d->instance);
    if (kin_worker_handle(kin_engine_instance_worker(d->instance), &buffer, &err) != 0) fail_msg("%s", err.text);
    kin_metrics_end(d->metrics, d->instance);
}
#define take(...) FROM_TEST(take(__VA_ARGS__))

static void give_round(desk *d, uint64_t step, int round, int first, int n_tokens) {
    kin_message_buffer *buffer = pack(d, step, round, first, n_tokens, -1);
    take(d, buffer);
    kin_message_pool_give(d->pool, buffer);
}
#define give_round(...) FROM_TEST(give_round(__VA_ARGS__))

static void give_step(desk *d, int n_tokens) {
    uint64_t step = ++d->n_steps;
    for (int round = 0; round < N_ROUNDS; round++) give_round(d, step, round, d->n_tokens, n_tokens);
    d->n_tokens += n_tokens;
}
#define give_step(...) FROM_TEST(give_step(__VA_ARGS__))

static kin_proto_status status_of(desk *d) {
    bool is_computing;
    usleep(110000); // longer than the interval of publishing
    kin_metrics_publish(d->metrics, d->instance, true);
    return kin_metrics_status(d->metrics, &is_computing);
}

static void a_device_knows_what_its_tokens_take(void **state) {
    (void)state;
    desk d;
    open_desk(&d);
    for (int i = 0; i < 2 * KIN_STEP_TIMING_LEAST; i++) give_step(&d, 2);
    give_step(&d, 1);
    assert_int_equal(status_of(&d).token_compute_ns, 0); // chunks of a prompt do not count
    for (int i = 1; i < KIN_STEP_TIMING_LEAST; i++) give_step(&d, 1);
    kin_proto_status s = status_of(&d);
    assert_true(s.token_compute_ns > 0 && s.token_stall_ns == 0 && s.token_disk_ns == 0 && s.token_disk_bytes == 0);
    kin_metrics_reset_instance(d.metrics);
    assert_int_equal(status_of(&d).token_compute_ns, 0);
    close_desk(&d);
}

// The last chunk of a prompt may have one token, while other chunks are in flight.
static void steps_in_flight_together_are_no_tokens(void **state) {
    (void)state;
    desk d;
    open_desk(&d);
    for (int i = 0; i < 2 * KIN_STEP_TIMING_LEAST; i++) {
        uint64_t step = d.n_steps += 2;
        for (int round = 0; round < N_ROUNDS; round++) {
            give_round(&d, step, round, 2 * i, 1);
            give_round(&d, step + 1, round, 2 * i + 1, 1);
        }
    }
    assert_int_equal(status_of(&d).token_compute_ns, 0);
    close_desk(&d);
}

static uint64_t n_dropped(const desk *d) {
    return kin_engine_instance_worker_stats(d->instance).n_dropped;
}

// Steps with tokens 8 and 9 wait, and after them another token 8, which gives the same result as without those two.
static void a_step_that_a_later_one_forgets_is_not_computed(void **state) {
    (void)state;
    desk d, other;
    open_desk(&d);
    open_desk(&other);
    other.n_steps = 2; // so that its eight steps end with number 10, and 11 is next
    for (int i = 0; i < 8; i++) give_step(&d, 1);
    for (int i = 0; i < 8; i++) give_step(&other, 1);
    kin_message_buffer *waiting[3] = {pack(&d, 9, 0, 8, 1, -1), pack(&d, 10, 0, 9, 1, -1), pack(&d, 11, 0, 8, 1, 8)};
    uint32_t length = waiting[1]->frame.length;
    uint8_t *came = malloc(length);
    memcpy(came, waiting[1]->payload, length);
    kin_message_queue_put(d.in, waiting[1]);
    kin_message_queue_put(d.in, waiting[2]);
    waiting[2]->frame.epoch = 2; // a step of another epoch has no effect
    take(&d, waiting[0]);
    assert_int_equal(n_dropped(&d), 0);
    waiting[2]->frame.epoch = 1;
    assert_ptr_equal(kin_message_queue_pop(d.in, 0), waiting[1]);
    take(&d, waiting[1]);
    assert_int_equal(n_dropped(&d), 1);
    assert_int_equal(waiting[1]->frame.length, length);
    assert_memory_equal(waiting[1]->payload, came, length); // the dropped step is passed on unchanged
    assert_ptr_equal(kin_message_queue_pop(d.in, 0), waiting[2]);
    kin_message_buffer *same = pack(&other, 11, 0, 8, 1, 8);
    take(&d, waiting[2]);
    take(&other, same);
    assert_int_equal(n_dropped(&d), 1);
    assert_int_equal(same->frame.length, waiting[2]->frame.length);
    assert_memory_equal(same->payload, waiting[2]->payload, same->frame.length);
    for (int i = 0; i < 3; i++) kin_message_pool_give(d.pool, waiting[i]);
    kin_message_pool_give(other.pool, same);
    free(came);
    close_desk(&d);
    close_desk(&other);
}

// Steps that take no time must not count as tokens.
static void dropped_steps_are_no_tokens(void **state) {
    (void)state;
    desk d;
    open_desk_of(&d, 1, NULL);
    for (uint64_t step = 1; step <= 50; step++) {
        kin_message_buffer *lost = pack(&d, step, 0, 0, 1, 0), *last = pack(&d, step + 1, 0, 0, 2, 0);
        kin_message_queue_put(d.in, last);
        take(&d, lost);
        assert_ptr_equal(kin_message_queue_pop(d.in, 0), last);
        kin_message_pool_give(d.pool, lost);
        kin_message_pool_give(d.pool, last);
    }
    assert_int_equal(n_dropped(&d), 50);
    assert_int_equal(status_of(&d).token_compute_ns, 0);
    close_desk(&d);
}

// Requests after step `step` that the first page be kept. Returns true if it is.
static bool keeps_page(desk *d, uint64_t step, uint8_t name) {
    kin_proto_pages m;
    kin_err err;
    const kin_page_request r = {.n = 1, .keys = {{{name}}}};
    const kin_batch batch = {.pages = &r};
    const kin_hop hop = {.step = step + 1, .n_good = 1};
    kin_message_buffer *pages = kin_steps_pack_pages(d->pool, 1, &hop, &batch);
    assert_int_equal(kin_worker_handle(kin_engine_instance_worker(d->instance), &pages, &err), 0);
    assert_int_equal(kin_proto_decode_pages(pages->payload, pages->frame.length, &m, &err), 0);
    kin_message_pool_give(d->pool, pages);
    return m.n_good == 1;
}
#define keeps_page(...) FROM_TEST(keeps_page(__VA_ARGS__))

// A page has 63 tokens, and a waiting step rolls back the last one, which is therefore not computed, unless the waiting step
// arrives only afterwards.
static void pages_of_a_dropped_step_are_not_kept(void **state) {
    (void)state;
    enum { SAYS_NOTHING, WAITS, HAS_COME_SINCE, N };
    char dir[] = "/tmp/kin-test-step-timing-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    for (int how = 0; how < N; how++) {
        desk d;
        open_desk_of(&d, 1, dir);
        uint64_t step = 1;
        for (int at = 0; at < KIN_KV_CELLS - 1; at++) give_round(&d, step++, 0, at, 1);
        kin_message_buffer *last = pack(&d, step, 0, KIN_KV_CELLS - 1, 1, -1);
        kin_message_buffer *later = pack(&d, step + 2, 0, KIN_KV_CELLS - 1, 1, KIN_KV_CELLS - 1);
        if (how == SAYS_NOTHING) later->frame.epoch = 2;
        if (how != HAS_COME_SINCE) kin_message_queue_put(d.in, later);
        take(&d, last);
        if (how == HAS_COME_SINCE) kin_message_queue_put(d.in, later);
        assert_int_equal(n_dropped(&d), how == WAITS);
        assert_int_equal(keeps_page(&d, step, (uint8_t)(1 + how)), how != WAITS);
        assert_ptr_equal(kin_message_queue_pop(d.in, 0), later);
        later->frame.epoch = 1;
        take(&d, later);
        assert_true(keeps_page(&d, step + 2, (uint8_t)(10 + how)));
        kin_message_pool_give(d.pool, last);
        kin_message_pool_give(d.pool, later);
        close_desk(&d);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_eight_tokens),
        cmocka_unit_test(one_slow_token_changes_nothing_and_old_ones_are_forgotten),
        cmocka_unit_test(a_head_knows_what_its_tokens_take),
        cmocka_unit_test(a_device_knows_what_its_tokens_take),
        cmocka_unit_test(steps_in_flight_together_are_no_tokens),
        cmocka_unit_test(a_step_that_a_later_one_forgets_is_not_computed),
        cmocka_unit_test(dropped_steps_are_no_tokens),
        cmocka_unit_test(pages_of_a_dropped_step_are_not_kept),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
