// The order of a ring when another plan replaces its plan (pure/plan/ring_order.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/plan/ring_order.h"
#include "testkit/equal_devices.h"
#include "tests/place.h"

enum { N = 4, GONE = -1 };

static kin_facts facts;

static int setup(void **state) {
    (void)state;
    kin_equal_devices(&facts, N, 0.001);
    return 0;
}

static kin_plan ring(int n, const int *devices) {
    kin_plan p = {.n_rounds = 1, .n_stops = n + 1};
    for (int i = 0; i < n; i++) {
        p.stops[i + 1].device = devices[i];
        if (devices[i] > 0) p.shares[devices[i]].n_layer = facts.model.n_layer / n + (i < facts.model.n_layer % n);
    }
    return p;
}

static void becomes(kin_plan before, kin_plan plan, const int *devices) {
    kin_plan kept = plan;
    kin_plan_keep_order(&facts, &before, &kept);
    assert_int_equal(kept.n_stops, plan.n_stops);
    for (int s = 1; s < kept.n_stops; s++) assert_int_equal(kept.stops[s].device, devices[s - 1]);
    assert_memory_equal(kept.shares, plan.shares, sizeof kept.shares);
}
#define becomes(...) FROM_TEST(becomes(__VA_ARGS__))

static void a_device_that_comes_gets_the_place_of_a_gone_one(void **state) {
    (void)state;
    becomes(ring(2, (int[]){1, 2}), ring(2, (int[]){2, 3}), (int[]){3, 2}); // 1 is there, but has no layers
    becomes(ring(2, (int[]){GONE, 2}), ring(2, (int[]){2, 3}), (int[]){3, 2});
    becomes(ring(2, (int[]){1, GONE}), ring(2, (int[]){3, 1}), (int[]){1, 3});
    becomes(ring(1, (int[]){2}), ring(3, (int[]){3, 1, 2}), (int[]){2, 3, 1}); // behind the others
}

static void without_a_new_device_the_others_close_up(void **state) {
    (void)state;
    becomes(ring(3, (int[]){1, 2, 3}), ring(2, (int[]){3, 1}), (int[]){1, 3});
    becomes(ring(3, (int[]){3, GONE, 1}), ring(2, (int[]){1, 3}), (int[]){3, 1});
    becomes(ring(2, (int[]){1, 2}), ring(0, NULL), NULL);
}

static void a_new_ring_has_the_schedulers_order(void **state) {
    (void)state;
    becomes(ring(0, NULL), ring(3, (int[]){3, 1, 2}), (int[]){3, 1, 2});
    becomes(ring(2, (int[]){GONE, GONE}), ring(2, (int[]){3, 1}), (int[]){3, 1});
}

static void a_much_slower_order_or_one_without_links_is_not_kept(void **state) {
    (void)state;
    facts.links[0][1].rtt_s = 10;
    becomes(ring(2, (int[]){1, 2}), ring(2, (int[]){2, 1}), (int[]){2, 1});
    facts.links[0][1] = (kin_link_facts){0};
    becomes(ring(2, (int[]){1, 2}), ring(2, (int[]){2, 1}), (int[]){2, 1});
}

static void a_ring_with_relays_stays_as_it_is(void **state) {
    (void)state;
    kin_plan with_relay = ring(2, (int[]){2, 1});
    with_relay.stops[with_relay.n_stops].device = 3;
    with_relay.stops[with_relay.n_stops++].relay = true;
    becomes(ring(2, (int[]){1, 2}), with_relay, (int[]){2, 1, 3});
    becomes(with_relay, ring(3, (int[]){3, 1, 2}), (int[]){2, 1, 3}); // a device that was only a relay counts as new
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_device_that_comes_gets_the_place_of_a_gone_one, setup),
        cmocka_unit_test_setup(without_a_new_device_the_others_close_up, setup),
        cmocka_unit_test_setup(a_new_ring_has_the_schedulers_order, setup),
        cmocka_unit_test_setup(a_much_slower_order_or_one_without_links_is_not_kept, setup),
        cmocka_unit_test_setup(a_ring_with_relays_stays_as_it_is, setup),
    };
    return cmocka_run_group_tests_name("ring_order", tests, NULL, NULL);
}
