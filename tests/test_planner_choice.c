// How the planner chooses (cluster/planner.h): the thesis' rule for missing layers, new and far devices, rounds, rules, and its
// messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "pure/papers/acceptance.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/equal_devices.h"
#include "tests/planner_context.h"

// ---- lines of the log that contain a text

static struct {
    const char *text;
    kin_log_level level;
    int n;
    char last[512];
} heard;

static void hear(void *user, kin_log_level level, const char *line) {
    (void)user;
    if (level != heard.level || !strstr(line, heard.text)) return;
    heard.n++;
    snprintf(heard.last, sizeof heard.last, "%s", line);
}

static void listen_for(kin_log_level level, const char *text) {
    memset(&heard, 0, sizeof heard);
    heard.level = level;
    heard.text = text;
    kin_log_set_sink(hear, NULL);
}

static int stop_listening(void **state) {
    (void)state;
    kin_log_set_sink(NULL, NULL);
    return 0;
}

// ---- the thesis' rule

static double tpot_of(const kin_facts *facts, const kin_plan *plan) {
    kin_prediction p;
    kin_err err;
    if (kin_timeline_predict(facts, plan, &p, &err) != 0) fail_msg("%s", err.text);
    return p.tpot_s;
}

static void mark_layers(const kin_plan *plan, int device, bool *has) {
    kin_windows windows;
    kin_plan_windows(plan, device, &windows);
    for (int i = 0; i < windows.n; i++)
        for (int il = windows.at[i].layer_begin; il < windows.at[i].layer_end; il++) has[il] = true;
}

// True if the rule accepts the candidate: a device fetches the layers that it has not.
static bool thesis_says(const kin_facts *facts, const kin_plan *present, const kin_plan *candidate, bool is_up) {
    kin_acceptance_options o = kin_acceptance_options_published();
    kin_acceptance_cost cost = kin_acceptance_cost_of(tpot_of(facts, candidate) * 1e6, 0);
    for (int i = 1; i < facts->n_device; i++) {
        bool had[64] = {false}, gets[64] = {false};
        int n_missing = 0;
        if (candidate->shares[i].n_layer == 0) continue;
        mark_layers(present, i, had);
        mark_layers(candidate, i, gets);
        for (int il = 0; il < facts->model.n_layer; il++) n_missing += gets[il] && !had[il];
        const double bytes = n_missing * kin_facts_layer_bytes(&facts->model);
        const double penalty =
            kin_acceptance_penalty(&o, kin_acceptance_init_us(&o, bytes, facts->links[0][i].bytes_s), is_up, 0);
        cost = kin_acceptance_add(cost, kin_acceptance_cost_of(0, penalty));
    }
    return kin_acceptance_accepts(&o, &cost, tpot_of(facts, present) * 1e6);
}

// Three devices, all of which are needed, of which the second is slower than the others at first, and faster then.
typedef struct change {
    kin_planner_question before, then;
} change;

static void make_change(change *c, bool is_up) {
    kin_equal_devices(&cluster, 3, 0.001);
    cluster.model.share_heads = 0; // no groups
    for (int i = 0; i < 3; i++) {
        cluster.devices[i].memory_bytes = 1.9e9;
        cluster.devices[i].disk_bytes_s = 0; // nothing is streamed
        for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[i].cpu.token_bytes_s[q] = (is_up ? 2e9 : 2e8) * (1 + 0.3 * i);
    }
    for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[1].cpu.token_bytes_s[q] *= 4;
    ask_about(&c->then, (int[]){0, 1, 2}, 3);
    for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[1].cpu.token_bytes_s[q] /= 32;
    ask_about(&c->before, (int[]){0, 1, 2}, 3);
    if (is_up) return; // answers are active at once
    c->before.number = 1;
    c->then.number = 2;
}

// The head sends to both, to the last one three times as fast.
static void set_links(change *c, double bytes_s) {
    for (int i = 1; i < 3; i++)
        c->before.facts.links[0][i].bytes_s = c->then.facts.links[0][i].bytes_s = bytes_s * (i == 2 ? 3 : 1);
}

static void answer_change(const change *c, const char *accept, kin_plan *first, kin_plan *second) {
    kin_planner_options o = options_of("auto", "exact");
    o.accept = accept;
    kin_planner *p = open_with(&o);
    answer_to(p, &c->before, first);
    answer_to(p, &c->then, second);
    kin_planner_close(p);
}
#define answer_change(...) FROM_TEST(answer_change(__VA_ARGS__))

// Finds the rate of links at which the rule just accepts, and asks the planner on both sides of it.
static void by_the_thesis_only_missing_layers_are_fetched(void **state) {
    (void)state;
    static change c;
    for (int is_up = 0; is_up < 2; is_up++) {
        kin_plan present, candidate, first, second;
        double low, high = 1e8;
        make_change(&c, is_up);
        for (int again = 0; again < 3; again++) { // the plans depend a little on the rate
            set_links(&c, high);
            answer_change(&c, "margin", &present, &candidate);
            assert_false(kin_plan_is_same(&present, &candidate));
            low = 1e5, high = 1e10;
            for (int i = 0; i < 60; i++) {
                const double middle = sqrt(low * high);
                set_links(&c, middle);
                *(thesis_says(&c.then.facts, &present, &candidate, is_up) ? &high : &low) = middle;
            }
        }
        print_message("%s a ring: from %.3g bytes per second on\n", is_up ? "with" : "before", high);
        assert_true(low > 2e5 && high < 5e9);
        for (int accepts = 0; accepts < 2; accepts++) {
            set_links(&c, high * (accepts ? 1.02 : 0.98));
            answer_change(&c, "margin", &first, &second);
            assert_true(kin_plan_is_same(&first, &present) && kin_plan_is_same(&second, &candidate));
            answer_change(&c, "thesis", &first, &second);
            assert_true(kin_plan_is_same(&second, accepts ? &candidate : &present));
        }
    }
}

// ---- the margin

// Only groups need no margin when a device has joined.
static void a_newcomer_that_makes_a_ring_a_little_faster_changes_nothing(void **state) {
    (void)state;
    static kin_planner_question alone, both;
    kin_plan_options options = kin_plan_options_defaults();
    kin_plan one, two, plan;
    kin_err err;
    double ratio = 0;
    kin_equal_devices(&cluster, 2, 0.001);
    cluster.model.share_heads = 0; // no groups
    ask_about(&alone, (int[]){0}, 1);
    for (double speed = 4; ratio < 0.955 && speed > 1; speed *= 0.97) {
        for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[1].cpu.token_bytes_s[q] = 45e9 * speed;
        ask_about(&both, (int[]){0, 1}, 2);
        if (kin_plan_exact(&alone.facts, &options, &one, &err) != 0 || kin_plan_exact(&both.facts, &options, &two, &err) != 0)
            fail_msg("%s", err.text);
        ratio = tpot_of(&both.facts, &two) / tpot_of(&alone.facts, &one);
    }
    assert_true(ratio >= 0.955 && ratio < 0.995);
    kin_planner_options o = options_of("auto", "exact");
    o.begins_alone = true;
    kin_planner *p = open_with(&o), *q = open_with(&o);
    answer_to(p, &alone, &plan);
    answer_to(p, &both, &plan);
    assert_int_equal(plan.n_stops, 1);
    answer_to(q, &both, &plan); // as the first answer it is taken
    assert_int_equal(plan.n_stops, 2);
    kin_planner_close(p);
    kin_planner_close(q);
}

// While it is prepared, a proposal has the margin, too. Another device is just fast enough, or not quite, to compute all layers.
static void a_proposal_stays_until_another_plan_is_much_better(void **state) {
    (void)state;
    static kin_planner_question slow, fast;
    kin_plan_options options = kin_plan_options_defaults();
    kin_plan plan = {.n_stops = 1}, first, second;
    kin_err err;
    kin_equal_devices(&cluster, 2, 0.001);
    cluster.model.share_heads = 0; // no groups
    ask_about(&fast, (int[]){0, 1}, 2);
    for (int i = 0; i < 100 && plan.n_stops == 1; i++) {
        slow = fast;
        for (int q = 0; q < KIN_N_QUANT; q++) fast.facts.devices[1].cpu.token_bytes_s[q] *= 1.005;
        if (kin_plan_exact(&fast.facts, &options, &plan, &err) != 0) fail_msg("%s", err.text);
    }
    assert_int_equal(plan.n_stops, 2);
    kin_planner *p = open_planner("auto", "exact");
    slow.number = 1;
    fast.number = 2;
    answer_to(p, &slow, &first);
    assert_int_equal(first.n_stops, 1);
    answer_to(p, &fast, &second);
    assert_true(kin_plan_is_same(&first, &second));
    kin_planner_close(p);
}

// ---- links, rounds

// The second device does not hear the head, or the head not it but by a slow way: a ring through it would pass the third one
// twice.
static void a_device_without_a_link_to_or_from_the_head_is_left_out(void **state) {
    (void)state;
    static kin_planner_question a;
    for (int from = 0; from < 2; from++) {
        kin_plan plan;
        kin_equal_devices(&cluster, 3, 0.001);
        cluster.model.share_heads = 0; // no groups
        for (int i = 1; i < 3; i++)
            for (int q = 0; q < KIN_N_QUANT; q++) cluster.devices[i].cpu.token_bytes_s[q] *= 10;
        for (int i = 0; i < 3; i++) cluster.devices[i].memory_bytes = 2.6e9;
        cluster.links[from][!from].bytes_s = 0;
        cluster.links[!from][from].rtt_s = 0.5;
        ask_about(&a, (int[]){0, 1, 2}, 3);
        kin_planner *p = open_planner("auto", "exact");
        answer_to(p, &a, &plan);
        assert_int_equal(plan.shares[1].n_layer, 0);
        assert_true(plan.shares[2].n_layer > 0);
        kin_planner_close(p);
    }
}

static void the_rounds_that_were_asked_for_leave_no_group_and_one_machine_has_one(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan plan;
    kin_planner_options o = options_of("auto", "exact");
    kin_equal_devices(&cluster, 2, 1e-4);
    for (int i = 0; i < 2; i++) cluster.devices[i].memory_bytes = 2.7e9;
    ask_about(&a, (int[]){0, 1}, 2);
    o.begins_alone = true;
    for (int n_rounds = 0; n_rounds <= 2; n_rounds += 2) {
        o.n_rounds = n_rounds;
        kin_planner *p = open_with(&o);
        answer_to(p, &a, &plan);
        assert_int_equal(plan.groups.n, n_rounds == 0);
        if (n_rounds > 0) assert_int_equal(plan.n_rounds, n_rounds);
        kin_planner_close(p);
    }
    cluster.devices[0].memory_bytes = 16e9;
    ask_about(&a, (int[]){0}, 1);
    kin_planner *p = open_with(&o);
    answer_to(p, &a, &plan);
    assert_int_equal(plan.n_rounds, 1);
    kin_planner_close(p);
}

// ---- rules

static void as_many_devices_share_layers_as_the_model_s_pieces_allow(void **state) {
    (void)state;
    static const struct {
        int n_heads, n_ff, n_devices, n_ranks;
    } cases[] = {{2, 56, 3, 2}, {56, 3, 4, 3}, {56, 56, 10, KIN_GROUP_MAX}, {8, 56, 3, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static kin_planner_question a;
        const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        kin_plan plan;
        kin_equal_devices(&cluster, cases[i].n_devices, 1e-4);
        cluster.model.share_heads = cases[i].n_heads;
        cluster.model.share_ff = cases[i].n_ff;
        ask_about(&a, all, cases[i].n_devices);
        kin_planner *p = open_planner("tp", "exact");
        answer_to(p, &a, &plan);
        assert_int_equal(plan.groups.n, 1);
        assert_int_equal(plan.groups.groups[0].n, cases[i].n_ranks);
        kin_planner_close(p);
    }
}

static void devices_for_which_there_is_no_share_are_told_once(void **state) {
    (void)state;
    static kin_planner_question a;
    const int all[] = {0, 1, 2, 3};
    kin_plan plan;
    kin_equal_devices(&cluster, 4, 1e-4);
    cluster.model.share_heads = 2;
    kin_planner *p = open_planner("tp", "exact"), *even = open_planner("even", "exact");
    listen_for(KIN_LOG_WARN, "can share the layers of this model");
    for (int n = 2; n <= 4; n++) {
        ask_about(&a, all, n);
        for (int again = 0; again < 2; again++) answer_to(p, &a, &plan);
        answer_to(even, &a, &plan);
        assert_int_equal(heard.n, n - 2);
        if (n == 3)
            assert_string_equal(heard.last, "2 devices can share the layers of this model, but 3 have joined: 1 has none");
    }
    assert_string_equal(heard.last, "2 devices can share the layers of this model, but 4 have joined: 2 have none");
    kin_planner_close(p);
    kin_planner_close(even);
}

static void the_memory_of_a_manual_plan_counts(void **state) {
    (void)state;
    static kin_planner_question a;
    static kin_facts facts;
    kin_manual_plan manual = {.n_entries = 2, .entries = {{"a", 16, 0, 0, 0, 0, 1}, {"b", 16, 0, 0, 900000000, 0, 1}}};
    kin_planner_options o = options_of("plan.txt", "exact");
    kin_plan plan;
    kin_equal_devices(&cluster, 2, 1e-3);
    ask_about(&a, (int[]){0, 1}, 2);
    o.manual = &manual;
    o.head_name = "a";
    kin_planner *p = open_with(&o);
    answer_to(p, &a, &plan);
    assert_true(kin_planner_last(p, &facts, &plan));
    assert_true(facts.devices[0].memory_bytes == cluster.devices[0].memory_bytes);
    assert_true(facts.devices[1].memory_bytes == 900000000);
    kin_planner_close(p);
}

// Nothing of the answer before is left but the names that the devices have given.
static void devices_that_have_sent_no_facts_have_their_names(void **state) {
    (void)state;
    static kin_planner_question with, without;
    static kin_facts facts;
    kin_plan plan;
    kin_expectation e;
    ask_about(&with, (int[]){0, 1, 2}, 3);
    ask_about(&without, (int[]){0, 1, 2}, 3);
    without.has_facts = false;
    snprintf(without.candidates[2].name, KIN_CANDIDATE_NAME, "other");
    kin_planner *p = open_planner("even", "exact");
    answer_to(p, &with, &plan);
    assert_true(kin_planner_expects(p, &e));
    answer_to(p, &without, &plan);
    assert_false(kin_planner_expects(p, &e));
    assert_true(kin_planner_last(p, &facts, &plan));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(facts.devices[i].name, without.candidates[i].name);
        assert_true(facts.devices[i].memory_bytes == 0);
    }
    kin_planner_close(p);
}

// ---- what is logged

static void a_device_that_is_not_used_is_told_once_for_each_reason(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan plan;
    ask_about(&a, (int[]){0, 1, 2}, 3);
    const kin_device_facts good = a.facts.devices[1];
    kin_device_facts large = good, unknown = good;
    large.memory_bytes = 1e15;
    unknown.disk_bytes_s = NAN;
    const kin_device_facts *const turns[] = {&good, &large, &large, &unknown, &unknown, &good, &unknown};
    const int n_told[] = {0, 1, 1, 2, 2, 2, 3};
    kin_planner *p = open_planner("auto", "exact");
    char about[KIN_FACTS_MAX_NAME + 40];
    listen_for(KIN_LOG_WARN, "is not used: ");
    for (int i = 0; i < 7; i++) {
        a.facts.devices[1] = *turns[i];
        answer_to(p, &a, &plan);
        if (heard.n != n_told[i]) fail_msg("turn %d: told %d times, not %d: %s", i, heard.n, n_told[i], heard.last);
    }
    snprintf(about, sizeof about, "device '%s' is not used: ", good.name);
    assert_non_null(strstr(heard.last, about));
    kin_planner_close(p);
}

static void a_group_is_told_when_it_is_taken(void **state) {
    (void)state;
    static kin_planner_question a;
    kin_plan plan;
    kin_equal_devices(&cluster, 2, 1e-4);
    ask_about(&a, (int[]){0, 1}, 2);
    kin_planner *p = open_planner("auto", "exact");
    listen_for(KIN_LOG_INFO, "");
    for (int again = 0; again < 2; again++) {
        answer_to(p, &a, &plan);
        assert_int_equal(plan.groups.n, 1);
        assert_int_equal(heard.n, 1);
    }
    kin_planner_close(p);
}

int main(void) {
#define TOLD(test) cmocka_unit_test_setup_teardown(test, setup, stop_listening)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(by_the_thesis_only_missing_layers_are_fetched, setup),
        cmocka_unit_test_setup(a_newcomer_that_makes_a_ring_a_little_faster_changes_nothing, setup),
        cmocka_unit_test_setup(a_proposal_stays_until_another_plan_is_much_better, setup),
        cmocka_unit_test_setup(a_device_without_a_link_to_or_from_the_head_is_left_out, setup),
        cmocka_unit_test_setup(the_rounds_that_were_asked_for_leave_no_group_and_one_machine_has_one, setup),
        cmocka_unit_test_setup(as_many_devices_share_layers_as_the_model_s_pieces_allow, setup),
        TOLD(devices_for_which_there_is_no_share_are_told_once),
        cmocka_unit_test_setup(the_memory_of_a_manual_plan_counts, setup),
        cmocka_unit_test_setup(devices_that_have_sent_no_facts_have_their_names, setup),
        TOLD(a_device_that_is_not_used_is_told_once_for_each_reason),
        TOLD(a_group_is_told_when_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
