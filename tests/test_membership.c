// The head's side of membership (pure/proto/membership.h), step by step. Each test is a story: the events, and after them,
// indented, the actions of the membership. "say" is a line of the log. Status changes are left out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/proto/message.h"
#include "tests/long_reason.h"
#include "tests/membership_story.h"
#include "tests/place.h"

static void two_devices_become_a_ring(void **state) {
    (void)state;
    begin_default();
    hello(11, 1, "tower", 3);
    expect("accept 11\n");
    facts(11, 9);
    expect("say device 'tower' has joined\n");
    wait_ms(200);
    joins(12, 2, "laptop");
    expect("accept 12\nsay device 'laptop' has joined\n");
    wait_ms(200);
    expect(""); // others may still join
    wait_ms(50);
    expect("ask 1: tower laptop\n");
    assert_string_equal(doing(), "making a plan");
    planned(1, "21", 7);
    expect("whisper plan 1: 2 devices\n"
           "plan 1 to 11\n"
           "plan 1 to 12\n"
           "open ring 1 to laptop\n");
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(12);
    expect("say device 'laptop' (stage 1 of 2) is ready\n");
    assert_string_equal(doing(), "device 'tower' is getting ready");
    ring_opens(12);
    ready(11);
    expect("say device 'tower' (stage 2 of 2) is ready\n");
    assert_string_equal(doing(), "device 'tower' is connecting to the head");
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "no route");
    assert_string_equal(doing(), "device 'tower' is connecting to the head: no route");
    ring_opens(11);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, KIN_MEMBERSHIP_OWN, "timed out");
    assert_string_equal(doing(), "connecting to device 'laptop': timed out");
    ring_opens(KIN_MEMBERSHIP_OWN);
    forget();
    wait_ms(700);
    expect(""); // others may still join
    wait_ms(50);
    expect("up 1\nsay serving on 2 devices\n");
    assert_true(kin_membership_accepts(membership, 1));
    assert_false(kin_membership_accepts(membership, 0));
    assert_false(kin_membership_accepts(membership, 2));
}

static void a_device_that_joins_while_the_first_plan_gets_ready_is_in_the_next(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(250);
    expect_words("ask 1: tower\n");
    planned(1, "1", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(11);
    ready(11);
    wait_ms(500);
    forget();
    joins(12, 2, "laptop");
    wait_ms(950);
    expect("accept 12\nsay device 'laptop' has joined\n"); // no ring is up, though its devices are ready
    wait_ms(50);
    expect("ask 2: tower laptop\n");
    planned(2, "21", 7);
    assert_true(kin_membership_accepts(membership, 2));
}

static void a_head_alone_serves_if_the_planner_says_so(void **state) {
    (void)state;
    begin_default();
    wait_ms(1000);
    expect("ask 1:\n");
    planned(1, "", 0);
    expect("whisper plan 1: no device\nup 1\nsay serving alone\n");
}

static void a_head_that_serves_alone_beside_a_device_says_so(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(250);
    expect_words("accept 11\nsay device 'tower' has joined\nask 1: tower\n");
    planned(1, "", 0);
    wait_ms(750);
    expect_words("up 1\nsay serving alone: the plan leaves out 'tower'\n");
}

static void a_device_that_changes_nothing_for_a_head_alone_is_said_to_be_left_out(void **state) {
    (void)state;
    begin_default();
    wait_ms(1000);
    planned(1, "", 0);
    forget();
    joins(11, 1, "tower");
    wait_ms(1000);
    expect_words("accept 11\nsay device 'tower' has joined\nask 2: tower\n");
    planned(2, "", 0);
    expect_words("say serving alone: the plan leaves out 'tower'\n");
}

static void expected_devices_are_not_waited_for_any_longer(void **state) {
    (void)state;
    kin_membership_options o = kin_membership_options_default();
    o.n_expected = 2;
    begin(o);
    wait_ms(300);
    joins(11, 1, "tower");
    forget();
    wait_ms(100);
    joins(12, 2, "laptop");
    expect_words("ask 1: tower laptop\n");
}

static void drift_asks_the_planner_also_while_requests_run(void **state) {
    (void)state;
    begin_with_two();
    wait_ms(2000);
    forget();
    request(KIN_MEMBERSHIP_BEGINS);
    request(KIN_MEMBERSHIP_DRIFT);
    expect("ask 2: tower laptop\n");
    planned(2, "12", 7); // the same plan: it continues
    expect("");
    assert_false(kin_membership_yields(membership));
    request(KIN_MEMBERSHIP_ENDS);
    expect("");
    assert_true(kin_membership_accepts(membership, 1));
    request(KIN_MEMBERSHIP_DRIFT);
    expect("ask 3: tower laptop\n");
    planned(3, "12", 8); // a different plan
    expect_words("prefetch 3 to 11, gently\nprefetch 3 to 12, gently\nprefetch 3 to itself\n");
}

static void a_lost_device_fails_the_request_and_is_waited_for(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_LOST, 12, "nothing was heard for 1500 ms");
    expect("whisper device 'laptop' (stage 2 of 2) is gone (nothing was heard for 1500 ms)\n"
           "fail: device 'laptop' (stage 2 of 2) is gone (nothing was heard for 1500 ms)\n"
           "close ring 1\n"
           "end 1 to 11\n"
           "whisper plan 1 ended: device 'laptop' (stage 2 of 2) is gone (nothing was heard for 1500 ms)\n");
    assert_int_equal(kin_membership_n_requests(membership), 0);
    assert_false(kin_membership_accepts(membership, 1));
    assert_string_equal(doing(), "device 'laptop' is gone (nothing was heard for 1500 ms), waiting for it to come back");
    wait_ms(250);
    expect("");
    joins(13, 2, "laptop");
    expect("accept 13\nsay device 'laptop' has joined\nask 2: tower laptop\n"); // all are here: no wait
    planned(2, "12", 7);
    expect_words("plan 2 to 13\nplan 2 to 11\n"); // the same plan is a new epoch
}

static void without_the_lost_device_after_a_moment(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    forget();
    wait_ms(250);
    expect("");
    wait_ms(50);
    expect("ask 2: tower\n");
    planned(2, "1", 8);
    expect("whisper plan 2: 1 device\nplan 2 to 11\nopen ring 2 to tower\n");
}

static void what_does_not_fit_without_it_waits_and_says_so(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    wait_ms(3000);
    forget();
    does_not_fit(2);
    expect("say device 'laptop' is gone (connection reset), and without it: 2.0 GiB are missing\n");
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SHORT);
    wait_ms(60000);
    expect("");
    request(KIN_MEMBERSHIP_BEGINS); // no request may begin now
    expect("fail: device 'laptop' is gone (connection reset), and without it: 2.0 GiB are missing\n");
    joins(13, 2, "laptop");
    expect_words("ask 3: tower laptop\n");
}

static void a_policy_may_wait_for_ever(void **state) {
    (void)state;
    kin_membership_options o = kin_membership_options_default();
    o.lost_wait_ns = KIN_MEMBERSHIP_FOREVER;
    begin(o);
    joins(11, 1, "tower");
    wait_ms(1000);
    planned(1, "1", 7);
    of_link(KIN_MEMBERSHIP_LOST, 11, "connection reset");
    forget();
    wait_ms(600000);
    expect("");
}

static void a_device_that_left_is_not_waited_for(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_LEFT, 12, "its user ended it");
    forget();
    wait_ms(250);
    expect("ask 2: tower\n");
}

static void a_device_that_connects_anew_replaces_itself(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    hello(20, 1, "tower", 3);
    expect("drop 11: the same device has joined again on a newer link\n"
           "whisper device 'tower' (stage 1 of 2) is gone (it has reconnected)\n"
           "fail: device 'tower' (stage 1 of 2) is gone (it has reconnected)\n"
           "close ring 1\n"
           "end 1 to 12\n"
           "whisper plan 1 ended: device 'tower' (stage 1 of 2) is gone (it has reconnected)\n"
           "accept 20\n");
    of_link(KIN_MEMBERSHIP_LOST, 11, "closed"); // the old link's end, late
    expect("");
    facts(20, 0);
    expect("say device 'tower' has joined\n");
    wait_ms(250);
    expect("ask 2: tower laptop\n");
}

static void hello_of(uint32_t link, uint8_t id, uint64_t run, const char *name) {
    kin_membership_hello h = {.id = {{id}}, .run = run, .name = name, .features = 3};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_JOINS, .link = link, .hello = &h});
}

static void a_copy_of_a_device_is_refused_and_the_first_one_stays(void **state) {
    (void)state;
    begin_default();
    hello_of(11, 1, 700, "tower");
    facts(11, 0);
    forget();
    hello_of(12, 1, 800, "tower");
    expect("refuse 12: twin: 'tower' has already joined with the same identity; if its disk or configuration was "
           "copied, delete the file "
           "device-id "
           "beside its key on one of the two and start it again\n"
           "say device 'tower' is refused: 'tower' has already joined with the same identity; if its disk or "
           "configuration was copied, "
           "delete the "
           "file device-id beside its key on one of the two and start it again\n");
    assert_int_equal(kin_membership_device_at(membership, 0)->link, 11);
    assert_int_equal(kin_membership_device_at(membership, 0)->features, 3);
    hello_of(13, 1, 700, "tower"); // the same process on a new link
    expect_words("accept 13\n");
    of_link(KIN_MEMBERSHIP_LOST, 13, "nothing was heard for 1500 ms");
    forget();
    hello_of(14, 1, 800, "tower"); // after a restart, when the first one is lost
    expect("accept 14\n");
}

static void the_heads_name_is_unique(void **state) {
    (void)state;
    kin_membership_options o = kin_membership_options_default();
    snprintf(o.name, sizeof o.name, "desk");
    begin(o);
    joins(11, 1, "desk");
    joins(12, 2, "desk");
    assert_string_equal(kin_membership_device_at(membership, 0)->name, "desk-2");
    assert_string_equal(kin_membership_device_at(membership, 1)->name, "desk-3");
}

static void the_same_plan_changes_nothing(void **state) {
    (void)state;
    begin_with_two();
    joins(13, 3, "phone");
    wait_ms(1000);
    forget();
    planned(2, "12", 7);
    expect("");
    assert_int_equal(kin_membership_epoch(membership), 1);
    does_not_fit(2); // a surplus answer
    wait_ms(10000);
    expect("");
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
}

static void an_answer_about_a_gone_device_is_not_used(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    joins(12, 2, "laptop");
    wait_ms(1000);
    forget();
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    expect("say device 'laptop' is gone (connection reset)\nask 2: tower\n");
    planned(1, "12", 7); // would crash if it were used
    expect("");
    planned(2, "1", 7);
    expect_words("plan 1 to 11\n");
}

static void what_could_not_load_gets_no_slices_that_stream_until_it_comes_anew(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_FAILED, 12, "a disk error"); // while computing
    assert_false(kin_membership_device_at(membership, 1)->features & KIN_PROTO_NO_SLICES);
    wait_ms(2500);
    planned(3, "12", 7);
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_FAILED,
                                .link = 12,
                                .epoch = kin_membership_epoch(membership),
                                .stage = "loading",
                                .reason = "no cache"});
    assert_true(kin_membership_device_at(membership, 1)->features & KIN_PROTO_NO_SLICES);
}

static void a_long_reason_comes_whole(void **state) {
    (void)state;
    assert_int_equal(KIN_MEMBERSHIP_REASON, KIN_PROTO_MAX_REASON + 1);
    begin_with_two();
    of_link(KIN_MEMBERSHIP_FAILED, 12, long_reason());
    assert_string_equal(kin_membership_device_at(membership, 1)->last_error, long_reason());
    expect_words("see /a/path; it is left out for 2.0 s\n");
    joins(13, 3, "phone");
    wait_ms(1000);
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_NO_PLAN, .question = 2, .reason = "see /another/path"});
    assert_non_null(strstr(doing(), "see /a/path), and without it: see /another/path"));
}

static void a_ring_of_one_device_is_closed_too(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(250);
    planned(1, "1", 7);
    forget();
    of_link(KIN_MEMBERSHIP_FAILED, 11, "a disk error");
    expect_words("close ring 1\nend 1 to 11\n");
}

static void a_ring_of_all_expected_devices_is_up_at_once(void **state) {
    (void)state;
    kin_membership_options o = kin_membership_options_default();
    o.n_expected = 2;
    begin(o);
    joins(11, 1, "tower");
    joins(12, 2, "laptop");
    wait_ms(250);
    planned(1, "12", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    for (uint32_t link = 11; link <= 12; link++) {
        ready(link);
        forget();
        ring_opens(link);
    }
    expect_words("up 1\n");
}

static void each_change_of_a_device_is_reported_and_time_is_not(void **state) {
    (void)state;
    begin_default();
    wait_ms(50);
    assert_false(reports_status());
    hello(11, 1, "tower", 3);
    assert_true(reports_status());
    facts(11, 0);
    assert_true(reports_status());
    joins(12, 2, "laptop");
    wait_ms(250);
    planned(1, "1", 7);
    assert_true(reports_status());
    kin_proto_progress progress = {KIN_PROTO_FETCHING, 100, 400, 0, 0};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PROGRESS, .link = 11, .epoch = 1, .progress = &progress});
    assert_true(reports_status());
    ready(11);
    assert_true(reports_status());
    ring_opens(11);
    assert_true(reports_status());
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset"); // without layers
    assert_true(reports_status());
    wait_ms(50);
    assert_false(reports_status());
}

static void devices_without_layers_are_named_or_counted(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    joins(12, 2, "laptop");
    wait_ms(250);
    planned(1, "2", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(12);
    ring_opens(12);
    wait_ms(1000);
    assert_string_equal(doing(), "serving on 1 device; 'tower' has no layers");
    joins(13, 3, "phone");
    assert_string_equal(doing(), "serving on 1 device"); // another plan is being made
    wait_ms(1000);
    planned(2, "2", 7);
    assert_string_equal(doing(), "serving on 1 device; 2 others have no layers");
}

static void the_first_device_is_missed_like_any_other(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_LOST, 11, "connection reset");
    assert_string_equal(doing(), "device 'tower' is gone (connection reset), waiting for it to come back");
    wait_ms(300);
    does_not_fit(2);
    assert_string_equal(doing(), "device 'tower' is gone (connection reset), and without it: 2.0 GiB are missing");
    begin_with_two();
    of_link(KIN_MEMBERSHIP_FAILED, 11, "a disk error");
    assert_string_equal(doing(), "device 'tower' failed: a disk error");
    wait_ms(300);
    does_not_fit(2);
    assert_string_equal(doing(), "device 'tower' failed (a disk error), and without it: 2.0 GiB are missing");
}

static void a_plan_without_devices_may_wait_for_others(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(250);
    forget();
    planned(1, "", 7);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_PREPARING);
    assert_string_equal(doing(), "waiting for devices to join");
    wait_ms(750);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    assert_string_equal(doing(), "serving alone: the plan leaves out 'tower'");
}

static void events_of_an_old_epoch_change_nothing(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    wait_ms(250);
    planned(2, "12", 7);
    forget();
    for (int kind = KIN_MEMBERSHIP_READY; kind <= KIN_MEMBERSHIP_RING_CLOSED; kind++) {
        step((kin_membership_event){
            .kind = (kin_membership_event_kind)kind, .link = 11, .epoch = 1, .stage = "", .reason = "late"});
    }
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_ENDS, .epoch = 1});
    expect("");
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_PREPARING);
}

static void progress_is_said_in_percent(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(1000);
    planned(1, "1", 7);
    kin_proto_progress p = {.stage = KIN_PROTO_FETCHING, .done = 30, .total = 120};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PROGRESS, .link = 11, .epoch = 1, .progress = &p});
    assert_string_equal(doing(), "device 'tower' is fetching: 25 %");
    p.done = 119; // 99.2 %
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PROGRESS, .link = 11, .epoch = 1, .progress = &p});
    assert_string_equal(doing(), "device 'tower' is fetching: 99 %");
}

static void unfit_devices_are_refused_with_the_reason(void **state) {
    (void)state;
    begin_default();
    hello(11, 1, "tower", 0);
    expect("refuse 11: feature: the device lacks features 0x3, which the ring needs\n"
           "say device 'tower' is refused: the device lacks features 0x3, which the ring needs\n");
    hello(12, 1, "tower", 1);
    expect_words("refuse 12: feature: the device lacks features 0x2, which the ring needs\n");
    hello(13, 255, "tower", 3);
    expect_words("refuse 13: identity: ");
    hello(14, 0, "tower", 3);
    expect_words("refuse 14: identity: ");
    hello(15, 1, "tower", 7); // more than needed
    facts(15, 8);
    expect_words("refuse 15: model: its model file differs from the head's\n");
    facts(15, 0); // the link is forgotten
    expect("");
}

static void another_model_is_found_out_when_the_head_knows_its_own(void **state) {
    (void)state;
    begin_with_two();
    kin_proto_hash other = {{5}};
    facts(11, 9);
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_MODEL, .model = &other});
    expect_words("refuse 11: model: ");
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_GATHERING);
}

static void names_are_made_different_and_clean(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    joins(12, 2, "tower");
    joins(13, 3, "tower");
    joins(14, 4, "");
    joins(15, 5, "x\x1b[2J");
    assert_string_equal(kin_membership_device_at(membership, 0)->name, "tower");
    assert_string_equal(kin_membership_device_at(membership, 1)->name, "tower-2");
    assert_string_equal(kin_membership_device_at(membership, 2)->name, "tower-3");
    assert_string_equal(kin_membership_device_at(membership, 3)->name, "device");
    assert_string_equal(kin_membership_device_at(membership, 4)->name, "x?[2J");
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    joins(22, 2, "tower");
    assert_string_equal(kin_membership_device_at(membership, 1)->name, "tower-2"); // a device keeps its name
}

static void the_thirty_third_device_is_told_to_come_later(void **state) {
    (void)state;
    begin_default();
    for (uint8_t i = 1; i <= 32; i++) joins(100u + i, i, "node");
    forget();
    hello(200, 33, "late", 3);
    expect_words("refuse 200: busy: 32 devices have joined already, which is the maximum\n");
    of_link(KIN_MEMBERSHIP_LOST, 105, "connection reset");
    hello(201, 33, "late", 3);
    expect_words("accept 201\n");
    assert_string_equal(kin_membership_device_at(membership, 4)->name, "late");
}

static const char *name_at(int i) {
    return kin_membership_device_at(membership, i)->name;
}

static void a_full_cluster_gives_a_newcomer_the_place_of_the_device_gone_longest(void **state) {
    (void)state;
    begin_default();
    for (uint8_t i = 1; i <= 32; i++) joins(100u + i, i, "node");
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LOST, 103, "connection reset");
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LEFT, 101, "its user ended it");
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LOST, 102, "connection reset");
    hello(201, 41, "first", 3);
    assert_string_equal(name_at(2), "first");
    hello(202, 42, "second", 3);
    assert_string_equal(name_at(0), "second");
    hello(203, 43, "third", 3);
    assert_string_equal(name_at(1), "third");
}

// A ring of devices 1 and 2 is up, in a full cluster of 32 devices.
static void begin_with_full_cluster(void) {
    begin_default();
    for (uint8_t i = 1; i <= 32; i++) joins(100u + i, i, "node");
    wait_ms(1000);
    planned(1, "12", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    for (uint8_t i = 1; i <= 2; i++) {
        ready(100u + i);
        ring_opens(100u + i);
    }
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    forget();
}
#define begin_with_full_cluster(...) FROM_TEST(begin_with_full_cluster(__VA_ARGS__))

static void places_of_the_last_ring_are_given_away_last(void **state) {
    (void)state;
    begin_with_full_cluster();
    of_link(KIN_MEMBERSHIP_LOST, 101, "connection reset");
    of_link(KIN_MEMBERSHIP_LEFT, 102, "its user ended it");
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LEFT, 109, "its user ended it");
    hello(201, 41, "first", 3);
    assert_string_equal(name_at(8), "first");
    hello(202, 42, "second", 3);
    assert_string_equal(name_at(1), "second");
    hello(203, 43, "third", 3);
    assert_string_equal(name_at(0), "third");
    forget();
    hello(204, 44, "fourth", 3);
    expect_words("refuse 204: busy: 32 devices have joined already, which is the maximum\n");
    of_link(KIN_MEMBERSHIP_LOST, 202, "connection reset");
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LOST, 201, "connection reset");
    hello(205, 44, "fourth", 3);
    assert_string_equal(name_at(1), "fourth"); // a newcomer is no member: the longest gone gives way
}

// When all members of the last ring are there, a plan is due at once. A newcomer is not one of them.
static void a_newcomer_in_a_members_place_is_not_a_member(void **state) {
    (void)state;
    begin_with_full_cluster();
    of_link(KIN_MEMBERSHIP_LOST, 102, "connection reset");
    joins(201, 41, "late");
    assert_string_equal(name_at(1), "late");
    forget();
    wait_ms(950);
    expect(""); // others may still join
    wait_ms(50);
    expect_words("ask 2: ");
}

static void a_device_that_sends_nothing_after_joining_is_dropped(void **state) {
    (void)state;
    begin_default();
    hello(11, 1, "mute", 3);
    wait_ms(2000);
    forget();
    wait_ms(1000);
    expect_words("drop 11: it joined, but did not send its profile\n");
    facts(11, 0);
    expect("");
}

static void all_devices_lost_at_once_fit_into_the_actions(void **state) {
    (void)state;
    begin_default();
    char ids[33] = "";
    for (uint8_t i = 1; i <= 32; i++) {
        hello(100u + i, i, "node", 3);
        facts(100u + i, 9);
        ids[i - 1] = (char)('0' + i);
    }
    wait_ms(1000);
    planned(1, ids, 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    for (uint8_t i = 1; i <= 32; i++) {
        ring_opens(100u + i);
        ready(100u + i);
    }
    request(KIN_MEMBERSHIP_BEGINS);
    kin_proto_hash other = {{5}};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_MODEL, .model = &other}); // all are refused
    assert_true(last.n > 64 && last.n <= KIN_MEMBERSHIP_ACTIONS);
    expect_words("fail: ");
}

static void after_the_last_number_epochs_count_from_one(void **state) {
    (void)state;
    assert_int_equal(kin_epoch_at((uint64_t)1 << 31, 0), 1); // 19 January 2038
    assert_true(kin_epoch_is_newer(kin_epoch_at((uint64_t)1 << 31, 0), kin_epoch_at(((uint64_t)1 << 31) - 1, 999999999)));
    kin_membership_options o = kin_membership_options_default();
    o.epoch_first = UINT32_MAX;
    begin(o);
    joins(11, 1, "tower");
    wait_ms(250);
    planned(1, "1", 7);
    assert_int_equal(kin_membership_epoch(membership), UINT32_MAX);
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_LOST, .link = 11, .reason = "silence"});
    joins(12, 1, "tower");
    wait_ms(1000);
    planned(2, "1", 7);
    assert_int_equal(kin_membership_epoch(membership), 1);
    assert_true(kin_membership_accepts(membership, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(two_devices_become_a_ring),
        STORY(a_device_that_joins_while_the_first_plan_gets_ready_is_in_the_next),
        STORY(a_head_alone_serves_if_the_planner_says_so),
        STORY(a_head_that_serves_alone_beside_a_device_says_so),
        STORY(a_device_that_changes_nothing_for_a_head_alone_is_said_to_be_left_out),
        STORY(expected_devices_are_not_waited_for_any_longer),
        STORY(drift_asks_the_planner_also_while_requests_run),
        STORY(a_lost_device_fails_the_request_and_is_waited_for),
        STORY(without_the_lost_device_after_a_moment),
        STORY(what_does_not_fit_without_it_waits_and_says_so),
        STORY(a_policy_may_wait_for_ever),
        STORY(a_device_that_left_is_not_waited_for),
        STORY(a_device_that_connects_anew_replaces_itself),
        STORY(a_copy_of_a_device_is_refused_and_the_first_one_stays),
        STORY(the_heads_name_is_unique),
        STORY(the_same_plan_changes_nothing),
        STORY(an_answer_about_a_gone_device_is_not_used),
        STORY(what_could_not_load_gets_no_slices_that_stream_until_it_comes_anew),
        STORY(a_long_reason_comes_whole),
        STORY(a_ring_of_one_device_is_closed_too),
        STORY(a_ring_of_all_expected_devices_is_up_at_once),
        STORY(each_change_of_a_device_is_reported_and_time_is_not),
        STORY(devices_without_layers_are_named_or_counted),
        STORY(the_first_device_is_missed_like_any_other),
        STORY(a_plan_without_devices_may_wait_for_others),
        STORY(events_of_an_old_epoch_change_nothing),
        STORY(progress_is_said_in_percent),
        STORY(unfit_devices_are_refused_with_the_reason),
        STORY(another_model_is_found_out_when_the_head_knows_its_own),
        STORY(names_are_made_different_and_clean),
        STORY(the_thirty_third_device_is_told_to_come_later),
        STORY(a_full_cluster_gives_a_newcomer_the_place_of_the_device_gone_longest),
        STORY(places_of_the_last_ring_are_given_away_last),
        STORY(a_newcomer_in_a_members_place_is_not_a_member),
        STORY(a_device_that_sends_nothing_after_joining_is_dropped),
        STORY(all_devices_lost_at_once_fit_into_the_actions),
        STORY(after_the_last_number_epochs_count_from_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
