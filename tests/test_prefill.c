// The number of prompt tokens in a step beside generation (pure/plan/prefill.h), on simulated rings with varying step times.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "pure/plan/prefill.h"
#include "tests/place.h"

enum { N_SEEDS = 20, MOST_STEPS = 100000 };

// A ring with one sequence. A step takes plain_s, token_s per prompt token, and the random delays of its links.
typedef struct ring {
    double plain_s, token_s;
    double jitter_s;  // the largest random delay of each of two hops
    double outlier_s; // the delay of one step in ten
    kin_rng rng;
    kin_prefill p;
    double now_s;
    int n_steps;
} ring;

static ring make_ring(double plain_s, double token_s, uint64_t seed) {
    ring r = {.plain_s = plain_s, .token_s = token_s};
    kin_rng_seed(&r.rng, seed);
    kin_prefill_init(&r.p);
    return r;
}

static double chance(ring *r) {
    return (double)(kin_rng_u64(&r->rng) >> 11) * 0x1p-53;
}

static double run_step(ring *r, int n_tokens) {
    double took_s = r->plain_s + r->token_s * n_tokens + r->jitter_s * (chance(r) + chance(r));
    if (chance(r) < 0.1) took_s += r->outlier_s;
    r->now_s += took_s;
    r->n_steps++;
    return took_s;
}

// Takes the sequence's next step with at most n_left tokens of a prompt. Returns the number of prompt tokens in it.
static int step(ring *r, int n_left) {
    const kin_prefill_beside beside = {.n_rows = 1, .n_steps = 1, .n_least = 1, .n_most = 1};
    if (kin_prefill_wants_plain(&r->p)) {
        kin_prefill_learn_plain(&r->p, 1, run_step(r, 0));
        return 0;
    }
    int n = kin_prefill_tokens(&r->p, 1);
    assert_true(n >= 1);
    if (n > n_left) n = n_left;
    kin_prefill_learn(&r->p, &beside, n, run_step(r, n));
    return n;
}
#define step(...) FROM_TEST(step(__VA_ARGS__))

// Returns the seconds in which a prompt is computed beside the sequence.
static double read_prompt(ring *r, int n_tokens) {
    double begun_s = r->now_s;
    r->n_steps = 0;
    while (n_tokens > 0) {
        n_tokens -= step(r, n_tokens);
        assert_true(r->n_steps < MOST_STEPS);
    }
    return r->now_s - begun_s;
}
#define read_prompt(...) FROM_TEST(read_prompt(__VA_ARGS__))

// Returns the mean over seeds of a prompt's time relative to the same ring without random delays; worst: the maximum.
static double slowdown(ring like, int n_tokens, double *worst) {
    ring steady = make_ring(like.plain_s + like.jitter_s + 0.1 * like.outlier_s, like.token_s, 1);
    double steady_s = read_prompt(&steady, n_tokens), sum = 0;
    *worst = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        ring r = like;
        kin_rng_seed(&r.rng, seed);
        double times = read_prompt(&r, n_tokens) / steady_s;
        sum += times;
        *worst = fmax(*worst, times);
    }
    print_message("on average %.2f times as long as %.1f s, at most %.2f\n", sum / N_SEEDS, steady_s, *worst);
    return sum / N_SEEDS;
}
#define slowdown(...) FROM_TEST(slowdown(__VA_ARGS__))

static void jitter_of_60_ms_does_not_starve_a_prompt(void **state) {
    (void)state;
    double worst;
    ring fast = make_ring(0.020, 0.0005, 0), even = make_ring(0.100, 0.004, 0), slow = make_ring(0.300, 0.020, 0);
    fast.jitter_s = even.jitter_s = slow.jitter_s = 0.060;
    assert_true(slowdown(fast, 900, &worst) < 1.6 && worst < 2.5);
    assert_true(slowdown(even, 900, &worst) < 1.6 && worst < 2.5);
    assert_true(slowdown(slow, 900, &worst) < 1.6 && worst < 2.5);
}

static void steps_that_are_late_now_and_then_do_not_starve_a_prompt(void **state) {
    (void)state;
    double worst;
    ring r = make_ring(0.050, 0.002, 0);
    r.outlier_s = 0.300;
    assert_true(slowdown(r, 900, &worst) < 1.6 && worst < 2.5);
}

static void what_jitter_taught_is_forgotten_when_it_ends(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        ring r = make_ring(0.050, 0.002, seed), steady = make_ring(0.050, 0.002, seed);
        r.jitter_s = 0.060;
        read_prompt(&r, 900);
        read_prompt(&steady, 900);
        r.jitter_s = 0;
        read_prompt(&r, 900);
        assert_true(read_prompt(&r, 900) < 1.2 * read_prompt(&steady, 900));
    }
}

// Varying times do not delay the sequence: a step becomes longer by a factor of 1.4, or by the usual variation if that is more.
static void a_text_does_not_wait_longer_than_steps_vary(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        ring r = make_ring(0.100, 0.004, seed);
        r.jitter_s = 0.060;
        double took_s = read_prompt(&r, 900) / r.n_steps;
        assert_true(took_s < r.plain_s + r.jitter_s + fmax(0.4 * (r.plain_s + r.jitter_s), 2 * r.jitter_s));
    }
}

static void without_chance_a_step_takes_1_4_times_as_long(void **state) {
    (void)state;
    ring r = make_ring(0.100, 0.004, 1);
    read_prompt(&r, 900);
    int n = kin_prefill_tokens(&r.p, 1);
    assert_in_range(n, 9, 11);
}

// With and without random delays.
static void a_slower_ring_gets_smaller_pieces_soon(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        ring r = make_ring(0.100, 0.004, seed);
        r.jitter_s = seed % 2 ? 0.020 : 0;
        read_prompt(&r, 900);
        r.token_s *= 5;
        for (int i = 0; i < 12; i++) step(&r, 1 << 20);
        assert_in_range(kin_prefill_tokens(&r.p, 1), 1, 6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_chance_a_step_takes_1_4_times_as_long),
        cmocka_unit_test(jitter_of_60_ms_does_not_starve_a_prompt),
        cmocka_unit_test(steps_that_are_late_now_and_then_do_not_starve_a_prompt),
        cmocka_unit_test(what_jitter_taught_is_forgotten_when_it_ends),
        cmocka_unit_test(a_text_does_not_wait_longer_than_steps_vary),
        cmocka_unit_test(a_slower_ring_gets_smaller_pieces_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
