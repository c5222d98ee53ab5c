// The head's side of membership (pure/proto/membership.h) when links break or stay closed, and when members lose steps or send
// invalid data. Each test is a story: the events, and after them, indented, the actions of the membership. "say" is a line of the
// log. Status changes are left out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pure/proto/message.h"
#include "tests/long_reason.h"
#include "tests/membership_story.h"
#include "tests/place.h"

static void a_device_whose_link_breaks_again_and_again_is_reported_once(void **state) {
    (void)state;
    begin_with_two();
    wait_ms(1000);
    forget();
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    expect_words("say device 'laptop' (stage 2 of 2) is gone (connection reset)\n");
    for (uint32_t link = 13; link < 16; link++) {
        joins(link, 2, "laptop");
        wait_ms(2000);
        forget();
        of_link(KIN_MEMBERSHIP_LOST, link, "connection reset");
        expect_words("whisper device 'laptop' is gone (connection reset)\n");
    }
    wait_ms(KIN_MEMBERSHIP_QUIET_S * 1000); // it does not come back
    expect_words("say device 'laptop' is gone (connection reset)\n");
    joins(16, 2, "laptop");
    wait_ms(KIN_MEMBERSHIP_QUIET_S * 1000);
    forget();
    of_link(KIN_MEMBERSHIP_LOST, 16, "connection reset");
    expect_words("say device 'laptop' is gone (connection reset)\n");
}

static void a_device_that_fails_rests_longer_each_time(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_FAILED, 12, "a disk\nerror");
    expect("whisper device 'laptop' (stage 2 of 2) failed at compute: a disk?error; it is left out for 2.0 s\n"
           "fail: device 'laptop' (stage 2 of 2) failed at compute: a disk?error; it is left out for 2.0 s\n"
           "close ring 1\n"
           "end 1 to 11\n"
           "end 1 to 12\n"
           "whisper plan 1 ended: device 'laptop' (stage 2 of 2) failed at compute: a disk?error; it is left out for "
           "2.0 s\n");
    assert_string_equal(doing(), "device 'laptop' failed: a disk?error");
    wait_ms(250);
    expect("ask 2: tower\n");
    does_not_fit(2);
    expect("say device 'laptop' failed (a disk?error), and without it: 2.0 GiB are missing\n");
    wait_ms(1750);
    expect("ask 3: tower laptop\n");
    planned(3, "12", 7);
    of_link(KIN_MEMBERSHIP_FAILED, 12, "again");
    expect_words("it is left out for 4.0 s\n");
}

static void a_broken_ring_link_names_both_ends(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "no answer for 1.5 s");
    forget();
    wait_ms(150);
    expect(""); // one of the two may be lost: that becomes known soon
    wait_ms(50);
    expect("fail: the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: no answer for 1.5 s\n"
           "whisper the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: no answer for 1.5 s\n");
    wait_ms(50);
    expect("ask 2: tower laptop\n");
}

static void ring_breaks(uint32_t link, const char *reason) {
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_RING_CLOSED,
                                .link = link,
                                .epoch = kin_membership_epoch(membership),
                                .reason = reason,
                                .progress_made = progress_made});
    wait_ms(250);
}

// The same plan again, and a request.
static void ring_comes_up_again(uint32_t question) {
    planned(question, "12", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(11);
    ready(12);
    ring_opens(11);
    ring_opens(12);
    request(KIN_MEMBERSHIP_BEGINS);
    forget();
}

static void a_hop_that_breaks_twice_before_anything_comes_of_it_leaves_its_far_end_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    ring_breaks(11, "the other side has not read 9000 bytes");
    ring_comes_up_again(2);
    ring_breaks(11, "the other side has not read 9000 bytes");
    expect_words("fail: the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: the other "
                 "side has not read 9000 bytes again before a step completed; it is left out for 2.0 s\n");
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_JOINED);
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_FAILED);
    assert_non_null(strstr(kin_membership_device_at(membership, 1)->last_error, "has not read 9000 bytes"));
    wait_ms(2500); // it is back, and in the plan again: now one break is enough
    ring_comes_up_again(4);
    ring_breaks(11, "the other side has not read 9000 bytes");
    expect_words("it is left out for 4.0 s\n");
}

static void a_hop_of_the_head_that_breaks_twice_leaves_the_device_out(void **state) {
    (void)state;
    static const uint32_t links[] = {KIN_MEMBERSHIP_OWN, 12};
    for (int i = 0; i < 2; i++) {
        begin_with_two();
        request(KIN_MEMBERSHIP_BEGINS);
        ring_breaks(links[i], "no answer");
        ring_comes_up_again(2);
        ring_breaks(links[i], "no answer");
        assert_int_equal(kin_membership_device_at(membership, i)->state, KIN_DEVICE_FAILED);
        assert_int_equal(kin_membership_device_at(membership, 1 - i)->state, KIN_DEVICE_JOINED);
    }
}

static void of_two_ends_the_one_whose_other_link_broke_too_is_left_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    ring_breaks(KIN_MEMBERSHIP_OWN, "no answer"); // from the head to tower
    ring_comes_up_again(2);
    ring_breaks(11, "no answer"); // from tower to laptop
    ring_comes_up_again(3);
    ring_breaks(11, "no answer");
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_FAILED);
}

static void breaks_between_which_requests_go_on_leave_no_device_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    for (uint32_t i = 0; i < 5; i++) {
        progress_made += 100;
        ring_breaks(11, "a loose cable");
        ring_comes_up_again(i + 2);
    }
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
}

static void requests_that_go_on_without_a_hop_do_not_report_it(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    ring_breaks(11, "frames above 1000 bytes do not arrive");
    ring_comes_up_again(2);
    ring_breaks(11, "frames above 1000 bytes do not arrive"); // laptop is left out
    planned(3, "1", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(11);
    ring_opens(11);
    request(KIN_MEMBERSHIP_BEGINS);
    progress_made += 100;
    of_link(KIN_MEMBERSHIP_LOST, 11, "connection reset");
    joins(11, 1, "tower");
    wait_ms(2500);
    ring_comes_up_again(5);
    ring_breaks(11, "frames above 1000 bytes do not arrive");
    expect_words("it is left out for 4.0 s\n");
}

static void a_link_that_broke_with_its_device_does_not_count(void **state) {
    (void)state;
    begin_with_two();
    for (uint32_t i = 0; i < 3; i++) {
        step((kin_membership_event){
            .kind = KIN_MEMBERSHIP_RING_CLOSED, .link = 11, .epoch = kin_membership_epoch(membership), .reason = "reset"});
        of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
        joins(12, 2, "laptop");
        wait_ms(500);
        ring_comes_up_again(i + 2);
    }
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
}

static void what_the_last_member_sends_to_the_head_leaves_it_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_WRONG, 0, "step 9 was never sent");
    expect_words("fail: device 'laptop' (stage 2 of 2) sent an invalid message to the head: step 9 was never sent; it is "
                 "left out for 2.0 s\n");
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_JOINED);
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_FAILED);
}

static void progress_before_invalid_data_forgives_breaks(void **state) {
    (void)state;
    for (uint64_t made = 0; made <= 100; made += 100) {
        begin_with_two();
        request(KIN_MEMBERSHIP_BEGINS);
        ring_breaks(11, "no answer");
        ring_comes_up_again(2);
        progress_made += made;
        step((kin_membership_event){.kind = KIN_MEMBERSHIP_WRONG,
                                    .epoch = kin_membership_epoch(membership),
                                    .reason = "step 9 was never sent",
                                    .progress_made = progress_made});
        wait_ms(2500);
        ring_comes_up_again(4);
        ring_breaks(11, "no answer");
        kin_device_state expected = made > 0 ? KIN_DEVICE_JOINED : KIN_DEVICE_FAILED;
        assert_int_equal(kin_membership_device_at(membership, 1)->state, expected);
    }
}

static void receives_wrong(uint32_t link) {
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_FAILED,
                                .link = link,
                                .epoch = kin_membership_epoch(membership),
                                .stage = "receiving",
                                .reason = "step 3 arrived with 9 rows, but has 1 tokens",
                                .progress_made = progress_made});
}

static void a_member_that_gets_what_cannot_be_stays_and_the_one_before_it_is_left_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    receives_wrong(12);
    expect_words("fail: device 'tower' (stage 1 of 2) sent an invalid message to device 'laptop' (stage 2 of 2): step 3 "
                 "arrived with 9 rows, but has 1 tokens; it is left out for 2.0 s\n");
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_FAILED);
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_JOINED);
    wait_ms(2500);
    ring_comes_up_again(3);
    receives_wrong(12); // it says this of every member
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_JOINED);
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_FAILED);
}

static void what_the_first_member_cannot_use_leaves_it_out(void **state) {
    (void)state;
    begin_with_two();
    receives_wrong(11);
    assert_int_equal(kin_membership_device_at(membership, 0)->state, KIN_DEVICE_FAILED);
    expect_words("device 'tower' (stage 1 of 2) cannot use the messages of the member before it: step 3 arrived with 9 rows");
}

static void loses(int member, bool is_hop, const char *reason) {
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_LOSES,
                                .epoch = kin_membership_epoch(membership),
                                .loser = member,
                                .is_hop = is_hop,
                                .reason = reason,
                                .progress_made = progress_made});
}

static kin_device_state state_of(int i) {
    return kin_membership_device_at(membership, i)->state;
}

static void a_device_that_lost_a_step_is_left_out(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    loses(0, false, "has lost a step");
    expect_words("fail: device 'tower' (stage 1 of 2) has lost a step; it is left out for 2.0 s\n");
    assert_int_equal(state_of(0), KIN_DEVICE_FAILED);
    assert_int_equal(state_of(1), KIN_DEVICE_JOINED);
}

static void of_a_hop_that_lost_a_step_the_sender_is_left_out_and_then_the_receiver(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    loses(1, true, "for 30 s");
    expect_words("fail: device 'tower' (stage 1 of 2) sent a step that device 'laptop' (stage 2 of 2) has not received for "
                 "30 s; it is left out for 2.0 s\n");
    assert_int_equal(state_of(0), KIN_DEVICE_FAILED);
    wait_ms(2500);
    ring_comes_up_again(3);
    loses(1, true, "for 30 s");
    expect_words("fail: device 'laptop' (stage 2 of 2) has not received a step that device 'tower' (stage 1 of 2) sent to "
                 "it for 30 s; it is left out for 2.0 s\n");
    assert_int_equal(state_of(0), KIN_DEVICE_JOINED);
    assert_int_equal(state_of(1), KIN_DEVICE_FAILED);
}

static void of_a_hop_of_the_head_that_lost_a_step_the_device_is_left_out(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin_with_two();
        request(KIN_MEMBERSHIP_BEGINS);
        loses(2 * i, true, "for 30 s");
        assert_int_equal(state_of(i), KIN_DEVICE_FAILED);
        assert_int_equal(state_of(1 - i), KIN_DEVICE_JOINED);
    }
}

static void a_loss_of_another_epoch_or_of_no_device_changes_nothing(void **state) {
    (void)state;
    begin_with_two();
    forget();
    loses(2, false, "has lost a step");
    loses(3, true, "for 30 s");
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_LOSES, .epoch = 99, .loser = 0, .reason = "has lost a step"});
    expect("");
}

static void a_device_that_goes_is_said_once_though_its_links_broke_before(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 12, "connection reset");
    forget();
    wait_ms(50);
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    expect("fail: device 'laptop' (stage 2 of 2) is gone (connection reset)\n"
           "whisper device 'laptop' (stage 2 of 2) is gone (connection reset)\n");
    wait_ms(1000);
    assert_null(strstr(trace, "broke"));
}

static void between_requests_it_is_one_line_too(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    forget();
    of_link(KIN_MEMBERSHIP_LOST, 12, "connection reset");
    expect("say device 'laptop' (stage 2 of 2) is gone (connection reset)\n");
    begin_with_two();
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    forget();
    wait_ms(350);
    expect_words("say the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: connection reset\n");
}

static void a_device_that_was_stopped_has_left(void **state) {
    (void)state;
    static const char reason[] = KIN_GOODBYE_CLOSED ": " KIN_GOODBYE_STOPPED;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    assert_true(kin_goodbye_is_stop(reason));
    assert_false(kin_goodbye_is_stop(KIN_GOODBYE_CLOSED));
    assert_false(kin_goodbye_is_stop(KIN_GOODBYE_STOPPED)); // this side's own words
    of_link(KIN_MEMBERSHIP_LEFT, 12, reason);
    expect_words("fail: device 'laptop' (stage 2 of 2) has left\n");
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_LEFT);
    of_link(KIN_MEMBERSHIP_LEFT, 11, KIN_GOODBYE_CLOSED ": low battery");
    expect_words("say device 'tower' has left (low battery)\n");
}

static void an_error_that_is_over_is_forgotten(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_FAILED, 12, "a disk error");
    assert_string_equal(kin_membership_device_at(membership, 1)->last_error, "a disk error");
    wait_ms(2500);
    planned(2, "1", 7);
    planned(3, "12", 7);
    assert_string_equal(kin_membership_device_at(membership, 1)->last_error,
                        "a disk error"); // until it has proved that it works
    ready(12);
    assert_string_equal(kin_membership_device_at(membership, 1)->last_error, "");
    of_link(KIN_MEMBERSHIP_LOST, 11, "connection reset");
    assert_string_equal(kin_membership_device_at(membership, 0)->last_error, "connection reset");
    joins(21, 1, "tower");
    assert_string_equal(kin_membership_device_at(membership, 0)->last_error, "");
}

static void the_link_from_the_last_member_leads_to_the_head(void **state) {
    (void)state;
    begin_with_two();
    ring_breaks(12, "no answer for 1.5 s");
    expect_words("say the link from device 'laptop' (stage 2 of 2) to the head broke: no answer for 1.5 s\n");
}

// A request ends (or is aborted) after a failure; the device fails again.
static void fail_again_after(kin_membership_event_kind how) {
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_FAILED, 12, "a disk error");
    expect_words("it is left out for 2.0 s\n");
    wait_ms(2000);
    ring_comes_up_again(3);
    request(how);
    of_link(KIN_MEMBERSHIP_FAILED, 12, "a disk error");
}
#define fail_again_after(...) FROM_TEST(fail_again_after(__VA_ARGS__))

static void a_request_that_ends_forgives_failures_and_one_that_is_aborted_does_not(void **state) {
    (void)state;
    fail_again_after(KIN_MEMBERSHIP_ENDS);
    expect_words("it is left out for 2.0 s\n");
    fail_again_after(KIN_MEMBERSHIP_ABORTED);
    expect_words("it is left out for 4.0 s\n");
}

static void the_heads_own_ring_link_counts_too(void **state) {
    (void)state;
    begin_with_two();
    request(KIN_MEMBERSHIP_BEGINS);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, KIN_MEMBERSHIP_OWN, "connection reset");
    wait_ms(300);
    expect_words("fail: the link from the head to device 'tower' (stage 1 of 2) broke: connection reset\n");
}

static void without_a_ring_the_link_that_broke_is_named(void **state) {
    (void)state;
    begin_with_two();
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "no answer for 1.5 s");
    assert_string_equal(doing(),
                        "the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: no answer for "
                        "1.5 s; waiting for another plan");
    wait_ms(1000);
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_NO_PLAN, .question = 2, .reason = "not enough memory"});
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SHORT);
    assert_string_equal(doing(),
                        "the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) broke: no answer for "
                        "1.5 s, and there is no other plan: not enough memory");
}

static void ring_links_may_come_and_go_before_the_ring_is_up(void **state) {
    (void)state;
    begin_default();
    joins(11, 1, "tower");
    wait_ms(1000);
    planned(1, "1", 7);
    assert_string_equal(doing(), "device 'tower' is getting ready");
    ready(11);
    assert_string_equal(doing(), "connecting to device 'tower'");
    ring_opens(11);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    ring_opens(KIN_MEMBERSHIP_OWN);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_PREPARING);
    ring_opens(11);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
}

// Two members that become ready; the test opens their links.
static void begin_with_closed_ring(void) {
    begin_default();
    joins(11, 1, "tower");
    joins(12, 2, "laptop");
    wait_ms(1000);
    planned(1, "12", 7);
    ready(11);
    ready(12);
    forget();
}
#define begin_with_closed_ring(...) FROM_TEST(begin_with_closed_ring(__VA_ARGS__))

static void a_measured_pair_that_is_slow_needs_no_firewall_opened(void **state) {
    (void)state;
    static const char *const slow[] = {"too slow: 64 KiB took more than 5 s", "no answer for 1.5 s"};
    char said[KIN_MEMBERSHIP_APART_MAX];
    for (int i = 0; i < 2; i++) {
        kin_membership_apart(said, sizeof said, "attic", 7601, "kitchen", 7602, slow[i]);
        assert_non_null(strstr(said, "'attic' and 'kitchen' reach each other too slowly"));
        assert_non_null(strstr(said, slow[i]));
        assert_null(strstr(said, "port"));
    }
    kin_membership_apart(said, sizeof said, "attic", 7601, "kitchen", 7602, "");
    assert_non_null(strstr(said, "do not reach each other (no answer)"));
    assert_non_null(strstr(said, "open TCP port 7601 on 'attic' or 7602 on 'kitchen'"));
}

static void a_ring_link_that_is_too_slow_needs_no_firewall_opened(void **state) {
    (void)state;
    begin_with_closed_ring();
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(12);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "no handshake within 2000 ms");
    wait_ms(8000);
    expect_words("the link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) is too slow to compute over (no "
                 "handshake within 2000 ms); it is left out for 2.0 s\n");
}

static void a_ring_link_that_stays_closed_leaves_its_far_end_out(void **state) {
    (void)state;
    begin_with_closed_ring();
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(12);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection refused");
    wait_ms(7950);
    expect("");
    wait_ms(50);
    expect("say no link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) (connection refused); "
           "open TCP port 0 in the firewall of 'laptop'; it is left out for 2.0 s\n"
           "close ring 1\n"
           "end 1 to 11\n"
           "end 1 to 12\n"
           "whisper plan 1 ended: no link from device 'tower' (stage 1 of 2) to device 'laptop' (stage 2 of 2) "
           "(connection refused); open TCP port 0 in the firewall of 'laptop'; it is left out for 2.0 s\n");
    wait_ms(250);
    expect("ask 2: tower\n");
    planned(2, "1", 7);
    forget();
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(11);
    ready(11);
    expect_words("up 2");
}

static void of_two_ends_the_one_with_two_closed_links_is_left_out(void **state) {
    (void)state;
    begin_with_closed_ring(); // the head does not reach the tower, nor the tower the laptop
    ring_opens(12);
    wait_ms(8000);
    expect_words("'tower'; it is left out");
    begin_with_closed_ring();
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(11);
    wait_ms(8000);
    expect_words("no link from device 'laptop' (stage 2 of 2) to the head (no answer)");
    assert_int_equal(kin_membership_device_at(membership, 1)->state, KIN_DEVICE_FAILED);
}

static void a_ring_link_that_broke_has_as_much_time_again(void **state) {
    (void)state;
    begin_with_closed_ring();
    wait_ms(7000);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ring_opens(11);
    of_link(KIN_MEMBERSHIP_RING_CLOSED, 11, "connection reset");
    ring_opens(12);
    forget();
    wait_ms(7950);
    expect("");
    wait_ms(50);
    expect_words("it is left out");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(a_device_whose_link_breaks_again_and_again_is_reported_once),
        STORY(a_device_that_fails_rests_longer_each_time),
        STORY(a_broken_ring_link_names_both_ends),
        STORY(a_hop_that_breaks_twice_before_anything_comes_of_it_leaves_its_far_end_out),
        STORY(a_hop_of_the_head_that_breaks_twice_leaves_the_device_out),
        STORY(of_two_ends_the_one_whose_other_link_broke_too_is_left_out),
        STORY(breaks_between_which_requests_go_on_leave_no_device_out),
        STORY(requests_that_go_on_without_a_hop_do_not_report_it),
        STORY(a_device_that_lost_a_step_is_left_out),
        STORY(of_a_hop_that_lost_a_step_the_sender_is_left_out_and_then_the_receiver),
        STORY(of_a_hop_of_the_head_that_lost_a_step_the_device_is_left_out),
        STORY(a_loss_of_another_epoch_or_of_no_device_changes_nothing),
        STORY(a_link_that_broke_with_its_device_does_not_count),
        STORY(what_the_last_member_sends_to_the_head_leaves_it_out),
        STORY(a_member_that_gets_what_cannot_be_stays_and_the_one_before_it_is_left_out),
        STORY(what_the_first_member_cannot_use_leaves_it_out),
        STORY(a_device_that_goes_is_said_once_though_its_links_broke_before),
        STORY(between_requests_it_is_one_line_too),
        STORY(a_device_that_was_stopped_has_left),
        STORY(an_error_that_is_over_is_forgotten),
        STORY(progress_before_invalid_data_forgives_breaks),
        STORY(the_link_from_the_last_member_leads_to_the_head),
        STORY(a_request_that_ends_forgives_failures_and_one_that_is_aborted_does_not),
        STORY(the_heads_own_ring_link_counts_too),
        STORY(without_a_ring_the_link_that_broke_is_named),
        STORY(ring_links_may_come_and_go_before_the_ring_is_up),
        STORY(a_ring_link_that_stays_closed_leaves_its_far_end_out),
        cmocka_unit_test(a_measured_pair_that_is_slow_needs_no_firewall_opened),
        STORY(a_ring_link_that_is_too_slow_needs_no_firewall_opened),
        STORY(of_two_ends_the_one_with_two_closed_links_is_left_out),
        STORY(a_ring_link_that_broke_has_as_much_time_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
