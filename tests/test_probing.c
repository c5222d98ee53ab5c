// What a probe's messages say of a path (pure/proto/probing.h): paths here are formulas, and take no time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pure/proto/probing.h"

enum { HIDDEN = 16384, MESSAGES_MAX = 200 };

typedef struct path {
    double rtt_s, to_bytes_s, from_bytes_s;
    int late; // this message, from 0, takes so much longer
    double late_s;
} path;

typedef struct outcome {
    kin_probing_result result;
    double took_s;
    int n_messages;
} outcome;

static outcome probe(const path *w) {
    kin_probing p;
    outcome o = {0};
    kin_probing_init(&p, HIDDEN, 0);
    for (bool is_over = false; !is_over; o.n_messages++) {
        kin_probing_message m = kin_probing_next(&p);
        double s = w->rtt_s + m.n_bytes / w->to_bytes_s + m.answer_bytes / w->from_bytes_s;
        if (o.n_messages == w->late) s += w->late_s;
        o.took_s += s + (m.rests ? 0.01 : 0);
        assert_true(o.n_messages < MESSAGES_MAX);
        is_over = kin_probing_take(&p, s, (kin_time)(o.took_s * 1e9));
    }
    o.result = p.result;
    return o;
}

static void expect_within(const path *w, double share) {
    outcome o = probe(w);
    const kin_probing_result *r = &o.result;
    if (fabs(r->rtt_s / w->rtt_s - 1) > share || fabs(r->to_bytes_s / w->to_bytes_s - 1) > share ||
        fabs(r->from_bytes_s / w->from_bytes_s - 1) > share)
        fail_msg("message %d late by %g s: %g s, %g and %g bytes/s", w->late, w->late_s, r->rtt_s, r->to_bytes_s,
                 r->from_bytes_s);
}

static const path paths[] = {
    {1e-4, 117e6, 117e6, -1, 0}, {1e-3, 117e6, 12e6, -1, 0}, {5e-3, 2.4e6, 6e6, -1, 0},
    {2e-3, 0.5e6, 0.7e6, -1, 0}, {3e-2, 2.4e6, 1e6, -1, 0},
};
enum { N_PATHS = sizeof paths / sizeof paths[0] };

static void a_path_has_a_round_trip_and_two_rates(void **state) {
    (void)state;
    for (int i = 0; i < N_PATHS; i++) expect_within(&paths[i], 0.001);
}

// A page that comes from the disk, a thread that has to wait for a processor, an acknowledgement that is held back.
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

static void a_probe_takes_so_long(void **state) {
    (void)state;
    assert_true(probe(&paths[0]).took_s < 0.15);
    assert_true(probe(&paths[1]).took_s < 0.4);
    assert_true(probe(&paths[2]).took_s < 1.2);
    for (double rate = 13e3; rate < 100e6; rate *= 1.5) {
        path slow = {1e-3, rate, rate, -1, 0};
        assert_true(probe(&slow).took_s < 2.9); // net/probe.h gives up after 3 s
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_has_a_round_trip_and_two_rates),
        cmocka_unit_test(a_message_that_is_late_once_changes_nothing),
        cmocka_unit_test(a_probe_takes_so_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
