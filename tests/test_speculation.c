// The number of drafted tokens that a step verifies (pure/plan/speculation.h), on simulated machines with a known optimum.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "pure/plan/speculation.h"
#include "tests/place.h"

// ---- machines: seconds of a step of n rows

static double memory_bound(int n) { // kin's kernels with AVX-512
    return n <= 8 ? 0.020 * (1 + 0.05 * (n - 1)) : 0.020 * (1.35 + 0.125 * (n - 8));
}

static double compute_bound(int n) {
    return 0.020 * (0.2 + 0.8 * n);
}

static double disk_bound(int n) {
    return fmax(0.300, memory_bound(n));
}

static double experts_from_disk(int n) {
    return 0.020 + 0.100 * n;
}

typedef struct context {
    double (*time_of)(int n_rows);
    double chance;
    double noise;               // relative noise of step times
    double pass_s;              // time of a draft model's pass; 0: drafts cost nothing
    double catch_up_s;          // additional time of the first pass
    bool goes_on;               // the draft model continues while a step is verified
    int n_known;                // tokens that it has computed by then
    int n_sequences, n_unlucky; // n_unlucky: the number of tokens at the start that are always wrong
    kin_rng rng;
    kin_speculation s;
    double took_s, n_written, n_drafted, drafting_s;
} context;

static context make_context(double (*time_of)(int n_rows), double chance, int n_sequences) {
    context w = {.time_of = time_of, .chance = chance, .n_sequences = n_sequences};
    kin_rng_seed(&w.rng, 1);
    kin_speculation_init(&w.s);
    return w;
}

// Computes a draft by a draft model with the same confidence in each token. Returns the time, which includes a last token that
// turns out not to be worth a row.
static double compute(context *w, kin_draft *draft) {
    kin_draft_limits l = kin_speculation_limit_model(&w->s, w->n_sequences, KIN_DRAFT_MAX, w->n_sequences, w->n_known);
    double chance = 1;
    *draft = (kin_draft){.kind = KIN_DRAFT_MODEL};
    assert_true(l.most >= 0 && l.most <= KIN_DRAFT_MAX);
    if (l.most == 0) return 0;
    int n_passes = 0, n_tokens = 0;
    do {
        n_passes += n_tokens++ >= w->n_known;
        chance *= l.chances[0];
        if (chance < l.least[draft->n]) break;
        draft->n++;
    } while (draft->n < l.most && chance * l.mean_chance >= l.least[draft->n]);
    if (w->n_known == 0) kin_speculation_learn_pass(&w->s, true, w->n_sequences, w->pass_s + w->catch_up_s);
    if (n_passes > (w->n_known == 0)) kin_speculation_learn_pass(&w->s, false, w->n_sequences, w->pass_s);
    return n_passes * w->pass_s + (w->n_known == 0 ? w->catch_up_s : 0);
}

// Returns the number of tokens that the draft model computes while a step of took_s is verified.
static int count_known(context *w, int n_drafted, double took_s) {
    kin_draft_limits l = kin_speculation_limit_ahead(&w->s, w->n_sequences, took_s);
    int n_known = 0;
    double chance = pow(l.chances[0], n_drafted + 1);
    for (double left_s = took_s; l.most > 0 && left_s >= w->pass_s && chance >= l.least[0]; left_s -= w->pass_s, n_known++)
        chance *= l.chances[0];
    return n_known;
}

static void verify(context *w, const kin_draft *d, int n) {
    bool accepted = true;
    w->n_written++;
    for (int i = 0; i < n && accepted; i++) {
        accepted = kin_rng_unit(&w->rng) < w->chance && w->n_unlucky == 0;
        if (w->n_unlucky > 0) w->n_unlucky--;
        kin_speculation_learn_token(&w->s, d->kind, d->grades[i], false, accepted);
        w->n_written += accepted;
    }
    if (w->goes_on && (!accepted || kin_rng_unit(&w->rng) >= w->chance)) w->n_known = 0;
}

// Returns the number of tokens taken of a chain.
static int n_of(uint32_t taken) {
    int n = 0;
    for (; taken; taken &= taken - 1) n++;
    return n;
}

static void step(context *w) {
    kin_draft draft = {.kind = KIN_DRAFT_NGRAM, .n = KIN_DRAFT_MAX};
    const kin_draft *drafts[KIN_SPECULATION_MAX_SEQUENCES];
    uint32_t taken[KIN_SPECULATION_MAX_SEQUENCES] = {0};
    int n_rows = w->n_sequences;
    double drafting_s = 0;
    for (int i = 0; i < w->n_sequences; i++) drafts[i] = &draft;
    if (kin_speculation_wants(&w->s, w->n_sequences)) {
        if (w->pass_s > 0) drafting_s = compute(w, &draft);
        if (draft.n > 0) kin_speculation_choose(&w->s, w->n_sequences, KIN_DRAFT_MAX, drafts, w->n_sequences, drafting_s, taken);
    }
    for (int i = 0; i < w->n_sequences; i++) n_rows += n_of(taken[i]);
    assert_true(n_rows <= KIN_SPECULATION_MAX_ROWS);
    double took = w->time_of(n_rows) * (1 + w->noise * kin_rng_unit(&w->rng));
    if (w->noise > 0 && kin_rng_u64(&w->rng) % 50 == 0) took *= 5; // another program had the processor
    kin_speculation_learn_time(&w->s, n_rows, took);
    w->n_known = w->goes_on ? count_known(w, n_rows - w->n_sequences, w->time_of(n_rows)) : 0;
    for (int i = 0; i < w->n_sequences; i++) verify(w, &draft, n_of(taken[i]));
    w->took_s += w->time_of(n_rows) + drafting_s;
    w->drafting_s += drafting_s;
    w->n_drafted += n_rows - w->n_sequences;
}

// Returns the speed of n steps relative to that without drafts.
static double gain_of(context *w, int n_steps) {
    w->took_s = w->n_written = w->n_drafted = w->drafting_s = 0;
    for (int i = 0; i < n_steps; i++) step(w);
    return w->n_written / w->took_s * w->time_of(w->n_sequences) / w->n_sequences;
}
#define gain_of(...) FROM_TEST(gain_of(__VA_ARGS__))

// Returns the best gain for a chain of one text with all figures known.
static double best_gain_with(double (*time_of)(int n_rows), double chance, double pass_s) {
    double best = 1, expected = 1;
    for (int n = 2; n <= KIN_SPECULATION_MAX_ROWS; n++) {
        expected += pow(chance, n - 1);
        best = fmax(best, expected * time_of(1) / (time_of(n) + pass_s * (n - 1)));
    }
    return best;
}

static double best_gain(double (*time_of)(int n_rows), double chance) {
    return best_gain_with(time_of, chance, 0);
}

// ---- claims

static void wrong_drafts_cost_less_than_3_percent(void **state) {
    (void)state;
    double (*const machines[])(int) = {memory_bound, compute_bound, disk_bound, experts_from_disk};
    for (int i = 0; i < 4; i++) {
        for (int noise = 0; noise < 2; noise++) {
            for (int n_sequences = 1; n_sequences <= 8; n_sequences += 7) {
                context w = make_context(machines[i], 0, n_sequences);
                w.noise = 0.3 * noise;
                assert_true(gain_of(&w, 300) >= 0.97);
                assert_true(gain_of(&w, 2000) >= 0.99);
            }
        }
    }
}

static void right_drafts_gain_nearly_what_they_can(void **state) {
    (void)state;
    double (*const machines[])(int) = {memory_bound, compute_bound, disk_bound, experts_from_disk};
    for (int i = 0; i < 4; i++) {
        for (double chance = 0.5; chance < 0.95; chance += 0.2) {
            context w = make_context(machines[i], chance, 1);
            gain_of(&w, 100);
            assert_true(gain_of(&w, 2000) >= 0.93 * best_gain(machines[i], chance));
            w.noise = 0.3;
            assert_true(gain_of(&w, 2000) >= 0.9 * best_gain(machines[i], chance));
        }
    }
    context w = make_context(memory_bound, 0.8, 1);
    assert_true(gain_of(&w, 1000) > 2);
    w = make_context(disk_bound, 0.8, 1);
    assert_true(gain_of(&w, 1000) > 3.5);
}

static void where_each_row_costs_as_much_as_the_first_none_is_verified(void **state) {
    (void)state;
    context w = make_context(experts_from_disk, 0.9, 1);
    gain_of(&w, 100);
    assert_true(gain_of(&w, 2000) >= 0.97);
    assert_true(w.n_drafted < 200);
}

static void texts_that_change_are_noticed(void **state) {
    (void)state;
    context w = make_context(memory_bound, 0, 1);
    gain_of(&w, 2000);
    w.chance = 0.9;
    gain_of(&w, 3000); // drafts are rarely tried by now
    assert_true(gain_of(&w, 500) > 2.5);
    w.chance = 0;
    assert_true(gain_of(&w, 1000) > 0.97);
}

static void a_machine_that_changes_is_noticed(void **state) {
    (void)state;
    context w = make_context(disk_bound, 0.8, 1);
    gain_of(&w, 500);
    w.time_of = compute_bound;
    gain_of(&w, 100);
    assert_true(gain_of(&w, 1000) > 0.95);
    w.time_of = disk_bound;
    gain_of(&w, 1000);
    assert_true(gain_of(&w, 1000) > 3.3);
}

static void with_another_ring_times_are_measured_first(void **state) {
    (void)state;
    context w = make_context(disk_bound, 0.9, 1);
    gain_of(&w, 200);
    w.time_of = experts_from_disk;
    kin_speculation_forget_times(&w.s);
    gain_of(&w, 3);
    assert_true(w.n_drafted == 0);
    assert_true(gain_of(&w, 100) > 0.95);
}

// A pass takes a tenth of a step's time, or a hundredth if the disk is the limit.
static void a_draft_model_gains_nearly_what_it_can_and_never_loses(void **state) {
    (void)state;
    double (*const machines[])(int) = {memory_bound, compute_bound, disk_bound, experts_from_disk};
    for (int i = 0; i < 4; i++) {
        double pass_s = machines[i](1) / (i == 2 ? 100 : 10);
        for (double chance = 0; chance < 1; chance += 0.3) {
            context w = make_context(machines[i], chance, 1);
            w.pass_s = pass_s;
            assert_true(gain_of(&w, 300) >= 0.97);
            assert_true(gain_of(&w, 2000) >= 0.9 * best_gain_with(machines[i], chance, pass_s));
            if (chance == 0) assert_true(w.drafting_s < 0.01 * w.took_s);
        }
    }
    context w = make_context(memory_bound, 0.8, 4); // the passes of several texts are shared
    w.pass_s = 0.002;
    gain_of(&w, 100);
    assert_true(gain_of(&w, 1000) > 1.2);
    w = make_context(memory_bound, 0.9, 1);
    w.pass_s = 0.020; // a draft model as large as the model
    gain_of(&w, 100);
    assert_true(gain_of(&w, 2000) >= 0.98);
}

// After k drafted tokens the next ones are already known with a probability of chance^(k + 1).
static void a_draft_model_that_goes_on_meanwhile_gains_more(void **state) {
    (void)state;
    double (*const machines[])(int) = {memory_bound, disk_bound};
    for (int i = 0; i < 2; i++) {
        double gains[2][4];
        for (int goes_on = 0; goes_on < 2; goes_on++) {
            for (int k = 0; k < 4; k++) {
                context w = make_context(machines[i], 0.3 * k, 1);
                w.goes_on = goes_on;
                w.pass_s = 0.1 * machines[i](1);
                gain_of(&w, 300);
                gains[goes_on][k] = gain_of(&w, 20000);
                assert_true(gains[goes_on][k] > 0.98);
            }
        }
        for (int k = 0; k < 4; k++) assert_true(gains[1][k] > 0.99 * gains[0][k]);
        assert_true(gains[1][3] > 1.05 * gains[0][3]);
    }
}

static void a_pass_meanwhile_is_to_fit(void **state) {
    (void)state;
    kin_speculation s;
    kin_speculation_init(&s);
    assert_int_equal(kin_speculation_limit_ahead(&s, 1, 1).most, 0); // the time of a pass is not known yet
    kin_speculation_learn_pass(&s, true, 1, 0.004);
    kin_speculation_learn_pass(&s, false, 1, 0.003);
    assert_int_equal(kin_speculation_limit_ahead(&s, 1, 0.0039).most, 0);
    assert_int_equal(kin_speculation_limit_ahead(&s, 1, 0.0041).most, KIN_DRAFT_MAX);
    assert_int_equal(kin_speculation_limit_ahead(&s, 8, 0.0041).most, 0); // passes for 8 texts take longer
    assert_true(kin_speculation_limit_ahead(&s, 1, 0.001).catch_up_s == 0.001);
}

static void some_wrong_tokens_at_first_end_nothing(void **state) {
    (void)state;
    context w = make_context(memory_bound, 0.7, 1);
    w.pass_s = 0.0028;
    w.n_unlucky = 2;
    gain_of(&w, 15);
    assert_true(gain_of(&w, 60) >= 0.9 * best_gain_with(memory_bound, 0.7, w.pass_s));
}

static double rows_cost_a_sixth(int n) {
    return 0.023 + 0.005 * n;
}

// The first pass has two rows if a drafted token was accepted; its longer time must not count as the cost of a second token.
static void a_first_pass_that_takes_longer_does_not_end_a_draft(void **state) {
    (void)state;
    context w = make_context(rows_cost_a_sixth, 0.7, 1);
    w.pass_s = 0.0041;
    w.catch_up_s = 0.0015;
    gain_of(&w, 30);
    gain_of(&w, 500);
    assert_true(w.n_drafted > 1.8 * 500);
}

static void so_many_tokens_are_verified_as_were_asked_for(void **state) {
    (void)state;
    kin_draft draft = {.kind = KIN_DRAFT_MODEL, .n = 5};
    const kin_draft *drafts[] = {&draft, &draft};
    uint32_t taken[2];
    kin_speculation s;
    kin_speculation_init(&s);
    s.least = s.most = 5;
    for (int known = 0; known < 2; known++) {
        assert_true(kin_speculation_wants(&s, 2));
        kin_draft_limits l = kin_speculation_limit_model(&s, 2, 31, 2, 0);
        assert_int_equal(l.most, 5);
        for (int i = 0; i < 5; i++) assert_true(l.least[i] == 0);
        kin_speculation_choose(&s, 2, 31, drafts, 2, 0.001, taken);
        assert_true(n_of(taken[0]) == 5 && n_of(taken[1]) == 5);
        kin_speculation_choose(&s, 2, 7, drafts, 2, 0.001, taken);
        assert_int_equal(n_of(taken[0]) + n_of(taken[1]), 7);
        for (int i = 0; i < 3; i++) kin_speculation_learn_time(&s, 2, 0.020);
        for (int i = 0; i < 3; i++) kin_speculation_learn_time(&s, 12, 2.0); // never worth the time
    }
}

// By the formula several steps in flight give a gain of 2.5 with four members at 0.8. One step with more rows gains less when
// each row costs time.
static void several_steps_at_once_are_for_rings_whose_computing_is_the_limit(void **state) {
    (void)state;
    kin_draft d = {.kind = KIN_DRAFT_ORACLE, .n = 20};
    double (*const machines[])(int) = {compute_bound, disk_bound};
    kin_speculation nothing_known;
    kin_speculation_init(&nothing_known);
    assert_false(kin_speculation_prefers_ahead(&nothing_known, &d, 31, 4, 0));
    for (int i = 0; i < 2; i++) {
        context w = make_context(machines[i], 0.8, 1);
        gain_of(&w, 500);
        for (int k = 0; k < 500; k++) kin_speculation_learn_token(&w.s, KIN_DRAFT_ORACLE, 0, false, k % 5 != 0);
        assert_true(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0) == (i == 0));
        assert_false(kin_speculation_prefers_ahead(&w.s, &d, 31, 1, 0));
        kin_speculation_learn_ahead(&w.s, 16, 16 * w.time_of(1)); // measured without gain
        assert_false(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0));
        gain_of(&w, 600); // the measurement becomes outdated
        assert_true(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0) == (i == 0));
    }
}

// The head takes a quarter of a step's 20 ms, half of it, or nearly all.
static void the_head_may_be_the_longest_stage_of_several_steps(void **state) {
    (void)state;
    kin_draft d = {.kind = KIN_DRAFT_ORACLE, .n = 20};
    context w = make_context(compute_bound, 0.8, 1);
    gain_of(&w, 500);
    for (int k = 0; k < 500; k++) kin_speculation_learn_token(&w.s, KIN_DRAFT_ORACLE, 0, false, k % 5 != 0);
    assert_true(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0.005));  // 5 tokens in 40 ms
    assert_true(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0.010));  // in 60 ms
    assert_false(kin_speculation_prefers_ahead(&w.s, &d, 31, 4, 0.019)); // in 96 ms, as slow as one step at a time
}

static void many_texts_have_fewer_rows_to_spare(void **state) {
    (void)state;
    context w = make_context(memory_bound, 0.8, 4);
    gain_of(&w, 100);
    assert_true(gain_of(&w, 1000) > 1.3);
    w = make_context(memory_bound, 0.8, KIN_SPECULATION_MAX_ROWS);
    gain_of(&w, 100);
    assert_true(w.n_drafted == 0);
}

// The text with the higher probabilities gets the rows.
static void the_likeliest_tokens_are_verified(void **state) {
    (void)state;
    kin_draft a = {.n = 4, .grades = {0, 0, 0, 0}}, b = {.n = 4, .grades = {7, 7, 7, 7}};
    const kin_draft *drafts[] = {&a, &b};
    uint32_t taken[2];
    kin_speculation s;
    kin_speculation_init(&s);
    for (int i = 0; i < 100; i++) {
        kin_speculation_learn_token(&s, KIN_DRAFT_NGRAM, 0, false, i % 3 == 0);
        kin_speculation_learn_token(&s, KIN_DRAFT_NGRAM, 7, false, true);
    }
    for (int i = 0; i < 3; i++) kin_speculation_learn_time(&s, 2, 0.020);
    kin_speculation_choose(&s, 2, 4, drafts, 2, 0, taken);
    assert_int_equal(taken[0], 0);
    assert_int_equal(taken[1], 15);
    kin_speculation_choose(&s, 2, 5, drafts, 2, 0, taken);
    assert_int_equal(taken[0], 1);
    kin_speculation_choose(&s, 2, 0, drafts, 2, 0, taken);
    assert_int_equal(taken[0] | taken[1], 0);
}

// Returns the expected number of accepted tokens of the best set of n tokens, by brute force. A set must contain, with each
// token, its parent and its earlier siblings.
static double best_set(const kin_draft *d, const double *chances, int n) {
    double best = 0;
    for (uint32_t set = 0; set < UINT32_C(1) << d->n; set++) {
        double expected = 0;
        bool ok = n_of(set) == n;
        for (int i = 0; i < d->n && ok; i++) {
            int parent = kin_draft_parent(d, i);
            if (!(set >> i & 1)) continue;
            ok = parent < 0 || set >> parent & 1;
            for (int k = 0; k < i && ok; k++) ok = kin_draft_parent(d, k) != parent || set >> k & 1;
            expected += chances[i];
        }
        if (ok) best = fmax(best, expected);
    }
    return best;
}

static void learn(kin_speculation *s, int grade, bool is_branch, double chance) {
    for (int i = 1; i <= 400; i++)
        kin_speculation_learn_token(s, KIN_DRAFT_MODEL, grade, is_branch, (int)(i * chance) > (int)((i - 1) * chance));
}

static int branches_in(const kin_draft *d, uint32_t taken) {
    int n = 0;
    for (int i = 0; i < d->n; i++) n += taken >> i & 1 && kin_draft_is_branch(d, i);
    return n;
}

static int n_branches_of(const kin_draft *d) {
    return branches_in(d, UINT32_MAX);
}

static void learn_times(kin_speculation *s, double (*time_of)(int n_rows)) {
    for (int n = 1; n <= KIN_SPECULATION_MAX_ROWS; n++) {
        for (int i = 0; i < 3; i++) kin_speculation_learn_time(s, n, time_of(n));
    }
}

static double flat(int n) {
    (void)n;
    return 1;
}

static double dear(int n) {
    return 1 + 0.2 * (n - 1);
}

// Adds two successors of each token, until the draft is full.
static void add_pairs(kin_draft *d) {
    for (int i = -1; d->n + 2 <= KIN_DRAFT_MAX; i++) {
        kin_draft_add(d, i, 2 * i + 5, 0);
        kin_draft_add(d, i, 2 * i + 6, 0);
    }
}

// Random trees of 12 tokens: a first successor is right with a probability of 0.5 to 0.9, a second one in a third of the rest.
static void of_a_tree_the_likeliest_tokens_are_verified(void **state) {
    (void)state;
    enum { N = 12 };
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    int n_branches = 0;
    for (int round = 0; round < 40; round++) {
        double chances[N], left[N + 1] = {1};
        kin_draft d = {.kind = KIN_DRAFT_MODEL};
        const kin_draft *drafts[] = {&d};
        kin_speculation s;
        kin_speculation_init(&s);
        for (int grade = 0; grade < 3; grade++) {
            learn(&s, grade, false, 0.5 + 0.2 * grade);
            learn(&s, grade, true, 0.33);
        }
        for (int i = 0; i < N; i++) {
            int parent = (int)(kin_rng_u64(&rng) % (uint64_t)(i + 1)) - 1, grade = (int)(kin_rng_u64(&rng) % 3);
            if (n_branches_of(&d) == KIN_DRAFT_MAX_BRANCHES) parent = i - 1;
            kin_draft_add(&d, parent, i, (uint8_t)grade);
            bool is_branch = kin_draft_is_branch(&d, i);
            chances[i] = left[parent + 1] * (is_branch ? s.branches[d.kind] : s.grades[d.kind])[grade].chance;
            left[parent + 1] -= chances[i];
            left[i + 1] = chances[i];
        }
        learn_times(&s, flat);
        for (int n = 1; n < N; n++) {
            uint32_t taken;
            double expected = 0;
            kin_speculation_choose(&s, 1, n, drafts, 1, 0, &taken);
            for (int i = 0; i < N; i++) expected += taken >> i & 1 ? chances[i] : 0;
            n_branches += branches_in(&d, taken);
            assert_true(fabs(expected - best_set(&d, chances, n)) < 1e-9);
        }
    }
    assert_true(n_branches > 100);
}

// First successors are right with a probability of 0.6 or 0.9; a row costs nothing or a fifth of a step.
static void where_rows_are_dear_or_tokens_sure_a_tree_is_a_chain(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        kin_draft d = {.kind = KIN_DRAFT_MODEL};
        const kin_draft *drafts[] = {&d};
        kin_speculation s;
        uint32_t taken;
        kin_speculation_init(&s);
        learn(&s, 0, false, i < 2 ? 0.6 : 0.9);
        learn(&s, 0, true, 0.5);
        learn_times(&s, i % 2 ? dear : flat);
        add_pairs(&d);
        kin_speculation_choose(&s, 1, 4, drafts, 1, 0, &taken);
        assert_true(taken & 1);
        assert_int_equal(branches_in(&d, taken) > 0, i == 0);
        assert_true(i > 0 || n_of(taken) == 4);
    }
}

static void a_step_has_so_many_branches(void **state) {
    (void)state;
    kin_draft a = {.kind = KIN_DRAFT_MODEL}, b;
    const kin_draft *drafts[] = {&a, &b};
    kin_speculation s;
    uint32_t taken[2];
    kin_speculation_init(&s);
    learn(&s, 0, false, 0.5);
    learn(&s, 0, true, 0.9);
    learn_times(&s, flat);
    add_pairs(&a);
    b = a;
    kin_speculation_choose(&s, 2, 30, drafts, 2, 0, taken);
    assert_int_equal(n_of(taken[0]) + n_of(taken[1]), 30);
    assert_int_equal(branches_in(&a, taken[0]) + branches_in(&b, taken[1]), KIN_DRAFT_MAX_BRANCHES);
    s.chains = true;
    kin_speculation_choose(&s, 2, 30, drafts, 2, 0, taken);
    assert_int_equal(branches_in(&a, taken[0]) + branches_in(&b, taken[1]), 0);
    assert_true(taken[0] == kin_draft_chain(&a) && taken[1] == kin_draft_chain(&b));
}

static void a_part_of_a_tree_is_a_tree(void **state) {
    (void)state;
    kin_draft d = {.kind = KIN_DRAFT_MODEL};
    add_pairs(&d);
    kin_draft part = d;
    kin_draft_keep(&part, 1 << 0 | 1 << 1 | 1 << 4 | 1 << 10); // 1 is a sibling of 0; 4 follows 1; 10 follows 4
    assert_int_equal(part.n, 4);
    const int parents[] = {-1, -1, 1, 2};
    for (int i = 0; i < 4; i++) assert_int_equal(kin_draft_parent(&part, i), parents[i]);
    assert_true(kin_draft_is_branch(&part, 1) && !kin_draft_is_branch(&part, 0) && !kin_draft_is_branch(&part, 2));
    assert_int_equal(part.tokens[3], d.tokens[10]);
    assert_int_equal(kin_draft_chain(&part), 1);
    part = (kin_draft){.n = 5}; // from a source without trees
    assert_int_equal(kin_draft_chain(&part), 31);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_drafts_cost_less_than_3_percent),
        cmocka_unit_test(right_drafts_gain_nearly_what_they_can),
        cmocka_unit_test(where_each_row_costs_as_much_as_the_first_none_is_verified),
        cmocka_unit_test(texts_that_change_are_noticed),
        cmocka_unit_test(a_machine_that_changes_is_noticed),
        cmocka_unit_test(with_another_ring_times_are_measured_first),
        cmocka_unit_test(a_draft_model_gains_nearly_what_it_can_and_never_loses),
        cmocka_unit_test(a_draft_model_that_goes_on_meanwhile_gains_more),
        cmocka_unit_test(a_pass_meanwhile_is_to_fit),
        cmocka_unit_test(some_wrong_tokens_at_first_end_nothing),
        cmocka_unit_test(a_first_pass_that_takes_longer_does_not_end_a_draft),
        cmocka_unit_test(so_many_tokens_are_verified_as_were_asked_for),
        cmocka_unit_test(several_steps_at_once_are_for_rings_whose_computing_is_the_limit),
        cmocka_unit_test(the_head_may_be_the_longest_stage_of_several_steps),
        cmocka_unit_test(many_texts_have_fewer_rows_to_spare),
        cmocka_unit_test(the_likeliest_tokens_are_verified),
        cmocka_unit_test(of_a_tree_the_likeliest_tokens_are_verified),
        cmocka_unit_test(where_rows_are_dear_or_tokens_sure_a_tree_is_a_chain),
        cmocka_unit_test(a_step_has_so_many_branches),
        cmocka_unit_test(a_part_of_a_tree_is_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
