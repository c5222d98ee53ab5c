// Steps as frames (pipeline/steps.h), buffers and their queue (net/message_buffer.h), steps passing through a member
// (pipeline/stage_executor.h), and the transport of a head alone (pipeline/loopback.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/loopback.h"
#include "pipeline/remote_ring.h"
#include "pipeline/stage_executor.h"
#include "pipeline/steps.h"
#include "tests/place.h"

enum { N_EMBD = 8, N_BATCH = 4 };

static const kin_steps steps = {.n_embd = N_EMBD, .n_batch = N_BATCH, .n_seq = 3, .n_rounds = 2};
static float x[N_BATCH * N_EMBD];
static const int32_t pos[] = {7, 8, 9}, seq[] = {0, 2, 0}, wanted[] = {1}, tokens[] = {300, 0, 41};
static const kin_kv_op ops[] = {{2, 1, 64}, {-1, -1, 0}};

static kin_message_pool *open_pool(int n) {
    kin_message_pool *pool;
    kin_err err;
    assert_int_equal(kin_message_pool_open(&pool, n, &err), 0);
    for (int i = 0; i < N_BATCH * N_EMBD; i++) x[i] = (float)i / 3;
    return pool;
}
#define open_pool(...) FROM_TEST(open_pool(__VA_ARGS__))

static void a_step_arrives_as_it_left(void **state) {
    (void)state;
    kin_message_pool *pool = open_pool(2);
    kin_err err;
    const kin_batch batch = {.n_tokens = 3,
                             .tokens = tokens,
                             .pos = pos,
                             .seq = seq,
                             .out = wanted,
                             .n_out = 1,
                             .no_output = true,
                             .ops = ops,
                             .n_ops = 2};
    for (int round = 0; round < 2; round++) {
        const kin_hop hop = {.step = 5, .round = round, .n_rows = round ? 1 : 3, .more = true};
        kin_message_buffer *p = kin_steps_pack(&steps, pool, 9, &hop, &batch, x);
        assert_non_null(p);
        assert_int_equal(p->frame.type, KIN_FRAME_STEP);
        assert_int_equal(p->frame.epoch, 9);
        kin_proto_step m;
        assert_int_equal(kin_steps_check(&steps, p, &m, &err), 0);
        assert_int_equal(m.step, 5);
        assert_int_equal(m.n_rows, hop.n_rows);
        assert_true((m.flags & KIN_PROTO_STEP_MORE) && (m.flags & KIN_PROTO_STEP_NO_OUTPUT));
        assert_int_equal((m.flags & KIN_PROTO_STEP_POSITIONS) != 0, round == 0);
        assert_int_equal((m.flags & KIN_PROTO_STEP_TOKENS) != 0, round == 0);
        float got[N_BATCH * N_EMBD];
        kin_activations_decode(got, m.activations, (size_t)hop.n_rows * N_EMBD, m.type);
        assert_memory_equal(got, x, (size_t)hop.n_rows * N_EMBD * sizeof *x);
        if (round == 0) {
            int32_t a[N_BATCH], b[N_BATCH], c[N_BATCH], t[N_BATCH];
            kin_kv_op d[2];
            kin_batch back = kin_steps_batch(&m, a, b, c, t, d);
            assert_ptr_equal(back.tokens, t);
            assert_memory_equal(t, tokens, sizeof tokens);
            assert_int_equal(back.n_ops, 2);
            assert_memory_equal(d, ops, sizeof ops);
            assert_int_equal(back.n_tokens, 3);
            assert_memory_equal(a, pos, sizeof pos);
            assert_memory_equal(b, seq, sizeof seq);
            assert_int_equal(back.n_out, 1);
            assert_int_equal(c[0], 1);
            assert_true(back.no_output);
        }
        kin_message_pool_give(pool, p);
    }
    kin_message_pool_close(pool);
}

static void a_request_for_pages_arrives_as_it_left(void **state) {
    (void)state;
    kin_message_pool *pool = open_pool(1);
    kin_page_request r = {.loads = true, .recomputes = true, .timeout_ms = 700, .seq = 2, .first = 3, .n = 2}, got;
    kin_err err = {""};
    kin_proto_pages m;
    kin_kv_op d[2];
    kin_batch back;
    r.keys[1].bytes[5] = 9;
    kin_border_set_add(&r.borders, 17);
    const kin_batch batch = {.ops = ops, .n_ops = 2, .pages = &r};
    kin_message_buffer *p = kin_steps_pack_pages(pool, 9, &(kin_hop){.step = 5, .n_good = 1}, &batch);
    assert_non_null(p);
    if (kin_steps_unpack_pages(&steps, p, &m, &got, d, &back, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(m.step, 5);
    assert_int_equal(m.n_good, 1);
    assert_int_equal(back.n_ops, 2);
    assert_memory_equal(d, ops, sizeof ops);
    assert_true(back.pages == &got && got.loads && got.recomputes);
    assert_int_equal(got.timeout_ms, 700);
    assert_int_equal(got.seq, 2);
    assert_int_equal(got.first, 3);
    assert_int_equal(got.n, 2);
    assert_memory_equal(got.keys, r.keys, 2 * sizeof *r.keys);
    assert_memory_equal(&got.borders, &r.borders, sizeof r.borders);
    kin_message_pool_give(pool, p);
    kin_message_pool_close(pool);
}

static void expect_refused(kin_steps of, const kin_batch *batch, kin_hop hop, const char *why) {
    kin_message_pool *pool = open_pool(1);
    kin_proto_step m;
    kin_err err;
    kin_message_buffer *p = kin_steps_pack(&of, pool, 1, &hop, batch, x);
    assert_non_null(p);
    assert_int_equal(kin_steps_check(&steps, p, &m, &err), KIN_FAIL);
    if (!strstr(err.text, why)) fail_msg("'%s' instead of '%s'", err.text, why);
    kin_message_pool_give(pool, p);
    kin_message_pool_close(pool);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void numbers_that_are_not_the_rings_are_refused(void **state) {
    (void)state;
    static const int32_t many[] = {0, 1, 2, 3, 4}, beyond[] = {0, 3, 0};
    const kin_batch batch = {.n_tokens = 3, .pos = pos, .seq = seq}, wide = {.n_tokens = 5, .pos = many};
    const kin_batch strange = {.n_tokens = 3, .pos = pos, .seq = beyond};
    kin_steps of = steps;
    of.n_embd = N_EMBD / 2;
    expect_refused(of, &batch, (kin_hop){.n_rows = 3}, "activations of 4 values, but the model has 8");
    of = steps;
    of.type = KIN_ACTIVATION_F16;
    expect_refused(of, &batch, (kin_hop){.n_rows = 3}, "the type of the activations differs");
    expect_refused(steps, &batch, (kin_hop){.n_rows = 3, .round = 2}, "round 2, but there are only 2");
    expect_refused(steps, &strange, (kin_hop){.n_rows = 3}, "sequence 3, but there are only 3");
    const kin_kv_op far = {.seq = 1, .from = 7};
    const kin_batch shared = {.n_tokens = 3, .pos = pos, .seq = seq, .ops = &far, .n_ops = 1};
    expect_refused(steps, &shared, (kin_hop){.n_rows = 3}, "sequence 7, but there are only 3");
    static float room[5 * N_EMBD];
    kin_message_pool *pool = open_pool(1);
    kin_proto_step m;
    kin_err err;
    kin_message_buffer *p = kin_steps_pack(&steps, pool, 1, &(kin_hop){.n_rows = 5}, &wide, room);
    assert_int_equal(kin_steps_check(&steps, p, &m, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "a step of 5 tokens, but the plan allows 4"));
    kin_message_pool_give(pool, p);
    kin_message_pool_close(pool);
}

// Of a model whose rows differ in width the frame says how wide they are, between the narrowest and the widest.
static void rows_of_several_widths_arrive_as_they_left(void **state) {
    (void)state;
    const kin_batch batch = {.n_tokens = 3, .pos = pos, .seq = seq};
    kin_steps of = steps, wider = steps;
    kin_message_pool *pool = open_pool(1);
    kin_proto_step m;
    kin_err err;
    of.n_least = N_EMBD / 2;
    kin_message_buffer *p = kin_steps_pack(&of, pool, 1, &(kin_hop){.n_rows = 3, .n_embd = N_EMBD - 2}, &batch, x);
    if (kin_steps_check(&of, p, &m, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(m.n_embd, N_EMBD - 2);
    float got[3 * N_EMBD];
    kin_activations_decode(got, m.activations, 3 * m.n_embd, m.type);
    assert_memory_equal(got, x, 3 * m.n_embd * sizeof *x);
    wider.n_least = N_EMBD - 1;
    assert_int_equal(kin_steps_check(&wider, p, &m, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "activations of 6 values, but the model has 7"));
    of.n_embd = N_EMBD - 3;
    assert_int_equal(kin_steps_check(&of, p, &m, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "activations of 6 values, but the model has 5"));
    kin_message_pool_give(pool, p);
    kin_message_pool_close(pool);
}

static void a_pool_gives_as_many_as_it_has(void **state) {
    (void)state;
    kin_message_pool *pool = open_pool(2);
    kin_message_buffer *a = kin_message_pool_get(pool, 100), *b = kin_message_pool_get(pool, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(kin_message_pool_get(pool, 1));
    kin_message_pool_give(pool, a);
    kin_message_buffer *again = kin_message_pool_get(pool, 50);
    assert_ptr_equal(again, a);
    assert_true(again->cap >= 100); // the memory is reused
    kin_message_pool_give(pool, b);
    kin_message_pool_give(pool, again);
    kin_message_pool_give(pool, NULL);
    kin_message_pool_close(pool);
    kin_message_pool_close(NULL);
}

typedef struct feeder {
    kin_message_pool *pool;
    kin_message_queue *queue;
} feeder;

static void *feed(void *arg) {
    const feeder *f = arg;
    for (uint32_t i = 0; i < 1000;) {
        kin_message_buffer *p = kin_message_pool_get(f->pool, 4);
        if (!p) continue;
        p->frame.length = i++;
        kin_message_queue_put(f->queue, p);
    }
    return NULL;
}

static void a_queue_keeps_order_between_threads(void **state) {
    (void)state;
    feeder f = {.pool = open_pool(8)};
    kin_err err;
    pthread_t thread;
    assert_int_equal(kin_message_queue_open(&f.queue, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        kin_message_buffer *p = kin_message_queue_pop(f.queue, -1);
        assert_non_null(p);
        assert_int_equal(p->frame.length, i);
        kin_message_pool_give(f.pool, p);
    }
    pthread_join(thread, NULL);
    assert_null(kin_message_queue_pop(f.queue, 1)); // returns after the timeout
    kin_message_queue_close(f.queue);
    kin_message_pool_close(f.pool);
}

static void *interrupt(void *arg) {
    usleep(20000);
    kin_message_queue_interrupt(arg, true);
    return NULL;
}

static void an_interrupted_queue_gives_nothing_until_it_is_not(void **state) {
    (void)state;
    kin_message_pool *pool = open_pool(1);
    kin_message_queue *queue;
    kin_err err;
    pthread_t thread;
    assert_int_equal(kin_message_queue_open(&queue, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, interrupt, queue), 0);
    assert_null(kin_message_queue_pop(queue, -1));
    pthread_join(thread, NULL);
    assert_true(kin_message_queue_is_interrupted(queue));
    kin_message_queue_put(queue, kin_message_pool_get(pool, 0));
    assert_null(kin_message_queue_pop(queue, 0));
    kin_message_queue_interrupt(queue, false);
    kin_message_buffer *p = kin_message_queue_pop(queue, 0);
    assert_non_null(p);
    kin_message_queue_put(queue, p);
    kin_message_queue_interrupt(queue, true);
    kin_message_queue_drain(queue, pool); // works while interrupted
    kin_message_queue_close(queue);
    kin_message_pool_close(pool);
}

static void a_waiting_thread_is_woken_once(void **state) {
    (void)state;
    kin_message_pool *pool = open_pool(1);
    kin_message_queue *queue;
    kin_remote_ring ring;
    kin_err err;
    kin_hop hop = {.step = 7};
    assert_int_equal(kin_message_queue_open(&queue, &err), 0);
    kin_remote_ring_init(&ring, &(kin_remote_ring_options){.epoch = 1, .pool = pool, .in = queue});
    kin_ring_transport transport = kin_remote_ring_transport(&ring);
    kin_message_buffer *p = kin_message_pool_get(pool, 0);
    kin_message_queue_put(queue, p);
    kin_message_queue_wake(queue);
    kin_message_queue_wake(queue);
    assert_ptr_equal(kin_message_queue_pop(queue, -1), p); // a queued buffer comes before the wake-up
    assert_int_equal(transport.receive(transport.user, &hop, x, &err), 0);
    assert_int_equal(hop.step, 0);
    kin_message_queue_put(queue, p);
    assert_ptr_equal(kin_message_queue_pop(queue, -1), p);
    assert_null(kin_message_queue_pop(queue, 0));
    kin_message_pool_give(pool, p);
    kin_message_queue_close(queue);
    kin_message_pool_close(pool);
}

// ---- the last member's answers

typedef struct accused {
    kin_message_buffer *sent; // to the first member
    char reason[200];
} accused;

static void keep_sent(void *user, kin_message_buffer *buffer) {
    ((accused *)user)->sent = buffer;
}

static void note_wrong(void *user, const char *reason) {
    snprintf(((accused *)user)->reason, sizeof((accused *)user)->reason, "%s", reason);
}

// Sends a step of two tokens with outputs in round 0, and answers with this step instead. Returns the reason of the refusal; "":
// the answer is accepted.
static const char *answer_with(uint64_t step, int round, int n_rows, float value) {
    static accused a;
    static float rows[N_BATCH * N_EMBD];
    const kin_batch two = {.n_tokens = 2, .pos = pos, .seq = seq};
    kin_message_pool *pool = open_pool(4);
    kin_message_queue *queue;
    kin_remote_ring ring;
    kin_err err;
    kin_hop hop;
    a = (accused){0};
    assert_int_equal(kin_message_queue_open(&queue, &err), 0);
    kin_remote_ring_init(
        &ring, &(kin_remote_ring_options){
                   .steps = steps, .epoch = 1, .pool = pool, .in = queue, .out = keep_sent, .wrong = note_wrong, .user = &a});
    kin_ring_transport t = kin_remote_ring_transport(&ring);
    rows[3] = 0;
    assert_int_equal(t.send(t.user, &(kin_hop){.step = 7, .n_rows = 2}, &two, rows, &err), 0);
    kin_message_pool_give(pool, a.sent);
    rows[3] = value;
    const kin_hop answer = {.step = step, .round = round, .n_rows = n_rows};
    const kin_batch as_many = {.n_tokens = n_rows, .pos = pos, .seq = seq};
    kin_message_queue_put(queue, kin_steps_pack(&steps, pool, 1, &answer, &as_many, rows));
    int rc = t.receive(t.user, &hop, x, &err);
    assert_int_equal(rc == 0, a.reason[0] == '\0');
    if (rc != 0) assert_non_null(strstr(err.text, a.reason));
    kin_message_queue_close(queue);
    kin_message_pool_close(pool);
    return a.reason;
}
#define answer_with(...) FROM_TEST(answer_with(__VA_ARGS__))

static void a_head_says_what_the_last_member_sent_wrongly(void **state) {
    (void)state;
    assert_string_equal(answer_with(7, 0, 2, 1), "");
    assert_string_equal(answer_with(6, 0, 2, 1), "step 6 came back before step 7");
    assert_string_equal(answer_with(8, 0, 2, 1), "step 8 came back before step 7");
    assert_string_equal(answer_with(7, 1, 2, 1), "round 1 of a step, but round 0 is due");
    assert_string_equal(answer_with(7, 0, 1, 1), "1 rows of a step, but 2 or 2 are expected");
    assert_string_equal(answer_with(7, 0, 2, NAN), "hidden states that are not finite");
    assert_string_equal(answer_with(7, 0, 2, INFINITY), "hidden states that are not finite");
}

static void alone_what_is_sent_comes_back_in_order(void **state) {
    (void)state;
    kin_loopback *alone;
    kin_err err;
    float got[N_BATCH * N_EMBD];
    kin_hop hop;
    const kin_batch two = {.n_tokens = 2, .pos = pos, .seq = seq};
    assert_int_equal(kin_loopback_open(&alone, N_BATCH, N_EMBD, 2, &err), 0);
    kin_ring_transport transport = kin_loopback_transport(alone);
    assert_int_equal(transport.receive(transport.user, &hop, got, &err), KIN_FAIL);
    for (uint64_t i = 1; i <= 2; i++) {
        x[0] = (float)i;
        assert_int_equal(transport.send(transport.user, &(kin_hop){.step = i, .n_rows = 2}, &two, x, &err), 0);
    }
    assert_int_equal(transport.send(transport.user, &(kin_hop){.step = 3, .n_rows = 2}, &two, x, &err), KIN_FAIL);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_int_equal(transport.receive(transport.user, &hop, got, &err), 0);
        assert_int_equal(hop.step, i);
        assert_true(got[0] == (float)i);
    }
    assert_int_equal(transport.send(transport.user, &(kin_hop){.step = 4, .n_rows = 1}, &two, x, &err), 0);
    transport.drop(transport.user);
    assert_int_equal(transport.receive(transport.user, &hop, got, &err), KIN_FAIL);
    kin_loopback_close(alone);
    kin_loopback_close(NULL);
}

static int begin_and_run(kin_stage_executor *executor, uint64_t step, int32_t of_sequence, int32_t at, kin_err *err) {
    const kin_batch one = {.n_tokens = 1, .pos = &at, .seq = &of_sequence};
    return kin_stage_executor_begin(executor, step, &one, err) != 0 ? KIN_FAIL
                                                                    : kin_stage_executor_run(executor, step, 0, 1, x, err);
}

static void a_relay_ends_only_steps_of_what_is_forgotten(void **state) {
    (void)state;
    kin_stage_executor *relay;
    kin_err err;
    kin_stage_executor_options o = {.n_rounds = 2, .n_layer = 4, .n_steps = 4};
    assert_int_equal(kin_stage_executor_open(&relay, &o, &err), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(begin_and_run(relay, (uint64_t)i, i % 2, i / 2, &err), 1);
    static const kin_kv_op ops[] = {{0, 0, 0}, {1, 1, 1}}; // removes sequence 0; sequence 1 keeps one token
    const int32_t third = 2, at = 0;
    const kin_batch next = {.n_tokens = 1, .pos = &at, .seq = &third, .ops = ops, .n_ops = 2};
    assert_int_equal(kin_stage_executor_begin(relay, 9, &next, &err), 0); // there is room again
    assert_int_equal(kin_stage_executor_run(relay, 0, 1, 1, x, &err), KIN_FAIL);
    assert_int_equal(kin_stage_executor_run(relay, 1, 1, 1, x, &err), 1);
    assert_int_equal(kin_stage_executor_run(relay, 2, 1, 1, x, &err), KIN_FAIL);
    assert_int_equal(kin_stage_executor_run(relay, 3, 1, 1, x, &err), KIN_FAIL);
    for (int i = 4; i < 7; i++) assert_int_equal(begin_and_run(relay, (uint64_t)i, 0, i, &err), 1); // all other steps are intact
    kin_stage_executor_close(relay);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_arrives_as_it_left),
        cmocka_unit_test(a_request_for_pages_arrives_as_it_left),
        cmocka_unit_test(numbers_that_are_not_the_rings_are_refused),
        cmocka_unit_test(rows_of_several_widths_arrive_as_they_left),
        cmocka_unit_test(a_pool_gives_as_many_as_it_has),
        cmocka_unit_test(a_queue_keeps_order_between_threads),
        cmocka_unit_test(a_waiting_thread_is_woken_once),
        cmocka_unit_test(an_interrupted_queue_gives_nothing_until_it_is_not),
        cmocka_unit_test(a_head_says_what_the_last_member_sent_wrongly),
        cmocka_unit_test(alone_what_is_sent_comes_back_in_order),
        cmocka_unit_test(a_relay_ends_only_steps_of_what_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
