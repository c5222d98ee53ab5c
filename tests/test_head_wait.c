// Work that the head does while it waits for the ring (pipeline/head.h), with a clock controlled by the test.
#include <stdlib.h>
#include <string.h>

#include "pipeline/loopback.h"
#include "tests/place.h"
#include "tests/small_model.h"

enum { MS = 1000000 };

// A ring whose steps come back after wait_ms, and work whose pieces take pass_ms. Also the stand-in for base/clock.h.
static struct {
    kin_time now, comes;
    int wait_ms, pass_ms;
    int n_worked, n_late; // n_worked: pieces done; n_late: steps that had arrived before a piece was done
    double most_s;        // the time that the work was allowed
    kin_ring_transport inner;
} t;

kin_time kin_clock_now(void) {
    return t.now;
}

static int send(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err) {
    (void)user;
    t.comes = t.now + (kin_time)t.wait_ms * MS;
    return t.inner.send(t.inner.user, hop, batch, x, err);
}

static int receive(void *user, kin_hop *hop, float *x, kin_err *err) {
    (void)user;
    t.n_late += t.now > t.comes;
    if (t.now < t.comes) t.now = t.comes;
    return t.inner.receive(t.inner.user, hop, x, err);
}

static bool is_here(void *user) {
    (void)user;
    return t.now >= t.comes;
}

static void drop(void *user) {
    (void)user;
    t.inner.drop(t.inner.user);
}

static bool work(void *user, double free_s) {
    (void)user;
    if (free_s > t.most_s) t.most_s = free_s;
    if (free_s * 1e3 < t.pass_ms) return false;
    t.now += (kin_time)t.pass_ms * MS;
    t.n_worked++;
    return true;
}

typedef struct context {
    kin_shard *shard;
    kin_loopback_head alone;
    int n_tokens;
} context;

static void open_context(context *w) {
    kin_err err;
    kin_shard_options so = small_shard();
    *w = (context){0};
    memset(&t, 0, sizeof t);
    t.now = 1000 * (kin_time)MS;
    assert_int_equal(kin_shard_open(&w->shard, &model, &devices, &so, &err), 0);
    assert_int_equal(kin_loopback_head_open(&w->alone, &model, w->shard, N_BATCH, &err), 0);
    t.inner = kin_loopback_transport(w->alone.loopback);
    const kin_head_ring ring = {.transport = {.send = send, .receive = receive, .is_here = is_here, .drop = drop},
                                .executor = w->alone.executor,
                                .shard = w->shard,
                                .n_rounds = 1,
                                .n_members = 2};
    kin_head_set_ring(w->alone.head, &ring);
    kin_head_clear(w->alone.head);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_loopback_head_close(&w->alone);
    kin_shard_close(w->shard);
}

// Runs steps of n tokens each. Returns the number of pieces of work done meanwhile.
static int run(context *w, int n_steps, int n) {
    static const int32_t tokens[N_BATCH], seq[N_BATCH];
    static float logits[N_VOCAB];
    const kin_head_meanwhile meanwhile = {work, NULL};
    int32_t pos[N_BATCH], out = n - 1;
    uint64_t number;
    kin_err err;
    t.n_worked = t.n_late = 0;
    t.most_s = 0;
    for (int i = 0; i < n_steps; i++) {
        if (w->n_tokens + n > N_CTX) kin_head_truncate(w->alone.head, 0, w->n_tokens = 0);
        for (int k = 0; k < n; k++) pos[k] = w->n_tokens++;
        kin_head_step step = {.n = n, .tokens = tokens, .seq = seq, .pos = pos, .out = &out, .n_out = 1, .logits = logits};
        if (kin_head_send(w->alone.head, &step, &number, &err) != 0) fail_msg("%s", err.text);
        if (kin_head_receive(w->alone.head, &meanwhile, &number, &err) != 0) fail_msg("%s", err.text);
    }
    return t.n_worked;
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static void work_fills_the_wait_when_that_is_known(void **state) {
    (void)state;
    context w;
    open_context(&w);
    t.wait_ms = 10;
    t.pass_ms = 3;
    assert_int_equal(run(&w, 3, 1), 0);
    assert_int_equal(run(&w, 20, 1), 20 * 3);
    assert_int_equal(t.n_late, 0);
    assert_true(t.most_s > 0.0099 && t.most_s < 0.0101);
    assert_int_equal(run(&w, 3, 2), 0); // steps of two tokens may take a different time
    assert_int_equal(run(&w, 10, 2), 10 * 3);
    t.pass_ms = 11;
    assert_int_equal(run(&w, 20, 1), 0);
    close_context(&w);
}

// If a step arrives during a piece of work, the time at which that piece began is recorded as its wait. So the head knows after
// one late step that the wait is shorter.
static void a_ring_that_gets_faster_is_kept_waiting_once(void **state) {
    (void)state;
    context w;
    open_context(&w);
    t.wait_ms = 10;
    t.pass_ms = 3;
    run(&w, 20, 1);
    t.wait_ms = 5;
    run(&w, 1, 1);
    assert_int_equal(t.n_late, 1);
    run(&w, 10, 1);
    assert_int_equal(t.n_late, 0);
    assert_int_equal(run(&w, 10, 1), 10);
    assert_int_equal(t.n_late, 0);
    t.wait_ms = 10; // and slower again
    run(&w, 10, 1);
    assert_int_equal(run(&w, 10, 1), 10 * 3);
    assert_int_equal(t.n_late, 0);
    close_context(&w);
}

static void with_another_ring_waits_are_measured_first(void **state) {
    (void)state;
    context w;
    open_context(&w);
    t.wait_ms = 10;
    t.pass_ms = 3;
    assert_true(run(&w, 10, 1) > 0);
    const kin_head_ring ring = {.transport = {.send = send, .receive = receive, .is_here = is_here, .drop = drop},
                                .executor = w.alone.executor,
                                .shard = w.shard,
                                .n_rounds = 1,
                                .n_members = 2};
    kin_head_set_ring(w.alone.head, &ring);
    kin_head_clear(w.alone.head);
    w.n_tokens = 0;
    t.wait_ms = 1;
    assert_int_equal(run(&w, 10, 1), 0);
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_fills_the_wait_when_that_is_known),
        cmocka_unit_test(a_ring_that_gets_faster_is_kept_waiting_once),
        cmocka_unit_test(with_another_ring_waits_are_measured_first),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
