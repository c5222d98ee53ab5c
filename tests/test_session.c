// A session with others (node/session.h): what is wrong at its beginning.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "node/session.h"
#include "tests/small_cluster.h"

static int plan_nothing(void *user, const kin_cluster_question *question, kin_ring_plan *out, kin_err *err) {
    (void)user, (void)question, (void)out;
    return kin_err_set(err, "there is no plan");
}

// The shard of an earlier ring is closed when another one is opened, whether that ring comes up or not.
static void a_ring_that_does_not_come_up_leaves_no_shard_of_an_earlier_one(void **state) {
    (void)state;
    static kin_shard *const earlier = (kin_shard *)&model;
    atomic_bool stop = true;
    kin_err err;
    kin_cluster_options o = cluster_options(0);
    o.plan = plan_nothing;
    o.stop = &stop;
    kin_session s = {.with_others = true, .shard = earlier, .fleet.cluster = open_small_cluster(&o)};
    const kin_session_options so = kin_session_options_defaults();
    assert_int_equal(kin_timeline_open(&s.timeline, KIN_TIMELINE_TOKENS, &err), 0);
    assert_int_equal(kin_session_begin(&s, &err), KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    assert_null(s.shard);
    assert_int_equal(kin_session_end_timeline(&s, &so, &err), 0); // looks at no shard
    kin_cluster_close(s.fleet.cluster);
    kin_timeline_close(s.timeline);
}

static void a_batch_that_fits_no_frame_is_an_error(void **state) {
    (void)state;
    kin_cluster_options o = cluster_options(0);
    kin_cluster *c;
    kin_err err;
    o.plan = plan_nothing;
    o.shard.n_ctx = o.shard.n_batch = 1 << 20;
    assert_int_equal(kin_cluster_open(&c, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "--batch 1048576: so many tokens do not fit a frame"));
    assert_null(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_that_does_not_come_up_leaves_no_shard_of_an_earlier_one),
        cmocka_unit_test(a_batch_that_fits_no_frame_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
