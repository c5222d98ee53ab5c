// The figures of a path that a probe computes from its messages (pure/proto/probing.h). Paths are simulated by formulas.
//
// On a path with `opens`, TCP opens its congestion window: a message larger than all before needs another round trip for each
// doubling, and BBR paces at 2.89 times the largest rate that it has seen, that of the largest message (measured: probing.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pure/proto/probing.h"
#include "tests/place.h"

enum { HIDDEN = 16384, MESSAGES_MAX = 200 };

typedef struct path {
    double rtt_s, to_bytes_s, from_bytes_s;
    int late; // the index of the message that is delayed by late_s; -1: none
    double late_s;
    bool opens;
} path;

typedef struct outcome {
    kin_probing_result result;
    double took_s;
    int n_messages;
} outcome;

static double bytes_time_s(const path *w, double n_bytes, double bytes_s, double *seen) {
    enum { FIRST_WINDOW = 14480 };
    static const double PACING = 2.89;
    double s = 0;
    if (!w->opens) return n_bytes / bytes_s;
    for (*seen = fmax(*seen, FIRST_WINDOW); 2 * *seen < n_bytes; *seen *= 2) s += w->rtt_s;
    *seen = fmax(*seen, n_bytes);
    return s + n_bytes / fmin(bytes_s, PACING * *seen / w->rtt_s);
}

static outcome probe(const path *w) {
    kin_probing p;
    outcome o = {0};
    double seen[2] = {0};
    kin_probing_init(&p, HIDDEN, 0);
    for (bool is_over = false; !is_over; o.n_messages++) {
        kin_probing_message m = kin_probing_next(&p);
        double s = w->rtt_s + bytes_time_s(w, m.n_bytes, w->to_bytes_s, &seen[0]);
        s += bytes_time_s(w, m.answer_bytes, w->from_bytes_s, &seen[1]);
        if (o.n_messages == w->late) s += w->late_s;
        o.took_s += s + (m.rests ? 0.01 : 0);
        assert_true(o.n_messages < MESSAGES_MAX);
        is_over = kin_probing_add(&p, s, (kin_time)(o.took_s * 1e9));
    }
    o.result = p.result;
    return o;
}
#define probe(...) FROM_TEST(probe(__VA_ARGS__))

static void expect_within(const path *w, double share) {
    outcome o = probe(w);
    const kin_probing_result *r = &o.result;
    if (fabs(r->rtt_s / w->rtt_s - 1) > share || fabs(r->to_bytes_s / w->to_bytes_s - 1) > share ||
        fabs(r->from_bytes_s / w->from_bytes_s - 1) > share)
        fail_msg("message %d late by %g s: %g s, %g and %g bytes/s", w->late, w->late_s, r->rtt_s, r->to_bytes_s,
                 r->from_bytes_s);
}
#define expect_within(...) FROM_TEST(expect_within(__VA_ARGS__))

static const path paths[] = {
    {1e-4, 117e6, 117e6, -1, 0, false}, {1e-3, 117e6, 12e6, -1, 0, false}, {5e-3, 2.4e6, 6e6, -1, 0, false},
    {2e-3, 0.5e6, 0.7e6, -1, 0, false}, {3e-2, 2.4e6, 1e6, -1, 0, false},  {2.5e-2, 117e6, 30e6, -1, 0, false},
};
enum { N_PATHS = sizeof paths / sizeof paths[0] };

static void a_path_has_a_round_trip_and_two_rates(void **state) {
    (void)state;
    for (int i = 0; i < N_PATHS; i++) expect_within(&paths[i], 0.001);
}

// Causes of a delay: a page fault from disk, a thread that waits for a processor, a delayed acknowledgement.
static void a_message_that_is_late_once_changes_nothing(void **state) {
    (void)state;
    static const double late_s[] = {0.005, 0.0225, 0.042, 0.12};
    for (int i = 0; i < N_PATHS; i++) {
        for (int k = 0; k < 4; k++) {
            path w = paths[i];
            int n = probe(&w).n_messages;
            w.late_s = late_s[k];
            for (w.late = 0; w.late < n; w.late++) expect_within(&w, 0.02);
        }
    }
}

// The transfer time of a hidden state, which plans count in addition to half a round trip, is wrong by at most 5 % of the sum.
static void a_window_that_is_not_open_yet_is_no_rate(void **state) {
    (void)state;
    static const double trips_s[] = {1e-4, 1e-3, 5e-3, 9e-3, 1.1e-2, 2e-2, 3e-2, 5e-2};
    static const double rates[] = {117e6, 12e6, 6.2e6, 1.2e6};
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 4; k++) {
            path w = {trips_s[i], rates[k], rates[k], -1, 0, true};
            outcome o = probe(&w);
            double right_s = HIDDEN / rates[k], half_s = o.result.rtt_s / 2, most_s = 0.05 * (half_s + right_s);
            double to_s = HIDDEN / o.result.to_bytes_s, from_s = HIDDEN / o.result.from_bytes_s;
            if (fabs(to_s - right_s) > most_s || fabs(from_s - right_s) > most_s || o.took_s > 2.5)
                fail_msg("%g s, %g bytes/s: %g and %g for %g s beyond half a round trip; measured in %g s", w.rtt_s, rates[k],
                         to_s, from_s, right_s, o.took_s);
        }
    }
}

// Times of messages of 1 MiB on a path of 20 ms, after those that warm up and the round trips: the window is open when two were
// no faster than those before. A message that is faster by a tenth begins anew.
static void a_long_path_is_measured_until_two_messages_are_no_faster(void **state) {
    (void)state;
    static const double times_s[] = {0.2, 0.17, 0.16, 0.12, 0.125, 0.119};
    kin_probing p;
    kin_time now = 0;
    kin_probing_init(&p, HIDDEN, now);
    while (kin_probing_next(&p).n_bytes == 0) assert_false(kin_probing_add(&p, 0.02, now += 1));
    while (kin_probing_next(&p).n_bytes < 1 << 20) assert_false(kin_probing_add(&p, 0.021, now += 1));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kin_probing_next(&p).n_bytes, 1 << 20);
        assert_false(kin_probing_add(&p, times_s[i], now += 1));
    }
    assert_true(p.is_back);
    assert_true(fabs(p.result.to_bytes_s / ((1 << 20) / (0.119 - 0.02)) - 1) < 1e-6);
}

static void a_probe_takes_so_long(void **state) {
    (void)state;
    assert_true(probe(&paths[0]).took_s < 0.15);
    assert_true(probe(&paths[1]).took_s < 0.4);
    assert_true(probe(&paths[2]).took_s < 1.2);
    for (double rate = 13e3; rate < 100e6; rate *= 1.5) {
        path slow = {1e-3, rate, rate, -1, 0, false}, far = {4e-2, 1.3 * rate, 1.3 * rate, -1, 0, true};
        assert_true(probe(&slow).took_s < 2.9); // net/probe.h gives up after 3 s
        assert_true(probe(&far).took_s < 2.9);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_has_a_round_trip_and_two_rates),
        cmocka_unit_test(a_message_that_is_late_once_changes_nothing),
        cmocka_unit_test(a_window_that_is_not_open_yet_is_no_rate),
        cmocka_unit_test(a_long_path_is_measured_until_two_messages_are_no_faster),
        cmocka_unit_test(a_probe_takes_so_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
