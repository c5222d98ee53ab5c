// A clustered session (cluster/session.h): failures at its start, and the context of its pages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/session.h"
#include "testkit/silent_console.h"
#include "tests/place.h"
#include "tests/small_cluster.h"

static int plan_nothing(kin_planner *user, const kin_planner_question *question, kin_plan *out, kin_err *err) {
    (void)user, (void)question, (void)out;
    return kin_err_set(err, "there is no plan");
}

// Opening a ring closes the shard of the previous ring, even if the new ring does not come up.
static void a_ring_that_does_not_come_up_leaves_no_shard_of_an_earlier_one(void **state) {
    (void)state;
    static kin_shard *const earlier = (kin_shard *)&model;
    atomic_bool stop = true;
    kin_err err;
    kin_cluster_options o = cluster_options(0);
    o.calls.ask = plan_nothing;
    o.stop = &stop;
    kin_session s = {.clustered = true, .shard = earlier, .fleet.cluster = open_small_cluster(&o)};
    const kin_session_options so = kin_session_options_defaults();
    assert_int_equal(kin_timeline_open(&s.timeline, KIN_TIMELINE_TOKENS, &err), 0);
    assert_int_equal(kin_session_begin(&s, &err), KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    assert_null(s.shard);
    assert_int_equal(kin_session_end_timeline(&s, &so, &err), 0); // must not access the closed shard
    kin_cluster_close(s.fleet.cluster);
    kin_timeline_close(s.timeline);
}

static void a_batch_that_fits_no_frame_is_an_error(void **state) {
    (void)state;
    kin_cluster_options o = cluster_options(0);
    kin_cluster *c;
    kin_err err;
    o.calls.ask = plan_nothing;
    o.shard.n_ctx = o.shard.n_batch = 1 << 20;
    assert_int_equal(kin_cluster_open(&c, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "--batch 1048576: too many tokens for a network frame"));
    assert_null(c);
}

static uint64_t context_with(const char *allreduce) {
    static atomic_bool stop;
    const kin_console console = kin_silent_console(&stop);
    kin_session_options o = kin_session_options_defaults();
    kin_session s = {0};
    kin_err err;
    o.console = &console;
    o.model = model_path;
    o.gpu_layers = "0";
    o.n_threads = 1;
    o.keeps_kv = o.no_cache = true;
    o.fleet.allreduce = allreduce;
    if (kin_session_open_model(&s, &o, &err) != 0 || kin_session_open(&s, &o, N_CTX, &err) != 0) fail_msg("%s", err.text);
    assert_non_null(s.kv_disk.dir);
    uint64_t context = s.kv_context;
    kin_session_close(&s);
    return context;
}
#define context_with(...) FROM_TEST(context_with(__VA_ARGS__))

// Another order of additions changes the last bits of sums, and so of keys and values: the pages need another context.
static void pages_are_of_one_order_of_sums(void **state) {
    (void)state;
    char home[] = "/tmp/kin-test-session-XXXXXX", command[64];
    assert_non_null(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("XDG_CACHE_HOME");
    uint64_t mesh = context_with("mesh");
    assert_true(context_with("star") == mesh);
    assert_true(context_with("tree") != mesh && context_with("ring") != mesh && context_with("tree") != context_with("ring"));
    snprintf(command, sizeof command, "rm -rf %s", home);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_that_does_not_come_up_leaves_no_shard_of_an_earlier_one),
        cmocka_unit_test(a_batch_that_fits_no_frame_is_an_error),
        cmocka_unit_test(pages_are_of_one_order_of_sums),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
