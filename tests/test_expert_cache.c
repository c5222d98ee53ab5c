// The table of the cache of experts: which ones leave, what is never evicted, and how it compares with other policies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/plan/expert_cache.h"
#include "testkit/expert_trace.h"
#include "tests/place.h"

enum { N_LAYER = 3, N_EXPERT = 8 };

static kin_expert_cache *open_cache(uint64_t budget, kin_expert_policy policy, const uint64_t *bytes) {
    static const uint64_t ones[N_LAYER] = {1, 1, 1};
    const kin_expert_cache_options o = {N_LAYER, N_EXPERT, bytes ? bytes : ones, budget, policy};
    kin_expert_cache *c;
    kin_err err;
    if (kin_expert_cache_open(&c, &o, &err) != 0) fail_msg("%s", err.text);
    return c;
}
#define open_cache(...) FROM_TEST(open_cache(__VA_ARGS__))

// A token uses the experts of a layer whose digits are in `experts`.
static const kin_expert_changes *use(kin_expert_cache *c, int il, const char *experts) {
    int32_t uses[N_EXPERT] = {0};
    for (; *experts; experts++) uses[*experts - '0']++;
    return kin_expert_cache_use(c, il, uses, 1);
}

static bool holds(const kin_expert_cache *c, int il, const char *experts) {
    for (; *experts; experts++)
        if (!kin_expert_cache_has(c, il * N_EXPERT + *experts - '0')) return false;
    return true;
}

static void what_was_missing_is_there_the_next_time(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(N_LAYER * N_EXPERT, KIN_EXPERTS_MIXED, NULL);
    const kin_expert_changes *changes = use(c, 1, "25");
    assert_int_equal(changes->n_missing, 2);
    assert_int_equal(changes->missing[0], N_EXPERT + 2);
    assert_int_equal(changes->missing[1], N_EXPERT + 5);
    changes = use(c, 1, "257");
    assert_true(changes->n_missing == 1 && changes->missing[0] == N_EXPERT + 7 && changes->n_evicted == 0);
    assert_int_equal(kin_expert_cache_held(c), 3);
    kin_expert_cache_close(c);
}

static void the_longest_unused_expert_leaves_an_lru_cache(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(3, KIN_EXPERTS_LRU, NULL);
    use(c, 0, "0"), use(c, 0, "1"), use(c, 0, "2"), use(c, 0, "0");
    const kin_expert_changes *changes = use(c, 0, "3");
    assert_true(changes->n_evicted == 1 && changes->evicted[0] == 1);
    kin_expert_cache_close(c);
}

static void often_used_experts_outlive_a_scan_in_the_mixed_cache(void **state) {
    (void)state;
    for (int policy = 0; policy < KIN_EXPERTS_N_POLICIES; policy++) {
        kin_expert_cache *c = open_cache(3, (kin_expert_policy)policy, NULL);
        for (int i = 0; i < 100; i++) use(c, 0, "01");
        use(c, 0, "2"), use(c, 0, "3"), use(c, 0, "4");
        assert_int_equal(holds(c, 0, "01"), policy != KIN_EXPERTS_LRU);
        kin_expert_cache_close(c);
    }
}

static void a_recent_use_outweighs_an_old_one(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(2, KIN_EXPERTS_MIXED, NULL);
    for (int i = 0; i < 20; i++) use(c, 0, "0");
    for (int i = 0; i < 60; i++) use(c, 0, "1");
    use(c, 0, "2");
    assert_true(holds(c, 0, "12"));
    kin_expert_cache_close(c);
}

static void what_a_step_needs_never_leaves(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(2, KIN_EXPERTS_MIXED, NULL);
    const kin_expert_changes *changes = use(c, 0, "01234");
    assert_true(changes->n_missing == 5 && changes->n_evicted == 0);
    assert_true(holds(c, 0, "01234"));
    assert_int_equal(kin_expert_cache_set_budget(c, 1)->n_evicted, 0);
    changes = use(c, 1, "6"); // another layer's step: those are not needed any more
    assert_int_equal(changes->n_evicted, 5);
    assert_int_equal(kin_expert_cache_held(c), 1);
    kin_expert_cache_close(c);
}

// Six experts pass through room for four, two and two.
static void groups_take_turns_in_half_of_the_room_each(void **state) {
    static const int32_t uses[N_EXPERT] = {1, 1, 1, 1, 1, 1}, order[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    kin_expert_cache *c = open_cache(4, KIN_EXPERTS_MIXED, NULL);
    use(c, 1, "0123");
    kin_expert_cache_count(c, 0, uses, 1);
    for (int i = 0; i < 6; i += 2) {
        const kin_expert_changes *changes = kin_expert_cache_need(c, order + i, 2);
        assert_int_equal(changes->n_missing, i == 0 ? 2 : 0); // the others were read meanwhile
        changes = kin_expert_cache_expect(c, 0, order + i + 2, 4 - i);
        assert_int_equal(changes->n_missing, i < 4 ? 2 : 0);
        if (i < 4) assert_true(changes->missing[0] == i + 2 && changes->missing[1] == i + 3);
        assert_int_equal(kin_expert_cache_held(c), 4);
    }
    kin_expert_cache_close(c);
}

static void an_expert_in_memory_stays_until_its_group_comes(void **state) {
    static const int32_t uses[N_EXPERT] = {[0] = 9, [1] = 9, [5] = 1, [6] = 1}, order[] = {5, 6, 0, 1};
    (void)state;
    kin_expert_cache *c = open_cache(3, KIN_EXPERTS_MIXED, NULL);
    use(c, 0, "56");
    for (int i = 0; i < 20; i++) use(c, 1, "7"); // worth more than both
    kin_expert_cache_count(c, 0, uses, 9);
    assert_int_equal(kin_expert_cache_need(c, order, 1)->n_missing, 0);
    const kin_expert_changes *changes = kin_expert_cache_expect(c, 0, order + 1, 3);
    assert_true(changes->n_evicted == 1 && changes->evicted[0] == N_EXPERT + 7);
    assert_true(changes->n_missing == 1 && changes->missing[0] == 0);
    assert_true(holds(c, 0, "056"));
    kin_expert_cache_close(c);
}

static void a_step_that_ends_before_its_last_group_keeps_nothing(void **state) {
    static const int32_t uses[N_EXPERT] = {1, 1, 1, 1, 1, 1}, order[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    kin_expert_cache *c = open_cache(4, KIN_EXPERTS_MIXED, NULL);
    kin_expert_cache_count(c, 0, uses, 1);
    kin_expert_cache_need(c, order, 2);
    kin_expert_cache_expect(c, 0, order + 2, 4);
    assert_int_equal(use(c, 1, "0123")->n_evicted, 4);
    assert_int_equal(kin_expert_cache_held(c), 4);
    kin_expert_cache_close(c);
}

static void groups_count_as_the_step_that_they_are_of(void **state) {
    static const int32_t uses[N_EXPERT] = {3, 2, 1, 4}, order[] = {0, 1, 2, 3};
    float whole[N_LAYER * N_EXPERT], groups[N_LAYER * N_EXPERT];
    (void)state;
    kin_expert_cache *a = open_cache(9, KIN_EXPERTS_MIXED, NULL), *b = open_cache(9, KIN_EXPERTS_MIXED, NULL);
    kin_expert_cache_use(a, 2, uses, 5);
    kin_expert_cache_count(b, 2, uses, 5);
    for (int i = 0; i < 4; i++) kin_expert_cache_need(b, order + i, 1);
    kin_expert_cache_get_counts(a, whole);
    kin_expert_cache_get_counts(b, groups);
    assert_memory_equal(whole, groups, sizeof whole);
    kin_expert_cache_close(a);
    kin_expert_cache_close(b);
}

static void a_smaller_budget_evicts_at_once_and_a_larger_one_nothing(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(6, KIN_EXPERTS_MIXED, NULL);
    use(c, 0, "0123"), use(c, 1, "01");
    assert_int_equal(kin_expert_cache_set_budget(c, 3)->n_evicted, 3);
    assert_true(holds(c, 1, "01"));
    assert_int_equal(kin_expert_cache_held(c), 3);
    assert_int_equal(kin_expert_cache_set_budget(c, 20)->n_evicted, 0);
    kin_expert_cache_close(c);
}

static void layers_of_different_sizes_stay_within_the_budget(void **state) {
    static const uint64_t bytes[N_LAYER] = {3, 0, 5};
    (void)state;
    kin_expert_cache *c = open_cache(17, KIN_EXPERTS_MIXED, bytes);
    for (int i = 0; i < 200; i++) {
        const char two[] = {(char)('0' + i % 8), (char)('0' + (i * 5 + 1) % 8), '\0'};
        use(c, i % 2 ? 2 : 0, two);
        uint64_t sum = 0;
        for (int k = 0; k < N_LAYER * N_EXPERT; k++) sum += kin_expert_cache_has(c, k) ? bytes[k / N_EXPERT] : 0;
        assert_int_equal(kin_expert_cache_held(c), sum);
        assert_true(sum <= 17);
    }
    kin_expert_cache_close(c);
}

static void a_forgotten_layer_is_missing_again(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(9, KIN_EXPERTS_MIXED, NULL);
    use(c, 0, "01"), use(c, 1, "23");
    assert_int_equal(kin_expert_cache_forget(c, 1)->n_evicted, 2);
    assert_true(holds(c, 0, "01") && kin_expert_cache_held(c) == 2);
    assert_int_equal(use(c, 1, "23")->n_missing, 2);
    kin_expert_cache_close(c);
}

// The prompt's tokens: 64 use expert 1, every second one expert 2. Then others come, until one of these two leaves.
static void a_prompt_counts_as_many_tokens(void **state) {
    int32_t uses[N_EXPERT] = {[1] = 64, [2] = 32};
    (void)state;
    for (int n_after = 1; n_after < 200; n_after += 9) {
        kin_expert_cache *prompt = open_cache(3, KIN_EXPERTS_MIXED, NULL), *tokens = open_cache(3, KIN_EXPERTS_MIXED, NULL);
        kin_expert_cache_use(prompt, 0, uses, 64);
        for (int i = 0; i < 64; i++) use(tokens, 0, i % 2 ? "1" : "12");
        for (int i = 0; i < n_after; i++) use(prompt, 0, "3"), use(tokens, 0, "3");
        use(prompt, 0, "4"), use(tokens, 0, "4");
        for (int i = 0; i < N_EXPERT; i++) assert_int_equal(kin_expert_cache_has(prompt, i), kin_expert_cache_has(tokens, i));
        kin_expert_cache_close(prompt);
        kin_expert_cache_close(tokens);
    }
}

static void a_filled_cache_has_the_most_used_experts_of_an_earlier_run(void **state) {
    static const uint64_t bytes[N_LAYER] = {1, 0, 2};
    float counts[N_LAYER * N_EXPERT] = {
        [0] = 5, [3] = 9, [7] = 0.5f, [N_EXPERT] = 99, [2 * N_EXPERT + 1] = 7, [2 * N_EXPERT + 2] = 6};
    (void)state;
    kin_expert_cache *c = open_cache(6, KIN_EXPERTS_MIXED, bytes);
    assert_int_equal(kin_expert_cache_fill(c, N_EXPERT)->n_missing, 0); // nothing was used
    kin_expert_cache_set_counts(c, counts);
    const kin_expert_changes *changes = kin_expert_cache_fill(c, 2);
    assert_true(changes->n_missing == 2 && changes->n_evicted == 0);
    assert_true(changes->missing[0] == 3 && changes->missing[1] == 2 * N_EXPERT + 1);
    changes = kin_expert_cache_fill(c, N_EXPERT);
    assert_true(changes->n_missing == 2 && changes->missing[0] == 2 * N_EXPERT + 2 && changes->missing[1] == 0);
    assert_int_equal(kin_expert_cache_held(c), 6);
    assert_int_equal(kin_expert_cache_fill(c, N_EXPERT)->n_missing, 0); // no room
    kin_expert_cache_close(c);
}

static void filling_evicts_nothing(void **state) {
    float counts[N_LAYER * N_EXPERT] = {[5] = 100, [6] = 90};
    (void)state;
    kin_expert_cache *c = open_cache(2, KIN_EXPERTS_MIXED, NULL);
    kin_expert_cache_set_counts(c, counts);
    use(c, 1, "0");
    const kin_expert_changes *changes = kin_expert_cache_fill(c, N_EXPERT);
    assert_true(changes->n_missing == 1 && changes->missing[0] == 5 && changes->n_evicted == 0);
    assert_true(holds(c, 1, "0"));
    kin_expert_cache_close(c);
}

static void counts_return_as_they_were_set_and_grow_with_uses(void **state) {
    static const uint64_t bytes[N_LAYER] = {1, 0, 1};
    float counts[N_LAYER * N_EXPERT], got[N_LAYER * N_EXPERT];
    (void)state;
    for (int i = 0; i < N_LAYER * N_EXPERT; i++) counts[i] = (float)i, got[i] = -1;
    kin_expert_cache *c = open_cache(4, KIN_EXPERTS_MIXED, bytes);
    kin_expert_cache_set_counts(c, counts);
    kin_expert_cache_get_counts(c, got);
    for (int i = 0; i < N_LAYER * N_EXPERT; i++) assert_true(got[i] == (i / N_EXPERT == 1 ? -1 : counts[i]));
    use(c, 2, "3");
    kin_expert_cache_get_counts(c, got);
    assert_true(got[2 * N_EXPERT + 3] > counts[2 * N_EXPERT + 3] + 0.9f);
    assert_true(got[2 * N_EXPERT + 4] < counts[2 * N_EXPERT + 4]);
    kin_expert_cache_close(c);
}

static void traces_choose_different_experts_of_the_layer(void **state) {
    (void)state;
    for (int kind = 0; kind < KIN_TRACE_N_KINDS; kind++) {
        kin_expert_trace t = {.n_layer = 2, .n_expert = 16, .n_used = 6, .n_tokens = 40};
        kin_err err;
        assert_int_equal(kin_expert_trace_make(&t, (kin_trace_kind)kind, 7, &err), 0);
        for (int i = 0; i < t.n_tokens * t.n_layer; i++) {
            unsigned seen = 0;
            for (int k = 0; k < t.n_used; k++) {
                const int32_t expert = t.chosen[i * t.n_used + k];
                assert_true(expert >= 0 && expert < t.n_expert && !(seen >> expert & 1));
                seen |= 1u << expert;
            }
        }
        kin_expert_trace_free(&t);
    }
}

// No policy has more hits than Belady's. The one in use is as good as the better one of the others.
static void the_mixed_cache_is_good_at_every_kind_of_routing(void **state) {
    (void)state;
    for (int kind = 0; kind < KIN_TRACE_N_KINDS; kind++) {
        kin_expert_trace t = {.n_layer = 4, .n_expert = 64, .n_used = 8, .n_tokens = 800};
        kin_err err;
        assert_int_equal(kin_expert_trace_make(&t, (kin_trace_kind)kind, 1, &err), 0);
        for (int percent = 25; percent <= 75; percent += 25) {
            double best, hits[KIN_EXPERTS_N_POLICIES];
            const int64_t n_slots = t.n_layer * t.n_expert * percent / 100;
            assert_int_equal(kin_expert_trace_belady(&t, n_slots, 200, &best, &err), 0);
            for (int policy = 0; policy < KIN_EXPERTS_N_POLICIES; policy++) {
                assert_int_equal(kin_expert_trace_replay(&t, (kin_expert_policy)policy, n_slots, 200, &hits[policy], &err), 0);
                assert_true(hits[policy] <= best);
            }
            assert_true(hits[KIN_EXPERTS_MIXED] > hits[KIN_EXPERTS_LRU] - 0.015);
            assert_true(hits[KIN_EXPERTS_MIXED] > hits[KIN_EXPERTS_LFU] - 0.015);
        }
        kin_expert_trace_free(&t);
    }
}

// Where no expert is preferred, the counts of another text cost next to nothing.
static void a_run_with_counts_of_an_earlier_one_begins_with_more_hits(void **state) {
    (void)state;
    for (int kind = 0; kind < KIN_TRACE_N_KINDS; kind++) {
        kin_expert_trace t = {.n_layer = 4, .n_expert = 64, .n_used = 8, .n_tokens = 800};
        double hits[2];
        kin_err err;
        assert_int_equal(kin_expert_trace_make(&t, (kin_trace_kind)kind, 1, &err), 0);
        assert_int_equal(kin_expert_trace_restart(&t, t.n_layer * t.n_expert / 2, 400, 200, 50, hits, &err), 0);
        assert_true(hits[1] > hits[0] + (kind == KIN_TRACE_SKEWED || kind == KIN_TRACE_BOTH ? 0.03 : -0.02));
        kin_expert_trace_free(&t);
    }
}

static void a_budget_goes_to_the_other_weights_first(void **state) {
    (void)state;
    assert_int_equal(kin_expert_cache_divide(1000, 300, 50, 100, 20), 700);
    assert_int_equal(kin_expert_cache_divide(350, 300, 50, 100, 20), 100); // one layer's experts
    assert_int_equal(kin_expert_cache_divide(120, 300, 50, 100, 20), 60);  // half
    assert_int_equal(kin_expert_cache_divide(80, 300, 50, 100, 20), 30);   // what streaming the others leaves
    assert_int_equal(kin_expert_cache_divide(60, 300, 50, 100, 20), 20);   // a token's experts
}

static const kin_expert_changes *expect(kin_expert_cache *c, int il, int32_t a, int32_t b) {
    const int32_t experts[] = {a, b};
    return kin_expert_cache_expect(c, il, experts, 2);
}

static void expected_experts_stay_until_their_layer_is_used(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(4, KIN_EXPERTS_MIXED, NULL);
    use(c, 0, "01");
    const kin_expert_changes *changes = expect(c, 1, 6, 3);
    assert_true(changes->n_missing == 2 && changes->n_evicted == 0);
    assert_true(changes->missing[0] == N_EXPERT + 6 && changes->missing[1] == N_EXPERT + 3);
    use(c, 2, "01"); // evicts layer 0's, which were used
    assert_true(holds(c, 1, "36") && holds(c, 2, "01") && !kin_expert_cache_has(c, 0));
    use(c, 1, "45");
    use(c, 0, "23"); // those that were expected and not used leave first
    assert_false(kin_expert_cache_has(c, N_EXPERT + 6) || kin_expert_cache_has(c, N_EXPERT + 3));
    kin_expert_cache_close(c);
}

static void what_is_needed_never_leaves_for_what_is_expected(void **state) {
    (void)state;
    kin_expert_cache *c = open_cache(3, KIN_EXPERTS_MIXED, NULL);
    use(c, 0, "01");
    const kin_expert_changes *changes = expect(c, 1, 6, 3);
    assert_true(changes->n_missing == 1 && changes->missing[0] == N_EXPERT + 6 && kin_expert_cache_held(c) == 3);
    assert_true(holds(c, 0, "01") && !kin_expert_cache_has(c, N_EXPERT + 3));
    kin_expert_cache_remove(c, N_EXPERT + 6);
    assert_true(!kin_expert_cache_has(c, N_EXPERT + 6) && kin_expert_cache_held(c) == 2);
    kin_expert_cache_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_missing_is_there_the_next_time),
        cmocka_unit_test(the_longest_unused_expert_leaves_an_lru_cache),
        cmocka_unit_test(often_used_experts_outlive_a_scan_in_the_mixed_cache),
        cmocka_unit_test(a_recent_use_outweighs_an_old_one),
        cmocka_unit_test(what_a_step_needs_never_leaves),
        cmocka_unit_test(groups_take_turns_in_half_of_the_room_each),
        cmocka_unit_test(an_expert_in_memory_stays_until_its_group_comes),
        cmocka_unit_test(a_step_that_ends_before_its_last_group_keeps_nothing),
        cmocka_unit_test(groups_count_as_the_step_that_they_are_of),
        cmocka_unit_test(a_smaller_budget_evicts_at_once_and_a_larger_one_nothing),
        cmocka_unit_test(layers_of_different_sizes_stay_within_the_budget),
        cmocka_unit_test(a_forgotten_layer_is_missing_again),
        cmocka_unit_test(a_prompt_counts_as_many_tokens),
        cmocka_unit_test(a_filled_cache_has_the_most_used_experts_of_an_earlier_run),
        cmocka_unit_test(filling_evicts_nothing),
        cmocka_unit_test(counts_return_as_they_were_set_and_grow_with_uses),
        cmocka_unit_test(traces_choose_different_experts_of_the_layer),
        cmocka_unit_test(the_mixed_cache_is_good_at_every_kind_of_routing),
        cmocka_unit_test(a_run_with_counts_of_an_earlier_one_begins_with_more_hits),
        cmocka_unit_test(a_budget_goes_to_the_other_weights_first),
        cmocka_unit_test(expected_experts_stay_until_their_layer_is_used),
        cmocka_unit_test(what_is_needed_never_leaves_for_what_is_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
