// The choice of resident blocks: the streamed blocks are evenly spread at every budget, and the budget is used as far as block
// sizes allow.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pure/plan/residency.h"

enum { MAX_BLOCKS = 300, N_RANDOM = 400 };

// ---- instances

typedef struct instance {
    size_t n;
    uint64_t bytes[MAX_BLOCKS];
    uint32_t order[MAX_BLOCKS];
    uint64_t sum, largest;
} instance;

static uint64_t rng_state;

static uint64_t random_below(uint64_t end) {
    rng_state++;
    return kin_hash64(&rng_state, sizeof rng_state, 0) % end;
}

static void add_up(instance *in) {
    in->sum = in->largest = 0;
    for (size_t i = 0; i < in->n; i++) {
        in->sum += in->bytes[i];
        if (in->bytes[i] > in->largest) in->largest = in->bytes[i];
    }
    kin_residency_order(in->bytes, in->n, in->n, in->order);
}

static void make_equal(instance *in, size_t n, uint64_t bytes) {
    in->n = n;
    for (size_t i = 0; i < n; i++) in->bytes[i] = bytes;
    add_up(in);
}

// Makes blocks of all magnitudes, a quarter of them empty.
static void make_random(instance *in) {
    in->n = 1 + random_below(MAX_BLOCKS);
    for (size_t i = 0; i < in->n; i++)
        in->bytes[i] = random_below(4) == 0 ? 0 : 1 + random_below((uint64_t)2 << random_below(30));
    add_up(in);
}

static uint64_t random_budget(const instance *in) {
    return random_below(in->sum + in->sum / 8 + 2);
}

static uint64_t resident_bytes(const instance *in, const bool *resident) {
    uint64_t sum = 0;
    for (size_t i = 0; i < in->n; i++) sum += resident[i] ? in->bytes[i] : 0;
    return sum;
}

// ---- the order

static void the_order_has_every_block_once(void **state) {
    (void)state;
    instance in;
    for (int round = 0; round < N_RANDOM; round++) {
        bool seen[MAX_BLOCKS] = {0};
        make_random(&in);
        for (size_t i = 0; i < in.n; i++) {
            assert_in_range(in.order[i], 0, in.n - 1);
            assert_false(seen[in.order[i]]);
            seen[in.order[i]] = true;
        }
    }
}

static void empty_blocks_come_last(void **state) {
    (void)state;
    instance in;
    for (int round = 0; round < N_RANDOM; round++) {
        bool empty = false;
        make_random(&in);
        for (size_t i = 0; i < in.n; i++) {
            if (empty) assert_int_equal(in.bytes[in.order[i]], 0);
            empty = in.bytes[in.order[i]] == 0;
        }
    }
}

static void blocks_that_shall_stay_leave_after_all_others(void **state) {
    (void)state;
    instance in;
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        const size_t n_first = random_below(in.n + 1);
        bool stays = false;
        kin_residency_order(in.bytes, in.n, n_first, in.order);
        for (size_t i = 0; i < in.n && in.bytes[in.order[i]] > 0; i++) {
            if (stays) assert_true(in.order[i] >= n_first);
            stays = in.order[i] >= n_first;
        }
    }
}

// Returns the largest distance between consecutive evicted blocks in the cycle.
static size_t largest_gap(const bool *left, size_t n) {
    size_t first = 0, largest = 0;
    while (!left[first]) first++;
    for (size_t i = 1, gap = 1; i <= n; i++, gap++) {
        if (!left[(first + i) % n]) continue;
        if (gap > largest) largest = gap;
        gap = 0;
    }
    return largest;
}

// With k evicted blocks of n, the best possible distance is n / k.
static void every_prefix_is_spread_evenly_over_the_cycle(void **state) {
    (void)state;
    instance in;
    for (size_t n = 1; n <= MAX_BLOCKS; n++) {
        bool left[MAX_BLOCKS] = {0};
        make_equal(&in, n, 1);
        for (size_t k = 1; k <= n; k++) {
            left[in.order[k - 1]] = true;
            size_t gap = largest_gap(left, n), best = (n + k - 1) / k;
            if (gap > 2 * best + 1) fail_msg("n %zu, k %zu: a gap of %zu, %zu would be best", n, k, gap, best);
        }
    }
}

static void halves_quarters_and_so_on_are_exactly_even(void **state) {
    (void)state;
    instance in;
    bool left[256] = {0};
    make_equal(&in, 256, 7);
    for (size_t k = 1; k <= 256; k++) {
        left[in.order[k - 1]] = true;
        if ((k & (k - 1)) == 0) assert_int_equal(largest_gap(left, 256), 256 / k);
    }
}

// ---- the choice

static void the_choice_never_exceeds_the_budget_and_says_its_bytes(void **state) {
    (void)state;
    instance in;
    bool resident[MAX_BLOCKS];
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        for (int k = 0; k < 20; k++) {
            uint64_t budget = random_budget(&in), got = kin_residency_choose(in.bytes, in.n, in.order, budget, resident);
            assert_true(got <= budget);
            assert_int_equal(got, resident_bytes(&in, resident));
        }
    }
}

static void no_block_that_left_would_still_fit(void **state) {
    (void)state;
    instance in;
    bool resident[MAX_BLOCKS];
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        for (int k = 0; k < 20; k++) {
            uint64_t budget = random_budget(&in), got = kin_residency_choose(in.bytes, in.n, in.order, budget, resident);
            for (size_t i = 0; i < in.n; i++) assert_true(resident[i] || got + in.bytes[i] > budget);
        }
    }
}

static void what_fits_entirely_stays_entirely(void **state) {
    (void)state;
    instance in;
    bool resident[MAX_BLOCKS];
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        assert_int_equal(kin_residency_choose(in.bytes, in.n, in.order, in.sum, resident), in.sum);
        for (size_t i = 0; i < in.n; i++) assert_true(resident[i]);
        assert_int_equal(kin_residency_choose(in.bytes, in.n, in.order, UINT64_MAX, resident), in.sum);
    }
}

static void without_a_budget_only_empty_blocks_stay(void **state) {
    (void)state;
    instance in;
    bool resident[MAX_BLOCKS];
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        assert_int_equal(kin_residency_choose(in.bytes, in.n, in.order, 0, resident), 0);
        for (size_t i = 0; i < in.n; i++) assert_int_equal(resident[i], in.bytes[i] == 0);
    }
}

static void one_block_stays_or_leaves_whole(void **state) {
    (void)state;
    instance in;
    bool resident;
    make_equal(&in, 1, 100);
    assert_int_equal(in.order[0], 0);
    assert_int_equal(kin_residency_choose(in.bytes, 1, in.order, 99, &resident), 0);
    assert_false(resident);
    assert_int_equal(kin_residency_choose(in.bytes, 1, in.order, 100, &resident), 100);
    assert_true(resident);
}

static void no_blocks_are_no_error(void **state) {
    (void)state;
    kin_residency_order(NULL, 0, 0, NULL);
    assert_int_equal(kin_residency_choose(NULL, 0, NULL, 10, NULL), 0);
}

// ---- a budget that changes

static void of_equal_blocks_the_sets_of_smaller_budgets_are_nested(void **state) {
    (void)state;
    instance in;
    for (size_t n = 1; n <= MAX_BLOCKS; n += 13) {
        bool more[MAX_BLOCKS], less[MAX_BLOCKS];
        make_equal(&in, n, 10);
        kin_residency_choose(in.bytes, n, in.order, in.sum, more);
        for (uint64_t budget = in.sum; budget-- > 0;) {
            kin_residency_choose(in.bytes, n, in.order, budget, less);
            for (size_t i = 0; i < n; i++) assert_true(more[i] || !less[i]);
            memcpy(more, less, sizeof more);
        }
    }
}

// When the budget falls, only blocks that fit the room of the last evicted block are loaded: less than one block of bytes.
static void a_smaller_budget_fetches_less_than_one_block_anew(void **state) {
    (void)state;
    instance in;
    bool more[MAX_BLOCKS], less[MAX_BLOCKS];
    for (int round = 0; round < N_RANDOM; round++) {
        make_random(&in);
        for (int k = 0; k < 20; k++) {
            uint64_t a = random_budget(&in), b = random_budget(&in), fetched = 0;
            kin_residency_choose(in.bytes, in.n, in.order, a > b ? a : b, more);
            kin_residency_choose(in.bytes, in.n, in.order, a > b ? b : a, less);
            for (size_t i = 0; i < in.n; i++) fetched += less[i] && !more[i] ? in.bytes[i] : 0;
            assert_true(fetched == 0 || fetched < in.largest);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_has_every_block_once),
        cmocka_unit_test(empty_blocks_come_last),
        cmocka_unit_test(blocks_that_shall_stay_leave_after_all_others),
        cmocka_unit_test(every_prefix_is_spread_evenly_over_the_cycle),
        cmocka_unit_test(halves_quarters_and_so_on_are_exactly_even),
        cmocka_unit_test(the_choice_never_exceeds_the_budget_and_says_its_bytes),
        cmocka_unit_test(no_block_that_left_would_still_fit),
        cmocka_unit_test(what_fits_entirely_stays_entirely),
        cmocka_unit_test(without_a_budget_only_empty_blocks_stay),
        cmocka_unit_test(one_block_stays_or_leaves_whole),
        cmocka_unit_test(no_blocks_are_no_error),
        cmocka_unit_test(of_equal_blocks_the_sets_of_smaller_budgets_are_nested),
        cmocka_unit_test(a_smaller_budget_fetches_less_than_one_block_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
