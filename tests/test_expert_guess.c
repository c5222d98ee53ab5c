// Which guesses of the next layer's experts are worth a read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/plan/expert_guess.h"
#include "tests/place.h"

enum { N_LAYER = 2, N_USED = 4, N_EXPERT = 16 };

static kin_expert_guess *open_guess(void) {
    kin_expert_guess *g;
    kin_err err;
    if (kin_expert_guess_open(&g, N_LAYER, N_USED, &err) != 0) fail_msg("%s", err.text);
    return g;
}
#define open_guess() FROM_TEST(open_guess())

// Steps in which the experts 0, 1, ... of layer 1 were guessed by rank, and the first n_right of them were used.
static void pass(kin_expert_guess *g, int n_steps, int n_right) {
    int32_t uses[N_EXPERT] = {0};
    for (int i = 0; i < n_right; i++) uses[i] = 1;
    for (int i = 0; i < n_steps; i++) {
        if (!kin_expert_guess_is_due(g, 1)) continue;
        for (int rank = 0; rank < N_USED; rank++) kin_expert_guess_note(g, 1, rank, rank);
        kin_expert_guess_settle(g, 1, uses);
    }
}

static int n_due(kin_expert_guess *g, int il, int n_steps) {
    int n = 0;
    for (int i = 0; i < n_steps; i++) n += kin_expert_guess_is_due(g, il);
    return n;
}

static void nothing_is_read_before_guesses_came_true(void **state) {
    (void)state;
    kin_expert_guess *g = open_guess();
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), 0);
    pass(g, 5, N_USED);
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), 0);
    pass(g, 5, N_USED);
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), N_USED);
    assert_int_equal(kin_expert_guess_n_worthy(g, 0), 0);
    kin_expert_guess_close(g);
}

static void only_ranks_that_come_true_are_read(void **state) {
    (void)state;
    kin_expert_guess *g = open_guess();
    pass(g, 50, 2);
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), 2);
    assert_int_equal(n_due(g, 1, 8), 8);
    kin_expert_guess_close(g);
}

static void a_layer_that_cannot_be_foreseen_is_guessed_seldom(void **state) {
    (void)state;
    kin_expert_guess *g = open_guess();
    pass(g, 20, 0);
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), 0);
    assert_int_equal(n_due(g, 1, 10 * KIN_GUESS_SELDOM), 10);
    kin_expert_guess_close(g);
}

static void a_layer_that_has_changed_is_read_ahead_again(void **state) {
    (void)state;
    kin_expert_guess *g = open_guess();
    pass(g, 100, 0);
    pass(g, 100 * KIN_GUESS_SELDOM, N_USED);
    assert_int_equal(kin_expert_guess_n_worthy(g, 1), N_USED);
    kin_expert_guess_close(g);
}

static void a_layer_whose_experts_are_in_memory_is_guessed_seldom(void **state) {
    (void)state;
    kin_expert_guess *g = open_guess();
    assert_int_equal(n_due(g, 0, KIN_GUESS_SELDOM), KIN_GUESS_SELDOM); // nothing is noted
    assert_int_equal(n_due(g, 0, 10 * KIN_GUESS_SELDOM), 10);
    kin_expert_guess_note(g, 0, 3, 1);
    assert_int_equal(n_due(g, 0, 4), 4);
    kin_expert_guess_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_before_guesses_came_true),
        cmocka_unit_test(only_ranks_that_come_true_are_read),
        cmocka_unit_test(a_layer_that_cannot_be_foreseen_is_guessed_seldom),
        cmocka_unit_test(a_layer_that_has_changed_is_read_ahead_again),
        cmocka_unit_test(a_layer_whose_experts_are_in_memory_is_guessed_seldom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
