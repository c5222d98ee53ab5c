// The planner (cluster/planner.h): answers to the cluster's questions, the margin, corrections that follow devices, predictions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "pure/plan/prompt.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "sys/highs.h"
#include "testkit/equal_devices.h"
#include "tests/planner_context.h"

// Returns the layers that the plan gives to that device of the cluster.
static int layers_of(const kin_plan *plan, const kin_planner_question *a, int who) {
    for (int i = 0; i < a->n; i++) {
        if (a->ids[i].bytes[0] == who + 1) return plan->shares[i].n_layer;
    }
    return 0;
}

// Returns the device of the cluster at a stop.
static int who_at(const kin_plan *plan, const kin_planner_question *a, int stop) {
    return a->ids[plan->stops[stop].device].bytes[0] - 1;
}

static void the_answer_is_the_schedulers_plan(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_plan plan;
    kin_err err;
    kin_plan_options options = kin_plan_options_defaults();
    ask_about(&a, (int[]){0, 1, 2, 3}, 4);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &ring);
    assert_int_equal(kin_plan_exact(&a.facts, &options, &plan, &err), 0);
    assert_true(kin_plan_is_same(&ring, &plan));
    kin_planner_close(p);
}

static void without_devices_there_is_no_plan_until_one_has_joined(void **state) {
    (void)state;
    static kin_planner_question alone, both;
    kin_plan ring;
    kin_err err;
    ask_about(&alone, (int[]){0}, 1);
    ask_about(&both, (int[]){0, 1}, 2);
    kin_planner *p = open_planner("even", "exact");
    assert_int_equal(kin_planner_ask(p, &alone, &ring, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no device has joined yet"));
    answer_to(p, &both, &ring);
    answer_to(p, &alone, &ring);
    assert_int_equal(ring.n_stops, 1);
    kin_planner_close(p);
}

static void a_head_that_begins_alone_has_a_plan_at_once(void **state) {
    (void)state;
    static kin_planner_question alone;
    kin_plan ring;
    ask_about(&alone, (int[]){0}, 1);
    kin_planner_options o = options_of("even", "exact");
    o.begins_alone = true;
    kin_planner *p = open_with(&o);
    answer_to(p, &alone, &ring);
    assert_int_equal(ring.n_stops, 1);
    kin_planner_close(p);
}

static void a_little_better_changes_nothing_and_much_better_does(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan first, second, third;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &first);
    a.facts.devices[2].cpu.token_bytes_s[KIN_QUANT_Q4_K] *= 1.02;
    a.facts.devices[1].cpu.token_bytes_s[KIN_QUANT_Q4_K] *= 0.98;
    answer_to(p, &a, &second);
    assert_true(kin_plan_is_same(&first, &second));
    for (int q = 0; q < KIN_N_QUANT; q++) a.facts.devices[1].gpu.token_bytes_s[q] /= 50;
    answer_to(p, &a, &third);
    assert_true(layers_of(&third, &a, 1) < layers_of(&first, &a, 1));
    kin_planner_close(p);
}

// A joining device must fetch all its weights: by the thesis' rule that counts, for about a minute.
static void by_the_thesis_fetching_counts_against_a_better_plan(void **state) {
    (void)state;
    static kin_planner_question some, all;
    kin_plan first, margin, thesis;
    kin_planner_options o = kin_planner_options_defaults();
    kin_planner *p = open_planner("auto", "exact"), *q;
    kin_err err;
    o.head_name = "head";
    o.accept = "thesis";
    ask_about(&some, (int[]){0, 2}, 2);
    ask_about(&all, (int[]){0, 1, 2}, 3);
    for (int i = 1; i < 3; i++) all.facts.links[0][i].bytes_s = some.facts.links[0][1].bytes_s = 1e6; // minutes
    assert_int_equal(kin_planner_open(&q, &o, &cluster.model, &cluster.work, &err), 0);
    answer_to(p, &some, &first);
    answer_to(p, &all, &margin);
    answer_to(q, &some, &first);
    answer_to(q, &all, &thesis);
    assert_true(layers_of(&margin, &all, 1) > 0);
    assert_int_equal(layers_of(&thesis, &all, 1), 0);
    for (int who = 0; who < 3; who += 2) assert_int_equal(layers_of(&thesis, &all, who), layers_of(&first, &some, who));
    kin_planner_close(p);
    kin_planner_close(q);
    o.accept = "luck";
    assert_int_equal(kin_planner_open(&q, &o, &cluster.model, &cluster.work, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "must be margin or thesis"));
}

// With fast links only creating sessions counts: 38 ms while a ring is up, 302 ms before.
static void by_the_thesis_deploying_counts_more_before_a_ring_is_up(void **state) {
    (void)state;
    static kin_planner_question some, all;
    kin_planner_options o = options_of("auto", "memsched");
    o.accept = "thesis";
    ask_about(&some, (int[]){0, 2}, 2);
    ask_about(&all, (int[]){0, 1, 2}, 3);
    for (int i = 1; i < 3; i++) all.facts.links[0][i].bytes_s = some.facts.links[0][1].bytes_s = 1e12;
    for (int is_up = 0; is_up < 2; is_up++) {
        kin_planner *p = open_with(&o);
        kin_plan plan;
        some.number = is_up ? 0 : 1, all.number = is_up ? 0 : 2; // 0: the answer is active at once
        answer_to(p, &some, &plan);
        answer_to(p, &all, &plan);
        assert_int_equal(layers_of(&plan, &all, 1) > 0, is_up);
        kin_planner_close(p);
    }
}

static void a_device_without_layers_is_told_why(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    char why[KIN_PLAN_WHY_MAX];
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    int phone = kin_paper_device(&cluster, "phone");
    ask_about(&a, (int[]){0, 1, 2, 3}, 4);
    kin_planner *p = open_planner("auto", "exact");
    kin_planner_left_out(p, &a, phone, why);
    assert_string_equal(why, ""); // there is no answer yet
    answer_to(p, &a, &ring);
    for (int i = 1; i < 4; i++) {
        kin_planner_left_out(p, &a, i, why);
        if (i == phone)
            assert_string_equal(why, "it would add 27.1 ms/token");
        else
            assert_string_equal(why, "");
    }
    a.facts.devices[phone].disk_bytes_s = NAN;
    answer_to(p, &a, &ring);
    kin_planner_left_out(p, &a, phone, why);
    assert_non_null(strstr(why, "disk"));
    kin_planner_close(p);
}

static void a_device_without_layers_is_told_which_rule_gave_it_none(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    char why[KIN_PLAN_WHY_MAX];
    ask_about(&a, (int[]){0, 1, 2}, 3);
    a.candidates[2].memory = 1; // byte
    kin_planner *p = open_planner("memory", "exact");
    answer_to(p, &a, &ring);
    kin_planner_left_out(p, &a, 1, why);
    assert_string_equal(why, "");
    kin_planner_left_out(p, &a, 2, why);
    assert_string_equal(why, "--plan memory assigns no layers to it");
    kin_planner_close(p);
}

static void what_if_a_device_left_is_the_plan_of_the_rest_and_changes_nothing(void **state) {
    (void)state;
    static const char *const plans[] = {"auto", "even"};
    for (int i = 0; i < 2; i++) {
        static kin_planner_question all, less;
        kin_plan ring, without, alone, again;
        kin_err err;
        ask_about(&all, (int[]){0, 1, 2}, 3);
        ask_about(&less, (int[]){0, 2}, 2);
        kin_planner *p = open_planner(plans[i], "exact"), *other = open_planner(plans[i], "exact");
        answer_to(p, &all, &ring);
        answer_to(other, &less, &alone);
        if (kin_planner_without(p, &all, 1, &without, &err) != 0) fail_msg("%s", err.text);
        for (int who = 0; who < 3; who++) assert_int_equal(layers_of(&without, &all, who), layers_of(&alone, &less, who));
        assert_int_equal(layers_of(&without, &all, 1), 0);
        answer_to(p, &all, &again);
        assert_true(kin_plan_is_same(&ring, &again));
        kin_planner_close(p);
        kin_planner_close(other);
    }
}

static void without_a_member_there_is_another_plan(void **state) {
    (void)state;
    static kin_planner_question all, less;
    kin_plan ring;
    ask_about(&all, (int[]){0, 1, 2}, 3);
    ask_about(&less, (int[]){0, 2}, 2);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &all, &ring);
    assert_true(layers_of(&ring, &all, 1) > 0);
    answer_to(p, &less, &ring);
    assert_int_equal(layers_of(&ring, &less, 1), 0);
    assert_int_equal(layers_of(&ring, &less, 0) + layers_of(&ring, &less, 2), cluster.model.n_layer);
    kin_planner_close(p);
}

// Two of three equal devices have room for all layers. The first of them is lost; by its links the other one should now be first.
static void without_a_member_the_others_keep_their_places(void **state) {
    (void)state;
    static kin_planner_question all, less;
    kin_plan ring, then, beforehand;
    kin_err err;
    kin_equal_devices(&cluster, 4, 0.001);
    cluster.model.share_heads = 0; // no groups
    for (int i = 0; i < 4; i++) cluster.devices[i].memory_bytes = i == 0 ? 0.9e9 : 2.5e9;
    kin_planner *p = open_planner("auto", "exact");
    ask_about(&all, (int[]){0, 1, 2, 3}, 4);
    answer_to(p, &all, &ring);
    assert_int_equal(ring.n_stops, 3);
    int gone = who_at(&ring, &all, 1), stays = who_at(&ring, &all, 2), comes = 6 - gone - stays;
    cluster.links[0][stays].rtt_s = cluster.links[comes][0].rtt_s = 0.0009;
    ask_about(&all, (int[]){0, 1, 2, 3}, 4);
    if (kin_planner_without(p, &all, gone, &beforehand, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(who_at(&beforehand, &all, 1), comes);
    assert_int_equal(who_at(&beforehand, &all, 2), stays);
    ask_about(&less, (int[]){0, stays, comes}, 3);
    answer_to(p, &less, &then);
    assert_int_equal(who_at(&then, &less, 1), comes);
    assert_int_equal(who_at(&then, &less, 2), stays);
    kin_planner_close(p);
}

// A device is lost while another order of the ring is prepared: the remaining one keeps its present place.
static void a_proposal_gives_no_device_a_place(void **state) {
    (void)state;
    static kin_planner_question both, less;
    kin_plan ring, proposed, then;
    kin_equal_devices(&cluster, 4, 0.001);
    cluster.model.share_heads = 0; // no groups
    for (int i = 0; i < 4; i++) cluster.devices[i].memory_bytes = i == 0 ? 0.9e9 : 2.5e9;
    kin_planner *p = open_planner("auto", "exact");
    ask_about(&both, (int[]){0, 1, 2}, 3);
    both.number = 1;
    answer_to(p, &both, &ring);
    assert_int_equal(ring.n_stops, 3);
    kin_planner_in_force(p, 1);
    int gone = who_at(&ring, &both, 1), stays = who_at(&ring, &both, 2);
    cluster.links[gone][stays].rtt_s = 0.5;
    cluster.links[0][stays].rtt_s = cluster.links[3][0].rtt_s = 0.0009;
    ask_about(&both, (int[]){0, 1, 2}, 3);
    both.number = 2;
    answer_to(p, &both, &proposed);
    assert_int_equal(who_at(&proposed, &both, 1), stays);
    ask_about(&less, (int[]){0, stays, 3}, 3);
    less.number = 3;
    answer_to(p, &less, &then);
    assert_int_equal(who_at(&then, &less, 1), 3);
    assert_int_equal(who_at(&then, &less, 2), stays);
    kin_planner_close(p);
}

static void measured_of(kin_planner *p, const kin_planner_question *a, int who, double factor, kin_planner_measured *m) {
    *m = (kin_planner_measured){.n = 1, .ids = {{{(uint8_t)(who + 1)}}}};
    kin_facts facts;
    kin_plan plan;
    kin_prediction now;
    kin_err err;
    assert_true(kin_planner_last(p, &facts, &plan));
    assert_int_equal(kin_timeline_closed(&facts, &plan, &now, &err), 0);
    for (int i = 0; i < a->n; i++) {
        if (a->ids[i].bytes[0] == who + 1)
            m->members[0].compute_s = factor * (now.devices[i].compute_s + now.devices[i].windows_s);
    }
}
#define measured_of(...) FROM_TEST(measured_of(__VA_ARGS__))

static void what_was_measured_corrects_the_expectation_and_follows_its_device(void **state) {
    (void)state;
    static kin_planner_question all, less;
    kin_plan ring;
    kin_expectation e;
    kin_planner_measured m;
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_70B, 0); // all are needed
    ask_about(&all, (int[]){0, 1, 2}, 3);
    ask_about(&less, (int[]){0, 2}, 2);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &all, &ring);
    assert_true(kin_planner_expects(p, &e));
    assert_true(e.before.tpot_s == e.corrected.tpot_s);
    measured_of(p, &all, 2, 1.5, &m);
    kin_planner_add_measured(p, &m);
    assert_true(kin_planner_expects(p, &e));
    assert_true(e.corrected.devices[2].compute_s > 1.4 * e.before.devices[2].compute_s);
    assert_true(e.corrected.devices[1].compute_s == e.before.devices[1].compute_s);
    answer_to(p, &less, &ring); // the same device is the second now
    assert_true(kin_planner_expects(p, &e));
    assert_true(e.corrected.devices[1].compute_s > 1.4 * e.before.devices[1].compute_s);
    kin_planner_close(p);
}

static void it_wants_to_be_asked_again_only_if_another_plan_would_win(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan first, second;
    kin_planner_measured m;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &first);
    measured_of(p, &a, 1, 1.001, &m);
    assert_false(kin_planner_add_measured(p, &m));
    measured_of(p, &a, 1, 9, &m); // the host PC is busy with something else
    assert_true(kin_planner_add_measured(p, &m));
    answer_to(p, &a, &second);
    assert_true(layers_of(&second, &a, 1) < layers_of(&first, &a, 1));
    kin_planner_close(p);
}

// A ring in which all three are needed: by its corrections the other order, which was not tried, looks faster, but it would not
// be chosen.
static void hops_that_are_slow_do_not_ask_for_an_order_that_does_not_come(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan first, second;
    kin_equal_devices(&cluster, 3, 0.001);
    cluster.model.share_heads = 0; // no groups
    for (int i = 0; i < 3; i++) cluster.devices[i].memory_bytes = i == 0 ? 0.9e9 : 2.5e9;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &first);
    assert_int_equal(first.n_stops, 3);
    kin_expectation e;
    assert_true(kin_planner_expects(p, &e));
    const kin_planner_measured m = {.n = 1, .ids = {{{1}}}, .members = {{.hop_s = 10 * e.before.hops_s}}};
    assert_false(kin_planner_add_measured(p, &m));
    answer_to(p, &a, &second);
    assert_true(kin_plan_is_same(&first, &second));
    kin_planner_close(p);
}

// Two workers are faster than the head, which has room for all layers. Their hops take ten times as long as measured before.
static void where_hops_turn_out_to_be_slow_the_head_goes_on_alone(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan first, second;
    kin_expectation e;
    kin_equal_devices(&cluster, 3, 0.004);
    cluster.model.share_heads = 0; // no groups
    for (int i = 1; i < 3; i++) {
        for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[i].cpu.token_bytes_s[q] *= 2;
        cluster.devices[i].memory_bytes = 2.5e9;
    }
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &first);
    assert_int_equal(first.n_stops, 3);
    assert_true(kin_planner_expects(p, &e));
    const kin_planner_measured m = {.n = 1, .ids = {{{1}}}, .members = {{.hop_s = 10 * e.before.hops_s}}};
    assert_true(kin_planner_add_measured(p, &m));
    answer_to(p, &a, &second);
    assert_int_equal(second.n_stops, 1);
    kin_planner_close(p);
}

static void tokens_as_predicted_never_ask_again(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_planner_measured m;
    kin_paper_facts(&cluster, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 0); // it streams: simulated and closed-form times differ
    ask_about(&a, (int[]){0, 1, 2, 3}, 4);
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &ring);
    for (int who = 0; who < 4; who++) {
        measured_of(p, &a, who, 1, &m);
        assert_false(kin_planner_add_measured(p, &m));
    }
    kin_planner_close(p);
}

// ---- a processor that is fast after a rest and slow under load

// Three devices, all of which are needed. `who` is 1.5 times as fast as the others; with more than a third of the layers it takes
// `slow` times as long as predicted.
typedef struct moody_home {
    kin_planner_question a;
    kin_planner *planner;
    kin_plan ring;
    int who;
    double slow;
    int n_changes; // of the plan
} moody_home;

static void open_moody_home(moody_home *h, int who, double slow, double hold_s) {
    kin_planner_options o = options_of("auto", "exact");
    o.hold_s = hold_s;
    kin_equal_devices(&cluster, 3, 0.001);
    cluster.model.share_heads = 0; // no groups
    for (int i = 0; i < 3; i++) cluster.devices[i].memory_bytes = 1.9e9;
    for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[who].cpu.token_bytes_s[q] *= 1.5;
    *h = (moody_home){.planner = open_with(&o), .who = who, .slow = slow};
    ask_about(&h->a, (int[]){0, 1, 2}, 3);
    answer_to(h->planner, &h->a, &h->ring);
}
#define open_moody_home(...) FROM_TEST(open_moody_home(__VA_ARGS__))

// Measures each member's tokens; the plan changes if the planner asks for it.
static void measure_home(moody_home *h) {
    bool asks = false;
    for (int who = 0; who < 3; who++) {
        kin_planner_measured m;
        int n = layers_of(&h->ring, &h->a, who);
        if (n == 0) continue;
        measured_of(h->planner, &h->a, who, who == h->who && 3 * n > cluster.model.n_layer ? h->slow : 1, &m);
        asks = kin_planner_add_measured(h->planner, &m) || asks;
    }
    if (!asks) return;
    kin_plan before = h->ring;
    answer_to(h->planner, &h->a, &h->ring);
    h->n_changes += !kin_plan_is_same(&before, &h->ring);
}
#define measure_home(...) FROM_TEST(measure_home(__VA_ARGS__))

static void a_processor_that_is_slow_under_load_settles_on_one_plan(void **state) {
    (void)state;
    static moody_home forgetful, h;
    for (int who = 0; who < 3; who++) {
        open_moody_home(&forgetful, who, 3, 0);
        for (int i = 0; i < 30; i++) measure_home(&forgetful);
        assert_true(forgetful.n_changes > 10); // without held corrections it flips forever
        kin_planner_close(forgetful.planner);
        open_moody_home(&h, who, 3, 60);
        for (int i = 0; i < 30; i++) measure_home(&h);
        print_message("device %d: %d changes of the plan, not %d\n", who, h.n_changes, forgetful.n_changes);
        assert_in_range(h.n_changes, 1, 2);
        assert_true(3 * layers_of(&h.ring, &h.a, who) <= cluster.model.n_layer);
        kin_planner_close(h.planner);
    }
}

static void a_processor_that_has_become_fast_gets_its_layers_back(void **state) {
    (void)state;
    static moody_home h;
    open_moody_home(&h, 1, 3, 0.2);
    int n_layers = layers_of(&h.ring, &h.a, 1);
    measure_home(&h);
    assert_true(layers_of(&h.ring, &h.a, 1) < n_layers);
    h.slow = 1;
    for (int i = 0; i < 50 && layers_of(&h.ring, &h.a, 1) < n_layers; i++) {
        usleep(20000);
        measure_home(&h);
    }
    assert_int_equal(layers_of(&h.ring, &h.a, 1), n_layers);
    for (int i = 0; i < 5; i++) measure_home(&h);
    assert_int_equal(h.n_changes, 2);
    kin_planner_close(h.planner);
}

static void a_processor_that_becomes_slow_loses_its_layers_at_once(void **state) {
    (void)state;
    static moody_home h;
    open_moody_home(&h, 1, 1, 60);
    int n_layers = layers_of(&h.ring, &h.a, 1);
    measure_home(&h);
    assert_int_equal(h.n_changes, 0);
    h.slow = 3;
    measure_home(&h);
    assert_true(layers_of(&h.ring, &h.a, 1) < n_layers);
    kin_planner_close(h.planner);
}

// In a day that begins with two minutes.
static void what_is_held_is_tried_again_less_and_less_often(void **state) {
    (void)state;
    kin_corrections c;
    int n_tries = 0;
    kin_corrections_init(&c);
    for (double now_s = 0; now_s < 24 * 3600; now_s++) {
        c.devices[1].cpu = 3;
        if (kin_corrections_held(&c, now_s).devices[1].cpu == 3 && now_s < c.devices[1].held.until_s) continue;
        kin_corrections_hold(&c, 1, now_s, 120);
        n_tries++;
        c.devices[1].cpu = 1;
        assert_true(kin_corrections_held(&c, now_s).devices[1].cpu == 3);
    }
    assert_in_range(n_tries, 2, 8);
}

static int layers_in_force(kin_planner *p, int device) {
    kin_facts facts;
    kin_plan plan;
    assert_true(kin_planner_last(p, &facts, &plan));
    return plan.shares[device].n_layer;
}
#define layers_in_force(...) FROM_TEST(layers_in_force(__VA_ARGS__))

// A proposal is prepared beside the active ring, whose tokens are measured meanwhile.
static void a_better_plan_counts_when_it_is_in_force(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan first, second, again;
    kin_planner_measured m;
    kin_expectation before, then;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("auto", "exact");
    a.number = 3;
    answer_to(p, &a, &first);
    assert_false(kin_planner_expects(p, &before));
    kin_planner_in_force(p, 3);
    measured_of(p, &a, 1, 9, &m);
    assert_true(kin_planner_add_measured(p, &m));
    assert_true(kin_planner_expects(p, &before));
    a.number = 4;
    answer_to(p, &a, &second);
    assert_true(layers_of(&second, &a, 1) < layers_of(&first, &a, 1));
    assert_int_equal(layers_in_force(p, 1), layers_of(&first, &a, 1));
    measured_of(p, &a, 1, 9.1, &m); // from the active ring
    assert_false(kin_planner_add_measured(p, &m));
    assert_true(kin_planner_expects(p, &then));
    assert_true(fabs(then.corrected.tpot_s - before.corrected.tpot_s) < 0.02 * before.corrected.tpot_s);
    a.number = 5;
    answer_to(p, &a, &again); // unchanged; the membership continues to prepare question 4's answer
    assert_true(kin_plan_is_same(&second, &again));
    kin_planner_in_force(p, 4);
    assert_int_equal(layers_in_force(p, 1), layers_of(&second, &a, 1));
    assert_true(kin_planner_expects(p, &then));
    assert_true(then.corrected.tpot_s < 0.95 * before.corrected.tpot_s);
    kin_planner_close(p);
}

static void what_is_measured_deep_in_the_cache_is_held_against_that_depth(void **state) {
    (void)state;
    kin_expectation e;
    kin_prediction deep;
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    cluster.devices[0].cpu.read_bytes_s = 1e8; // so that attention counts
    kin_planner *p = open_planner("auto", "exact");
    assert_int_equal(kin_planner_set_standalone(p, &cluster.devices[0], &(kin_layer_share){cluster.model.n_layer, 0, 0}, &err),
                     0);
    assert_true(kin_planner_last(p, &facts, &plan));
    facts.work.n_cached = 3000;
    assert_int_equal(kin_timeline_predict(&facts, &plan, &deep, &err), 0);
    kin_planner_measured m = {
        .n = 1, .n_cached = 3000, .members = {{.compute_s = deep.devices[0].compute_s + deep.devices[0].windows_s}}};
    kin_planner_add_measured(p, &m);
    assert_true(kin_planner_expects(p, &e));
    assert_true(fabs(e.corrected.tpot_s - e.before.tpot_s) < 1e-6 * e.before.tpot_s);
    kin_planner_close(p);
}

static void texts_are_divided_by_the_tokens_that_they_have_and_by_what_was_measured(void **state) {
    (void)state;
    kin_batching share, same, deep, slow;
    kin_prediction now;
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    cluster.work.n_cached = 800;
    kin_planner *p = open_planner("auto", "exact");
    assert_false(kin_planner_batching(p, 4, -1, 16, &share)); // there is no plan yet
    assert_int_equal(kin_planner_chunk_worth(p), 0);
    assert_int_equal(kin_planner_set_standalone(p, &cluster.devices[0], &(kin_layer_share){cluster.model.n_layer, 0, 0}, &err),
                     0);
    assert_true(kin_planner_batching(p, 4, -1, 16, &share) && kin_planner_batching(p, 4, 200, 16, &same));
    assert_true(share.rate == same.rate);
    assert_int_equal(kin_planner_chunk_worth(p), KIN_PROMPT_CHUNK_LEAST); // nothing is streamed
    assert_true(kin_planner_batching(p, 4, 2000, 16, &deep));
    assert_true(deep.rate < share.rate);
    assert_true(kin_planner_last(p, &facts, &plan));
    assert_int_equal(kin_timeline_predict(&facts, &plan, &now, &err), 0);
    kin_planner_add_measured(p, &(kin_planner_measured){.n = 1, .members = {{.compute_s = 2 * now.compute_s}}});
    assert_true(kin_planner_batching(p, 4, 200, 16, &slow) && slow.rate < 0.95 * share.rate);
    assert_true(kin_planner_batching(p, 1, 800, 16, &slow));
    assert_true(fabs(slow.rate * now.tpot_s - 0.5) < 0.05);
    kin_planner_close(p);
}

static void nonsense_of_one_device_does_not_sink_the_others(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    a.facts.devices[1].memory_bytes = 1e15;
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &ring);
    assert_int_equal(layers_of(&ring, &a, 1), 0);
    a.facts.devices[0].memory_bytes = -1; // the head's facts are a failure
    kin_err err;
    assert_int_equal(kin_planner_ask(p, &a, &ring, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the head's facts: memory is negative"));
    kin_planner_close(p);
}

static void a_plan_by_rule_is_predicted_too(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_expectation e;
    kin_facts facts;
    kin_plan plan;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    kin_planner *p = open_planner("even", "exact");
    answer_to(p, &a, &ring);
    assert_int_equal(ring.n_rounds, 1);
    assert_true(kin_planner_last(p, &facts, &plan));
    assert_int_equal(plan.shares[0].n_layer + plan.shares[1].n_layer + plan.shares[2].n_layer, cluster.model.n_layer);
    assert_true(kin_planner_expects(p, &e) && e.before.tpot_s > 0);
    kin_planner_close(p);
}

static void links_that_are_measured_late_complete_the_prediction(void **state) {
    (void)state;
    static const int order[] = {0, 2, 1}; // of the ring, not the question's
    static kin_planner_question whole, early;
    static kin_facts by_now;
    kin_plan ring;
    kin_expectation known, late;
    ask_about(&whole, (int[]){0, 1, 2}, 3);
    ask_about(&early, (int[]){0, 1, 2}, 3);
    early.facts.links[1][2] = early.facts.links[2][1] = (kin_link_facts){0};
    kin_planner *p = open_planner("even", "exact"), *q = open_planner("even", "exact");
    answer_to(p, &whole, &ring);
    answer_to(q, &early, &ring);
    assert_true(kin_planner_expects(p, &known));
    assert_false(kin_planner_expects(q, &late));
    kin_planner_measured m = {.n = 3, .facts = &by_now};
    for (int i = 0; i < 3; i++) m.ids[i] = whole.ids[order[i]];
    assert_false(kin_planner_add_measured(q, &m)); // still not known
    assert_false(kin_planner_expects(q, &late));
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) by_now.links[i][k] = whole.facts.links[order[i]][order[k]];
    }
    assert_false(kin_planner_add_measured(q, &m));
    assert_true(kin_planner_expects(q, &late));
    assert_true(late.before.tpot_s == known.before.tpot_s);
    kin_planner_close(p);
    kin_planner_close(q);
}

static void links_that_make_no_simple_ring_leave_devices_out(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    a.facts.links[0][1].bytes_s = a.facts.links[1][0].bytes_s = 0; // the host PC is reached only through the Mac, there and back
    for (int q = 0; q < KIN_N_QUANT; q++) a.facts.devices[0].cpu.token_bytes_s[q] /= 100;
    kin_planner *p = open_planner("auto", "exact");
    answer_to(p, &a, &ring);
    for (int i = 0; i < ring.n_stops; i++) {
        for (int k = 0; k < i; k++) assert_int_not_equal(ring.stops[i].device, ring.stops[k].device);
    }
    kin_planner_close(p);
}

static void a_machine_alone_has_an_expectation(void **state) {
    (void)state;
    kin_expectation e;
    kin_err err;
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_8B, 0);
    kin_planner *p = open_planner("auto", "exact");
    assert_false(kin_planner_expects(p, &e));
    assert_int_equal(kin_planner_set_standalone(p, &cluster.devices[0], &(kin_layer_share){cluster.model.n_layer, 4, 0}, &err),
                     0);
    assert_true(kin_planner_expects(p, &e));
    double before = e.before.tpot_s;
    kin_planner_measured m = {.n = 1, .members = {{.compute_s = 2 * before}}};
    assert_false(kin_planner_add_measured(p, &m));
    assert_true(kin_planner_expects(p, &e));
    assert_true(fabs(e.corrected.tpot_s - 2 * before) < 0.01 * before);
    kin_device_facts nothing = {0};
    assert_int_equal(kin_planner_set_standalone(p, &nothing, &(kin_layer_share){cluster.model.n_layer, 0, 0}, &err), KIN_FAIL);
    assert_false(kin_planner_expects(p, &e));
    kin_planner_close(p);
}

static void a_dry_run_gives_devices_no_work_but_sees_the_facts(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan ring;
    kin_planner *p;
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_planner_options o = kin_planner_options_defaults();
    o.dry_run = true;
    ask_about(&a, (int[]){0, 1}, 2);
    assert_int_equal(kin_planner_open(&p, &o, &cluster.model, &cluster.work, &err), 0);
    assert_false(kin_planner_last(p, &facts, &plan));
    answer_to(p, &a, &ring);
    assert_int_equal(ring.n_stops, 1);
    assert_int_equal(ring.shares[0].n_layer, cluster.model.n_layer);
    assert_true(kin_planner_last(p, &facts, &plan));
    assert_int_equal(facts.n_device, 2);
    kin_planner_close(p);
}

static void names_that_are_none_are_said(void **state) {
    (void)state;
    kin_planner *p;
    kin_err err;
    kin_planner_options o = kin_planner_options_defaults();
    o.scheduler = "guess";
    assert_int_equal(kin_planner_open(&p, &o, &cluster.model, &cluster.work, &err), KIN_FAIL);
    assert_string_equal(err.text, "--scheduler guess: must be one of exact, halda, memsched, perfsched, fill-gpus, dp-sa");
}

static void assert_refused(const kin_planner_options *o, const char *sentence) {
    kin_planner *p;
    kin_err err;
    assert_int_equal(kin_planner_open(&p, o, &cluster.model, &cluster.work, &err), KIN_FAIL);
    if (!strstr(err.text, sentence)) fail_msg("'%s', not '%s'", err.text, sentence);
}
#define assert_refused(...) FROM_TEST(assert_refused(__VA_ARGS__))

static void options_that_a_scheduler_would_ignore_are_refused(void **state) {
    (void)state;
    kin_planner_options o = options_of("auto", "perfsched");
    o.n_rounds = 2;
    assert_refused(&o, "perfsched chooses the number of rounds itself");
    o.scheduler = "dp-sa";
    assert_refused(&o, "dp-sa chooses the number of rounds itself");
    o = options_of("auto", "exact");
    o.halda = "released";
    assert_refused(&o, "--halda released: only --scheduler halda has it, not exact");
    o = options_of("even", "halda");
    o.halda = "released";
    assert_refused(&o, "--halda released: --plan even uses no scheduler");
    if (!kin_highs_is_there()) return;
    o = options_of("auto", "halda");
    o.halda = "both";
    assert_refused(&o, "--halda both: must be published or released");
}

// With the released objective the host PC of A.4 has no layer on its CPU.
static void halda_plans_by_the_objective_that_was_asked_for(void **state) {
    (void)state;
    static kin_planner_question a;
    if (!kin_highs_is_there()) skip();
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    ask_about(&a, (int[]){0, 1, 2, 3}, 4);
    for (int i = 0; i < 2; i++) {
        kin_planner_options o = options_of("auto", "halda");
        kin_plan plan;
        o.halda = i ? "released" : "published";
        kin_planner *p = open_with(&o);
        answer_to(p, &a, &plan);
        assert_int_equal(layers_of(&plan, &a, 1), i ? 19 : 29);
        kin_planner_close(p);
    }
}

static void a_ring_has_the_rounds_that_were_asked_for_or_none(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan plan;
    kin_err err;
    if (!kin_highs_is_there()) skip();
    kin_planner_options o = options_of("auto", "halda");
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_70B, 0);
    ask_about(&a, (int[]){0, 1, 2, 3}, 4);
    o.n_rounds = 2;
    kin_planner *p = open_with(&o);
    answer_to(p, &a, &plan);
    assert_int_equal(plan.n_rounds, 2);
    kin_planner_close(p);
    o.n_rounds = 7;
    p = open_with(&o);
    assert_int_equal(kin_planner_ask(p, &a, &plan, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "halda: 80 layers cannot be divided into 7 rounds"));
    kin_planner_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_answer_is_the_schedulers_plan, setup),
        cmocka_unit_test_setup(without_devices_there_is_no_plan_until_one_has_joined, setup),
        cmocka_unit_test_setup(a_head_that_begins_alone_has_a_plan_at_once, setup),
        cmocka_unit_test_setup(a_little_better_changes_nothing_and_much_better_does, setup),
        cmocka_unit_test_setup(by_the_thesis_fetching_counts_against_a_better_plan, setup),
        cmocka_unit_test_setup(by_the_thesis_deploying_counts_more_before_a_ring_is_up, setup),
        cmocka_unit_test_setup(a_device_without_layers_is_told_why, setup),
        cmocka_unit_test_setup(a_device_without_layers_is_told_which_rule_gave_it_none, setup),
        cmocka_unit_test_setup(what_if_a_device_left_is_the_plan_of_the_rest_and_changes_nothing, setup),
        cmocka_unit_test_setup(without_a_member_there_is_another_plan, setup),
        cmocka_unit_test_setup(without_a_member_the_others_keep_their_places, setup),
        cmocka_unit_test_setup(a_proposal_gives_no_device_a_place, setup),
        cmocka_unit_test_setup(what_was_measured_corrects_the_expectation_and_follows_its_device, setup),
        cmocka_unit_test_setup(it_wants_to_be_asked_again_only_if_another_plan_would_win, setup),
        cmocka_unit_test_setup(hops_that_are_slow_do_not_ask_for_an_order_that_does_not_come, setup),
        cmocka_unit_test_setup(where_hops_turn_out_to_be_slow_the_head_goes_on_alone, setup),
        cmocka_unit_test_setup(tokens_as_predicted_never_ask_again, setup),
        cmocka_unit_test_setup(a_processor_that_is_slow_under_load_settles_on_one_plan, setup),
        cmocka_unit_test_setup(a_processor_that_has_become_fast_gets_its_layers_back, setup),
        cmocka_unit_test_setup(a_processor_that_becomes_slow_loses_its_layers_at_once, setup),
        cmocka_unit_test_setup(what_is_held_is_tried_again_less_and_less_often, setup),
        cmocka_unit_test_setup(a_better_plan_counts_when_it_is_in_force, setup),
        cmocka_unit_test_setup(what_is_measured_deep_in_the_cache_is_held_against_that_depth, setup),
        cmocka_unit_test_setup(texts_are_divided_by_the_tokens_that_they_have_and_by_what_was_measured, setup),
        cmocka_unit_test_setup(nonsense_of_one_device_does_not_sink_the_others, setup),
        cmocka_unit_test_setup(a_plan_by_rule_is_predicted_too, setup),
        cmocka_unit_test_setup(links_that_are_measured_late_complete_the_prediction, setup),
        cmocka_unit_test_setup(links_that_make_no_simple_ring_leave_devices_out, setup),
        cmocka_unit_test_setup(a_machine_alone_has_an_expectation, setup),
        cmocka_unit_test_setup(a_dry_run_gives_devices_no_work_but_sees_the_facts, setup),
        cmocka_unit_test_setup(names_that_are_none_are_said, setup),
        cmocka_unit_test_setup(options_that_a_scheduler_would_ignore_are_refused, setup),
        cmocka_unit_test_setup(halda_plans_by_the_objective_that_was_asked_for, setup),
        cmocka_unit_test_setup(a_ring_has_the_rounds_that_were_asked_for_or_none, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
