// A better plan beside the running ring: which devices have its weights, when all switch, and when it is given up.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/membership_story.h"
#include "tests/place.h"

// Two devices serve a request, and a third one has joined: the answer to question 2 is a better plan.
static void begin_with_better_plan(void) {
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    joins(13, 3, "phone");
    forget();
    wait_ms(1000);
    expect("ask 2: tower laptop phone\n");
    planned(2, "123", 9);
    assert_true(reports_status());
    expect("whisper preparing a better plan with 3 devices\n"
           "prefetch 2 to 11, gently\n"
           "prefetch 2 to 12, gently\n"
           "prefetch 2 to 13, gently\n"
           "prefetch 2 to itself\n");
}
#define begin_with_better_plan(...) FROM_TEST(begin_with_better_plan(__VA_ARGS__))

static void a_better_plan_begins_when_all_have_what_it_needs_and_requests_have_made_room(void **state) {
    (void)state;
    begin_with_better_plan();
    assert_int_equal(kin_membership_prepares(membership), 2);
    prefetched(13, 2, false, NULL);
    assert_string_equal(doing(), "serving on 2 devices; 'tower' is getting ready for a better plan");
    prefetched(11, 2, true, NULL);
    prefetched(12, 2, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    assert_string_equal(doing(), "serving on 2 devices; 'phone' is fetching for a better plan: 25 %");
    wait_ms(5000); // no repeated questions; the epoch continues
    expect("");
    assert_false(kin_membership_yields(membership));
    prefetched(13, 2, true, NULL);
    assert_true(kin_membership_yields(membership));
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    request(KIN_MEMBERSHIP_BEGINS); // too late
    expect("fail: serving on 2 devices; a better plan is about to start\n");
    request(KIN_MEMBERSHIP_ENDS);
    expect("close ring 1\n"
           "end 1 to 11\n"
           "end 1 to 12\n"
           "whisper plan 1 ended: a better plan is ready\n"
           "whisper plan 2: 3 devices\n"
           "plan 2 to 13\n"
           "plan 2 to 12\n"
           "plan 2 to 11\n"
           "open ring 2 to tower\n");
    assert_int_equal(kin_membership_planned_by(membership), 2);
    assert_int_equal(kin_membership_prepares(membership), 0);
    wait_ms(5000);
    expect(""); // the planner need not repeat it
}

static void where_nothing_runs_it_begins_at_once_and_is_fetched_as_fast_as_can_be(void **state) {
    (void)state;
    begin_with_better_plan();
    request(KIN_MEMBERSHIP_ENDS);
    expect("");
    wait_ms(1100);
    expect("prefetch 2 to 11\nprefetch 2 to 12\nprefetch 2 to 13\nprefetch 2 to itself\n");
    prefetched(11, 2, true, NULL);
    request(KIN_MEMBERSHIP_BEGINS);
    expect("prefetch 2 to 12, gently\nprefetch 2 to 13, gently\nprefetch 2 to itself\n");
    request(KIN_MEMBERSHIP_ENDS);
    wait_ms(1100);
    prefetched(12, 2, true, NULL);
    prefetched(13, 2, true, NULL);
    forget();
    prefetched(KIN_MEMBERSHIP_OWN, 2, false, "a full disk"); // what the head could not pack ahead is packed later
    expect_words("plan 2 to 13\n");
}

static void a_device_with_the_same_work_has_all_it_needs(void **state) {
    (void)state;
    begin_with_two();
    joins(13, 3, "phone");
    wait_ms(1000);
    forget();
    planned(2, "132", 7); // the work of plan 1
    expect("whisper preparing a better plan with 3 devices\nprefetch 2 to 13\nprefetch 2 to itself\n");
}

static void a_plan_that_is_better_no_more_is_forgotten(void **state) {
    (void)state;
    begin_with_better_plan();
    request(KIN_MEMBERSHIP_DRIFT);
    expect("ask 3: tower laptop phone\n");
    planned(3, "123", 9); // still the same
    expect("");
    assert_int_equal(kin_membership_prepares(membership), 2);
    request(KIN_MEMBERSHIP_DRIFT);
    planned(4, "12", 7); // the planner has changed its mind
    assert_int_equal(kin_membership_prepares(membership), 0);
    forget();
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 2, true, NULL);
    expect("");
    assert_false(kin_membership_yields(membership));
    request(KIN_MEMBERSHIP_DRIFT);
    forget();
    planned(5, "312", 9);
    expect_words("prefetch 5 to 13, gently\n");
    assert_int_equal(kin_membership_prepares(membership), 5);
}

static void a_device_that_joins_meanwhile_does_not_hold_a_plan_with_room(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 2, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    joins(14, 4, "tablet");
    forget();
    request(KIN_MEMBERSHIP_ENDS);
    expect_words("plan 2 to 13\n");
    wait_ms(1000);
    expect("ask 3: tower laptop phone tablet\n");
}

static void a_plan_is_given_up_with_a_member_that_is_lost(void **state) {
    (void)state;
    begin_with_better_plan();
    of_link(KIN_MEMBERSHIP_LOST, 13, "connection reset");
    assert_int_equal(kin_membership_prepares(membership), 0);
    assert_int_equal(kin_membership_n_requests(membership), 1);
    expect_words("ask 3: tower laptop\n");
    begin_with_better_plan(); // the other way round: a member of the ring is lost, and the new device is there
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    assert_int_equal(kin_membership_prepares(membership), 0);
    assert_int_equal(kin_membership_n_requests(membership), 0);
    forget();
    wait_ms(300);
    expect("ask 3: tower phone\n");
    planned(3, "13", 8);
    expect_words("plan 2 to 13\nplan 2 to 11\n"); // nothing is running that could continue meanwhile
}

static void a_newcomer_that_cannot_fetch_is_left_out_and_the_ring_goes_on(void **state) {
    (void)state;
    begin_with_better_plan();
    prefetched(13, 2, false, "no room on the disk");
    expect(
        "say device 'phone' cannot prepare a better plan: no room on the disk; it is left out for 2.0 s\nask 3: tower laptop\n");
    assert_int_equal(kin_membership_n_requests(membership), 1);
    planned(3, "12", 7);
    wait_ms(2000);
    expect("ask 4: tower laptop phone\n");
}

static void a_member_that_cannot_fetch_keeps_its_work_and_the_ring_is_left_as_it_is_for_a_while(void **state) {
    (void)state;
    begin_with_better_plan();
    prefetched(12, 2, false, "no room on the disk");
    expect("say device 'laptop' (stage 2 of 2) cannot prepare a better plan: no room on the disk\n");
    assert_int_equal(kin_membership_n_requests(membership), 1);
    request(KIN_MEMBERSHIP_DRIFT);
    forget();
    planned(3, "123", 9);
    expect("");
    wait_ms(2000);
    expect("ask 4: tower laptop phone\n");
    planned(4, "123", 9);
    expect_words("prefetch 4 to 13, gently\n");
}

static void a_silent_device_is_not_waited_for_for_ever(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 12; link++) prefetched(link, 2, true, NULL);
    wait_ms(60000);
    prefetched(13, 2, false, NULL);
    wait_ms(89000);
    expect("");
    wait_ms(2000);
    expect_words("say device 'phone' cannot prepare a better plan: it makes no progress; it is left out");
    assert_int_equal(kin_membership_n_requests(membership), 1);
}

static void progress_of_an_older_plan_does_not_count(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 1, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 1, true, NULL);
    wait_ms(50);
    assert_false(kin_membership_yields(membership));
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 2, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    assert_true(kin_membership_yields(membership));
}

static void a_head_that_says_nothing_packs_when_the_plan_begins(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 2, true, NULL);
    wait_ms(89000);
    assert_false(kin_membership_yields(membership));
    wait_ms(2000);
    assert_true(kin_membership_yields(membership));
}

static void after_a_plan_that_began_failures_to_fetch_count_anew(void **state) {
    (void)state;
    begin_with_better_plan();
    prefetched(12, 2, false, "no room on the disk");
    wait_ms(2000);
    expect_words("ask 3: tower laptop phone\n");
    planned(3, "123", 9);
    for (uint32_t link = 11; link <= 13; link++) prefetched(link, 3, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 3, true, NULL);
    request(KIN_MEMBERSHIP_ENDS);
    ring_opens(KIN_MEMBERSHIP_OWN);
    for (uint32_t link = 11; link <= 13; link++) {
        ready(link);
        ring_opens(link);
    }
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    wait_ms(1000);
    request(KIN_MEMBERSHIP_DRIFT);
    planned(4, "123", 8);
    prefetched(12, 4, false, "no room on the disk");
    forget();
    wait_ms(1950);
    expect("");
    wait_ms(50);
    expect_words("ask 5: tower laptop phone\n");
}

// ---- a member that needs hours

// Reports that many percent of 400 MB, at `rate` bytes per second.
static void fetches(uint32_t link, uint32_t question, uint64_t percent, uint64_t rate) {
    kin_proto_progress progress = {KIN_PROTO_FETCHING, percent * 4000000, 400000000, rate, 0};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED, .link = link, .question = question, .progress = &progress});
}

// The head computes alone. A device at 2 Mbit/s has joined and has 5 % when another one joins by cable.
static void begin_alone_with_a_slow_device_and_a_fast_one(void) {
    begin_default();
    wait_ms(1100);
    planned(1, "", 7);
    joins(11, 1, "far");
    wait_ms(1000);
    planned(2, "1", 8);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    for (int i = 0; i < 5; i++) fetches(11, 2, 5, 250000);
    joins(12, 2, "near");
    wait_ms(1000);
    planned(3, "12", 9);
    prefetched(KIN_MEMBERSHIP_OWN, 3, true, NULL);
    fetches(12, 3, 10, 100000000);
    fetches(11, 3, 5, 250000);
    forget();
}
#define begin_alone_with_a_slow_device_and_a_fast_one(...) FROM_TEST(begin_alone_with_a_slow_device_and_a_fast_one(__VA_ARGS__))

static void what_is_ready_soon_comes_first_and_then_the_best_plan_of_all(void **state) {
    (void)state;
    begin_alone_with_a_slow_device_and_a_fast_one();
    wait_ms(9500);
    expect("");
    wait_ms(1000);
    expect("whisper fetching the better plan takes long: asking the planner for one without the slow devices\nask 4: near\n");
    planned(4, "2", 8);
    expect("whisper preparing a better plan with 1 device\nprefetch 4 to 12\nprefetch 4 to itself\n");
    fetches(11, 3, 6, 250000); // for the later plan
    prefetched(KIN_MEMBERSHIP_OWN, 4, true, NULL);
    prefetched(12, 4, true, NULL);
    expect_words("plan 2 to 12\n");
    assert_int_equal(kin_membership_planned_by(membership), 4);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(12);
    forget();
    ring_opens(12);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    wait_ms(1000);
    expect_words("ask 5: far near\n");
    planned(5, "12", 9);
    expect_words("prefetch 5 to 11\nprefetch 5 to 12\n");
    prefetched(KIN_MEMBERSHIP_OWN, 5, true, NULL);
    prefetched(12, 5, true, NULL);
    forget();
    for (int i = 0; i < 100; i++) { // the ring is the best one without it: no repeated questions
        fetches(11, 5, 6, 250000 + (uint64_t)i);
        wait_ms(5000);
    }
    expect("");
    prefetched(11, 5, true, NULL);
    expect_words("plan 3 to 12\nplan 3 to 11\n");
}

static void where_nothing_is_better_soon_the_slow_one_is_waited_for(void **state) {
    (void)state;
    for (int fits = 0; fits < 2; fits++) {
        begin_alone_with_a_slow_device_and_a_fast_one();
        wait_ms(10500);
        expect_words("ask 4: near\n");
        if (fits)
            planned(4, "", 7); // the head alone, as now
        else
            does_not_fit(4);
        expect("ask 5: far near\n");
        assert_int_equal(kin_membership_prepares(membership), 3);
        planned(5, "12", 9); // still the same, but the planner refers to it by this question
        expect("prefetch 5 to 11\nprefetch 5 to 12\n");
        for (int i = 0; i < 100; i++) {
            fetches(11, 5, 6, 250000 + (uint64_t)i);
            wait_ms(5000);
        }
        expect("");
        prefetched(12, 5, true, NULL);
        prefetched(11, 5, true, NULL);
        assert_int_equal(kin_membership_planned_by(membership), 5);
    }
}

static void another_that_joins_is_a_reason_to_look_again(void **state) {
    (void)state;
    begin_alone_with_a_slow_device_and_a_fast_one();
    wait_ms(10500);
    planned(4, "", 7);
    planned(5, "12", 9);
    joins(13, 3, "desk");
    wait_ms(1000);
    expect_words("ask 6: near desk\n"); // the slow device is known
    planned(6, "23", 8);
    assert_int_equal(kin_membership_prepares(membership), 6);
    for (uint32_t link = 12; link <= 13; link++) prefetched(link, 6, true, NULL);
    forget();
    prefetched(KIN_MEMBERSHIP_OWN, 6, true, NULL);
    expect_words("plan 2 to 13\nplan 2 to 12\n");
    wait_ms(1000);
    expect("ask 7: far near desk\n");
}

static void a_device_lost_meanwhile_is_not_waited_for(void **state) {
    (void)state;
    begin_alone_with_a_slow_device_and_a_fast_one();
    wait_ms(10500);
    planned(4, "2", 8);
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset"); // which was in the plan that was to come first
    forget();
    wait_ms(500);
    assert_int_equal(kin_membership_prepares(membership), 0);
    planned(5, "1", 8);
    assert_int_equal(kin_membership_prepares(membership), 5);
}

// A message is not progress.
static void a_device_that_repeats_itself_holds_no_plan(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 12; link++) prefetched(link, 2, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    for (int s = 0; s < 89; s++) {
        prefetched(13, 2, false, NULL);
        wait_ms(1000);
    }
    expect("");
    for (int s = 0; s < 2; s++) {
        prefetched(13, 2, false, NULL);
        wait_ms(1000);
    }
    expect_words("say device 'phone' cannot prepare a better plan: it makes no progress; it is left out");
    assert_int_equal(kin_membership_prepares(membership), 0);
}

static void prefetches_at_stage(kin_proto_stage stage, uint64_t done, uint64_t rate) {
    kin_proto_progress progress = {stage, done, 400, rate, 0};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED, .link = 13, .question = 2, .progress = &progress});
}

static void slow_bytes_and_work_without_numbers_are_waited_for(void **state) {
    (void)state;
    begin_with_better_plan();
    for (uint32_t link = 11; link <= 12; link++) prefetched(link, 2, true, NULL);
    prefetched(KIN_MEMBERSHIP_OWN, 2, true, NULL);
    for (int s = 0; s < 300; s++) { // a chunk takes five minutes
        prefetches_at_stage(KIN_PROTO_FETCHING, 100, 1000 + (uint64_t)s);
        wait_ms(1000);
    }
    for (int s = 0; s < 300; s++) {
        prefetches_at_stage(KIN_PROTO_PACKING, 400, 0);
        wait_ms(1000);
    }
    expect("");
    assert_int_equal(kin_membership_prepares(membership), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(a_better_plan_begins_when_all_have_what_it_needs_and_requests_have_made_room),
        STORY(where_nothing_runs_it_begins_at_once_and_is_fetched_as_fast_as_can_be),
        STORY(a_device_with_the_same_work_has_all_it_needs),
        STORY(a_plan_that_is_better_no_more_is_forgotten),
        STORY(a_device_that_joins_meanwhile_does_not_hold_a_plan_with_room),
        STORY(a_plan_is_given_up_with_a_member_that_is_lost),
        STORY(a_newcomer_that_cannot_fetch_is_left_out_and_the_ring_goes_on),
        STORY(a_member_that_cannot_fetch_keeps_its_work_and_the_ring_is_left_as_it_is_for_a_while),
        STORY(progress_of_an_older_plan_does_not_count),
        STORY(a_head_that_says_nothing_packs_when_the_plan_begins),
        STORY(after_a_plan_that_began_failures_to_fetch_count_anew),
        STORY(a_silent_device_is_not_waited_for_for_ever),
        STORY(what_is_ready_soon_comes_first_and_then_the_best_plan_of_all),
        STORY(where_nothing_is_better_soon_the_slow_one_is_waited_for),
        STORY(another_that_joins_is_a_reason_to_look_again),
        STORY(a_device_lost_meanwhile_is_not_waited_for),
        STORY(a_device_that_repeats_itself_holds_no_plan),
        STORY(slow_bytes_and_work_without_numbers_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
