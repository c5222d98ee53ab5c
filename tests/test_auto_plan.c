// A ring that plans itself: devices report their facts, measure their links, and the head's planner decides. All in one
// process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL_MODEL_LAYERS 6

#include "base/log.h"
#include "cluster/planner.h"
#include "engine/model_facts.h"
#include "pipeline/loopback.h"
#include "testkit/free_port.h"
#include "testkit/head_eval.h"
#include "tests/place.h"
#include "tests/small_cluster.h"

enum { N_DEVICES = 3, TIMEOUT_MS = 60000 };

// Facts of a device `speed` times as fast as a machine that takes 70 ms per token. Where plans are compared, machines differ by
// far more than the round trips of a busy machine.
static kin_device_facts facts_of(double speed) {
    kin_device_facts f = {.memory_bytes = 8e9, .disk_bytes_s = 1e9, .disk_random_bytes_s = 1e8};
    for (int q = 0; q < KIN_N_QUANT; q++) {
        f.cpu.token_bytes_s[q] = 1e7 * speed;
        f.cpu.prompt_flop_s[q] = 1e8 * speed;
    }
    f.cpu.read_bytes_s = 1e9 * speed;
    return f;
}

static atomic_int n_joined; // devices that joined since it was set to 0

static void count_joined(void *user, const char *line) {
    (void)user;
    if (strstr(line, "joined the head")) atomic_fetch_add(&n_joined, 1);
}

static void open_device(device *d, uint8_t id, const char *name, double speed, uint16_t head_port) {
    kin_join_options o = device_with_model(id, name, head_port);
    kin_device_facts facts = facts_of(speed);
    o.status = count_joined;
    start_device(d, &o, &facts);
}
#define open_device(...) FROM_TEST(open_device(__VA_ARGS__))

// Opens a device that no other device can reach: it is announced at 127.0.0.1 but listens elsewhere.
static void open_shut_device(device *d, uint8_t id, const char *name, uint16_t head_port) {
    kin_join_options o = device_with_model(id, name, head_port);
    kin_device_facts facts = facts_of(100);
    o.listen = "127.0.0.2";
    o.status = count_joined;
    start_device(d, &o, &facts);
}
#define open_shut_device(...) FROM_TEST(open_shut_device(__VA_ARGS__))

// ---- a head

typedef struct head {
    kin_device_facts facts;
    kin_planner *planner;
    kin_cluster *cluster;
    atomic_int n_questions, n_measured;
    int n_ranks;      // ranks of the group at the start of the last answer
    bool wants_again; // `measured` asks for another plan, once
    kin_facts asked;  // facts of the last question; set by plan_all only
} head;

static int ask(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    head *h = (head *)user;
    atomic_fetch_add(&h->n_questions, 1);
    int rc = kin_planner_ask(h->planner, q, out, err);
    h->n_ranks = rc == 0 && out->groups.n > 0 ? out->groups.groups[0].n : 0;
    return rc;
}

static bool measured(kin_planner *user, const kin_planner_measured *m) {
    head *h = (head *)user;
    assert_true(m->n >= 1 && m->n <= N_DEVICES + 1);
    return atomic_fetch_add(&h->n_measured, 1) == 0 && h->wants_again;
}

static void in_force(kin_planner *user, uint32_t question) {
    head *h = (head *)user;
    kin_planner_in_force(h->planner, question);
}

static void left_out(kin_planner *user, const kin_planner_question *q, int i, char why[KIN_PLAN_WHY_MAX]) {
    head *h = (head *)user;
    kin_planner_left_out(h->planner, q, i, why);
}

// Changes the plan with every request: alternates between one round and two.
static int alternate(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    head *h = (head *)user;
    return kin_plan_even(q->candidates, q->n, N_LAYER, 1 + atomic_fetch_add(&h->n_questions, 1) % 2, out, err);
}

static bool always(kin_planner *user, const kin_planner_measured *m) {
    head *h = (head *)user;
    (void)m;
    atomic_fetch_add(&h->n_measured, 1);
    return true;
}

// Plans for all candidates, even if fewer would be faster, and keeps the link facts of the question.
static int plan_all(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    head *h = (head *)user;
    atomic_fetch_add(&h->n_questions, 1);
    h->asked = q->facts;
    return kin_plan_even(q->candidates, q->n, N_LAYER, 2, out, err);
}

typedef int (*plan_fn)(kin_planner *user, const kin_planner_question *question, kin_plan *out, kin_err *err);
static plan_fn plans;   // planner function of the next head; NULL: the planner
static bool alternates; // the next head alternates plans

static void open_head(head *h, double speed, int n_expected) {
    static const kin_work_facts work = {.n_ctx = N_CTX, .n_cached = 8, .n_prompt = 8, .n_batch = N_BATCH};
    kin_model_facts facts;
    kin_err err;
    kin_shard_options so = small_shard();
    kin_planner_options po = kin_planner_options_defaults();
    po.head_name = "desk";
    *h = (head){.facts = facts_of(speed)};
    if (kin_model_facts_of(&facts, &model, &so, &err) != 0) fail_msg("%s", err.text);
    if (kin_planner_open(&h->planner, &po, &facts, &work, &err) != 0) fail_msg("%s", err.text);
    kin_cluster_options o = cluster_options(n_expected);
    o.facts = &h->facts;
    o.calls = (kin_planner_calls){.ask = plans        ? plans
                                         : alternates ? alternate
                                                      : ask,
                                  .add_measured = alternates ? always : measured,
                                  .in_force = in_force,
                                  .left_out = plans || alternates ? NULL : left_out};
    o.planner = (kin_planner *)h;
    h->cluster = open_small_cluster(&o);
}
#define open_head(...) FROM_TEST(open_head(__VA_ARGS__))

static void close_head(head *h) {
    kin_cluster_close(h->cluster);
    kin_planner_close(h->planner);
}

// Computes the logits after a few tokens.
static void eval(kin_head *head, float *logits) {
    const int32_t ids[] = {1, 50, 60, 70};
    kin_err err;
    kin_head_clear(head);
    for (int i = 0; i < 4; i++) {
        if (kin_head_eval(head, 0, i, ids + i, 1, logits, 1, &err) != 0) fail_msg("%s", err.text);
    }
}

static void request(head *h, float *logits) {
    kin_err err;
    if (kin_cluster_begin(h->cluster, &err) != 0) fail_msg("%s", err.text);
    eval(kin_cluster_head(h->cluster), logits);
    kin_cluster_end(h->cluster);
}
#define request(...) FROM_TEST(request(__VA_ARGS__))

static void eval_alone(float *want) {
    kin_loopback_head alone;
    kin_shard *shard;
    kin_err err;
    kin_shard_options so = small_shard();
    if (kin_shard_open(&shard, &model, &devices, &so, &err) != 0) fail_msg("%s", err.text);
    if (kin_loopback_head_open(&alone, &model, shard, so.n_batch, &err) != 0) fail_msg("%s", err.text);
    eval(alone.head, want);
    kin_loopback_head_close(&alone);
    kin_shard_close(shard);
}
#define eval_alone(...) FROM_TEST(eval_alone(__VA_ARGS__))

static void expect_the_logits_of_one_machine(const float *logits) {
    static float want[N_VOCAB];
    eval_alone(want);
    assert_memory_equal(want, logits, sizeof want);
}
#define expect_the_logits_of_one_machine(...) FROM_TEST(expect_the_logits_of_one_machine(__VA_ARGS__))

// Returns the number of layers of the device with that name in the active plan, or -1 if there is no plan.
static int layers_of(head *h, const char *name) {
    static kin_facts facts;
    kin_plan plan;
    if (!kin_planner_last(h->planner, &facts, &plan)) return -1;
    for (int i = 0; i < facts.n_device; i++) {
        if (strcmp(facts.devices[i].name, name) == 0) return plan.shares[i].n_layer;
    }
    return -1;
}

static void wait_for_plan(head *h, const char *name) {
    for (int ms = 0; ms < TIMEOUT_MS && layers_of(h, name) < N_LAYER; ms += 50) usleep(50000);
}

// ---- claims

// The head compares its prediction with the step times after one second, after two more, and so on, but not before ten steps.
static void while_a_request_runs_it_is_measured_soon(void **state) {
    (void)state;
    static device fast;
    head h;
    kin_err err;
    open_head(&h, 0.01, 1);
    open_device(&fast, 1, "fast", 1000, kin_cluster_port(h.cluster));
    if (kin_cluster_begin(h.cluster, &err) != 0) fail_msg("%s", err.text);
    int n = 0;
    for (; n < TIMEOUT_MS / 50 && atomic_load(&h.n_measured) < 2; n++) usleep(50000);
    kin_cluster_end(h.cluster);
    assert_true(n < 8000 / 50);
    close_device(&fast);
    close_head(&h);
}

static atomic_int n_said; // lines of the log that say, with a reason, that the slow device is left out

static void count_left_out(void *user, kin_log_level level, const char *line) {
    static const char beginning[] = "the plan leaves out 'slow': ";
    (void)user, (void)level;
    const char *said = strstr(line, beginning);
    if (said && strlen(said) > sizeof beginning) atomic_fetch_add(&n_said, 1);
}

static void layers_go_where_the_facts_say(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device fast, slow, mad;
    head h;
    atomic_store(&n_said, 0);
    kin_log_set_sink(count_left_out, NULL);
    open_head(&h, 0.01, N_DEVICES);
    uint16_t port = kin_cluster_port(h.cluster);
    open_device(&fast, 1, "fast", 1000, port);
    open_device(&slow, 2, "slow", 0.005, port);
    open_device(&mad, 3, "mad", -3, port);
    request(&h, logits);
    assert_int_equal(layers_of(&h, "fast"), N_LAYER);
    assert_int_equal(layers_of(&h, "slow"), 0);
    assert_int_equal(layers_of(&h, "mad"), 0);
    assert_int_equal(layers_of(&h, "desk"), 0);
    assert_int_equal(kin_cluster_n_members(h.cluster), 2);
    expect_the_logits_of_one_machine(logits);
    for (int ms = 0; ms < TIMEOUT_MS && atomic_load(&n_said) == 0; ms += 50) usleep(50000);
    assert_int_equal(atomic_load(&n_said), 1); // the head logs which device is left out, and why
    close_device(&fast);
    close_device(&slow);
    close_device(&mad);
    close_head(&h);
    kin_log_set_sink(NULL, NULL);
}

// Each of them takes 0.7 s per token; 12 sums are negligible.
static void devices_alike_on_short_links_share_each_layer(void **state) {
    (void)state;
    static float logits[N_VOCAB], want[N_VOCAB];
    static device other;
    head h;
    open_head(&h, 0.1, 1);
    open_device(&other, 1, "other", 0.1, kin_cluster_port(h.cluster));
    request(&h, logits);
    assert_int_equal(h.n_ranks, 2);
    assert_int_equal(kin_cluster_n_members(h.cluster), 2);
    eval_alone(want);
    for (int i = 0; i < N_VOCAB; i++) assert_true(fabsf(logits[i] - want[i]) < 1e-3f * fmaxf(1, fabsf(want[i])));
    close_device(&other);
    close_head(&h);
}

static void links_are_measured_between_all_devices(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device a, b;
    static kin_facts facts;
    kin_plan plan;
    head h;
    open_head(&h, 1, 2);
    open_device(&a, 1, "a", 500, kin_cluster_port(h.cluster));
    open_device(&b, 2, "b", 400, kin_cluster_port(h.cluster));
    request(&h, logits);
    assert_true(kin_planner_last(h.planner, &facts, &plan));
    assert_int_equal(facts.n_device, 3);
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            const kin_link_facts *link = &facts.links[from][to];
            if (from != to) assert_true(link->rtt_s > 0 && link->rtt_s < 1 && link->bytes_s > 1e5);
        }
    }
    close_device(&a);
    close_device(&b);
    close_head(&h);
}

static void from_the_other_end_where_one_does_not_get_through(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    for (int shut_first = 0; shut_first < 2; shut_first++) {
        atomic_store(&n_joined, 0);
        static device shut, open;
        static head h;
        plans = plan_all;
        open_head(&h, 1, 2);
        plans = NULL;
        for (int i = 0; i < 2; i++) {
            if (i == shut_first)
                open_device(&open, 1, "open", 100, kin_cluster_port(h.cluster));
            else
                open_shut_device(&shut, 2, "shut", kin_cluster_port(h.cluster));
            while (i == 0 && atomic_load(&n_joined) == 0) usleep(5000);
        }
        request(&h, logits);
        expect_the_logits_of_one_machine(logits);
        for (int from = 0; from < 3; from++) {
            for (int to = 0; to < 3; to++) assert_true(from == to || kin_facts_link_usable(&h.asked.links[from][to]));
        }
        close_device(&shut);
        close_device(&open);
        close_head(&h);
    }
}

static void two_that_do_not_reach_each_other_compute_through_the_head(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device a, b;
    static head h;
    plans = plan_all;
    open_head(&h, 1, 2);
    plans = NULL;
    open_shut_device(&a, 1, "a", kin_cluster_port(h.cluster));
    open_shut_device(&b, 2, "b", kin_cluster_port(h.cluster));
    for (int i = 0; i < 3; i++) request(&h, logits);
    expect_the_logits_of_one_machine(logits);
    assert_int_equal(kin_cluster_n_members(h.cluster), 3);
    const kin_link_facts *link = &h.asked.links[1][2], *up = &h.asked.links[1][0], *down = &h.asked.links[0][2];
    assert_true(fabs(link->rtt_s - up->rtt_s - down->rtt_s) < 1e-9);
    assert_true(link->bytes_s > 0 && link->bytes_s < up->bytes_s && link->bytes_s < down->bytes_s);
    close_device(&a);
    close_device(&b);
    close_head(&h);
}

// The far device knows only the near one's address.
static void a_head_that_only_one_device_reaches_is_joined_through_it(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device near, far;
    static head h;
    uint16_t port = free_port();
    kin_device_facts facts = facts_of(100);
    kin_join_options near_options = device_with_model(1, "near", 0), far_options = device_with_model(2, "far", port);
    plans = plan_all;
    open_head(&h, 1, 2);
    plans = NULL;
    near_options.head_port = kin_cluster_port(h.cluster);
    near_options.port = port;
    start_device(&near, &near_options, &facts);
    far_options.listen = "127.0.0.2"; // unreachable
    start_device(&far, &far_options, &facts);
    for (int i = 0; i < 3; i++) request(&h, logits);
    expect_the_logits_of_one_machine(logits);
    assert_int_equal(kin_cluster_n_members(h.cluster), 3);
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) assert_true(from == to || kin_facts_link_usable(&h.asked.links[from][to]));
    }
    close_device(&far);
    close_device(&near);
    close_head(&h);
}

static void a_better_device_takes_over_between_requests(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device first, second;
    head h;
    open_head(&h, 0.001, 1);
    open_device(&first, 1, "first", 0.05, kin_cluster_port(h.cluster));
    request(&h, logits);
    assert_int_equal(layers_of(&h, "first"), N_LAYER);
    open_device(&second, 2, "second", 1000, kin_cluster_port(h.cluster));
    wait_for_plan(&h, "second");
    request(&h, logits);
    assert_int_equal(layers_of(&h, "second"), N_LAYER);
    expect_the_logits_of_one_machine(logits);
    close_device(&second); // the plan goes back to the first device
    wait_for_plan(&h, "first");
    request(&h, logits);
    expect_the_logits_of_one_machine(logits);
    close_device(&first);
    close_head(&h);
}

static void drift_has_the_planner_asked_again(void **state) {
    (void)state;
    static float logits[N_VOCAB];
    static device d;
    head h;
    open_head(&h, 0.01, 1);
    h.wants_again = true;
    open_device(&d, 1, "fast", 1000, kin_cluster_port(h.cluster));
    request(&h, logits);
    int n_questions = atomic_load(&h.n_questions);
    for (int ms = 0; ms < TIMEOUT_MS && atomic_load(&h.n_questions) == n_questions; ms += 50) usleep(50000);
    assert_int_equal(atomic_load(&h.n_questions), n_questions + 1);
    request(&h, logits); // the answer was the same plan, so nothing changed
    assert_int_equal(layers_of(&h, "fast"), N_LAYER);
    close_device(&d);
    close_head(&h);
}

static void no_request_is_lost_to_a_better_plan(void **state) {
    (void)state;
    enum { N_PLANS = 8, N_REQUESTS_MOST = 5000 };
    static float logits[N_VOCAB];
    static device d;
    head h;
    alternates = true;
    open_head(&h, 1, 1);
    alternates = false;
    open_device(&d, 1, "anna", 1, kin_cluster_port(h.cluster));
    for (int i = 0; i < N_REQUESTS_MOST && atomic_load(&h.n_questions) < N_PLANS; i++) {
        request(&h, logits);
        expect_the_logits_of_one_machine(logits);
    }
    assert_true(atomic_load(&h.n_questions) >= N_PLANS);
    close_device(&d);
    close_head(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_a_request_runs_it_is_measured_soon),
        cmocka_unit_test(layers_go_where_the_facts_say),
        cmocka_unit_test(devices_alike_on_short_links_share_each_layer),
        cmocka_unit_test(links_are_measured_between_all_devices),
        cmocka_unit_test(from_the_other_end_where_one_does_not_get_through),
        cmocka_unit_test(two_that_do_not_reach_each_other_compute_through_the_head),
        cmocka_unit_test(a_head_that_only_one_device_reaches_is_joined_through_it),
        cmocka_unit_test(a_better_device_takes_over_between_requests),
        cmocka_unit_test(drift_has_the_planner_asked_again),
        cmocka_unit_test(no_request_is_lost_to_a_better_plan),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
