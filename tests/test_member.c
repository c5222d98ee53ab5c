// The device's side of membership (pure/proto/member.h), step by step. Each test is a story: events, each followed by the
// expected actions of the member. "say" is a log line. Status changes are omitted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "pure/proto/member.h"
#include "pure/proto/message.h"
#include "tests/long_reason.h"
#include "tests/place.h"
#include "tests/trace.h"

static kin_member *member;

// ---- the trace as text

static void add_action(const kin_member_action *a) {
    switch (a->kind) {
    case KIN_MEMBER_SEARCH: add("search\n"); break;
    case KIN_MEMBER_CONNECT: add("connect to %s port %u\n", a->address, (unsigned)a->port); break;
    case KIN_MEMBER_DROP: add("drop: %s\n", a->text); break;
    case KIN_MEMBER_SEND_FACTS: add("send facts\n"); break;
    case KIN_MEMBER_PREPARE: add("prepare %u for %u\n", a->ticket, a->epoch); break;
    case KIN_MEMBER_CANCEL: add("cancel %u\n", a->ticket); break;
    case KIN_MEMBER_REUSE: add("reuse for %u\n", a->epoch); break;
    case KIN_MEMBER_SEND_PROGRESS: add("send progress %u\n", a->epoch); break;
    case KIN_MEMBER_SEND_READY: add("send ready %u\n", a->epoch); break;
    case KIN_MEMBER_SEND_FAILED: add("send failed %u: %s: %s\n", a->epoch, a->stage, a->text); break;
    case KIN_MEMBER_CONNECT_NEXT: add("connect next %u%s\n", a->epoch, a->by_head ? " by the head" : ""); break;
    case KIN_MEMBER_CONNECT_PREVIOUS: add("connect previous %u%s\n", a->epoch, a->by_head ? " by the head" : ""); break;
    case KIN_MEMBER_CLOSE_RING: add("close ring %u\n", a->epoch); break;
    case KIN_MEMBER_SEND_RING:
        add("send ring %s %u%s%s\n", a->is_open ? "open" : "closed", a->epoch, a->text[0] ? ": " : "", a->text);
        break;
    case KIN_MEMBER_GIVE_UP: add("give up: %s\n", a->text); break;
    case KIN_MEMBER_LOG: add("say %s\n", a->text); break;
    case KIN_MEMBER_STATUS: break;
    }
}

static bool reported; // the last step reported the status

static void step(kin_member_event e) {
    const kin_member_actions *actions = kin_member_step(member, now, &e);
    reported = false;
    for (int i = 0; i < actions->n; i++) {
        add_action(&actions->at[i]);
        reported |= actions->at[i].kind == KIN_MEMBER_STATUS;
    }
}

static int n_searches(void) {
    int n = 0;
    for (const char *at = trace; (at = strstr(at, "search\n")); at++) n++;
    return n;
}

static void expect_state(kin_member_state wanted) {
    assert_int_equal(kin_member_state_now(member), wanted);
}
#define expect_state(...) FROM_TEST(expect_state(__VA_ARGS__))

// ---- events

static void begin(const char *address, uint64_t seed) {
    kin_member_options o = kin_member_options_default();
    snprintf(o.address, sizeof o.address, "%s", address);
    o.port = 7577;
    o.seed = seed;
    kin_member_free(member);
    now = 1000 * MS;
    member = kin_member_new(&o, now);
    assert_non_null(member);
    forget();
}
#define begin(...) FROM_TEST(begin(__VA_ARGS__))

static int tear_down(void **state) {
    (void)state;
    kin_member_free(member);
    member = NULL;
    return 0;
}

static void tick(void) {
    step((kin_member_event){.kind = KIN_MEMBER_TICK});
}

static void wait_ms(int ms) {
    for (kin_time end = now + (kin_time)ms * MS; now < end;) {
        now += 10 * MS;
        tick();
    }
}

static void found(const char *address) {
    step((kin_member_event){.kind = KIN_MEMBER_FOUND, .name = "desk", .address = address, .port = 4000});
}

static void found_gateway(const char *address) {
    step((kin_member_event){.kind = KIN_MEMBER_FOUND, .name = "desk", .address = address, .port = 4000, .is_gateway = true});
}

static void accepted(void) {
    step((kin_member_event){.kind = KIN_MEMBER_ACCEPTED, .name = "desk"});
}

static void refused(const char *reason) {
    step((kin_member_event){.kind = KIN_MEMBER_REFUSED, .reason = reason});
}

static void lost(const char *reason) {
    step((kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
}

static void plan(uint32_t epoch, const char *work) {
    step((kin_member_event){.kind = KIN_MEMBER_PLAN, .epoch = epoch, .work = kin_hash64(work, strlen(work), 0)});
}

static void end(uint32_t epoch) {
    step((kin_member_event){.kind = KIN_MEMBER_END, .epoch = epoch});
}

static void prepared(uint32_t ticket) {
    step((kin_member_event){.kind = KIN_MEMBER_PREPARED, .ticket = ticket});
}

static void next_opens(uint32_t epoch) {
    step((kin_member_event){.kind = KIN_MEMBER_NEXT_OPENED, .epoch = epoch});
}

static void next_closes(uint32_t epoch, const char *reason) {
    step((kin_member_event){.kind = KIN_MEMBER_NEXT_CLOSED, .epoch = epoch, .reason = reason});
}

static void previous_opens(uint32_t epoch) {
    step((kin_member_event){.kind = KIN_MEMBER_PREVIOUS_OPENED, .epoch = epoch});
}

static void previous_closes(uint32_t epoch, const char *reason) {
    step((kin_member_event){.kind = KIN_MEMBER_PREVIOUS_CLOSED, .epoch = epoch, .reason = reason});
}

static void begin_joined(void) {
    begin("desk.local", 1);
    tick();
    accepted();
    forget();
}
#define begin_joined(...) FROM_TEST(begin_joined(__VA_ARGS__))

// Ready in epoch 5 with layers 0-8, prepared with ticket 1.
static void begin_ready(void) {
    begin_joined();
    plan(5, "layers 0-8");
    prepared(1);
    next_opens(5);
    previous_opens(5);
    expect_state(KIN_MEMBER_READY);
    forget();
}
#define begin_ready(...) FROM_TEST(begin_ready(__VA_ARGS__))

// ---- the stories

static void from_nothing_to_ready(void **state) {
    (void)state;
    begin("", 1);
    expect_state(KIN_MEMBER_SEARCHING);
    tick();
    expect("search\n");
    found("192.168.1.7");
    expect("say found the head 'desk' at 192.168.1.7, port 4000\nconnect to 192.168.1.7 port 4000\n");
    found("10.0.0.7"); // another address of the same head
    expect("");
    accepted();
    expect("send facts\nsay joined the head 'desk'\n");
    expect_state(KIN_MEMBER_JOINED);
    plan(5, "layers 0-8");
    expect("prepare 1 for 5\nconnect next 5\n");
    expect_state(KIN_MEMBER_PREPARING);
    next_opens(5);
    expect("send ring open 5\n");
    previous_opens(5);
    prepared(1);
    expect("send ready 5\n");
    expect_state(KIN_MEMBER_READY);
    assert_true(kin_member_accepts(member, 5));
    assert_false(kin_member_accepts(member, 4));
    assert_false(kin_member_accepts(member, 0));
    wait_ms(60000);
    expect("");
}

// The device reaches both the head and a gateway.
static void the_head_is_preferred_to_a_gateway(void **state) {
    (void)state;
    begin("", 1);
    wait_ms(20000);
    forget();
    found_gateway("10.0.0.2"); // the gateway answered first
    expect("");
    found("10.0.0.1");
    expect("say found the head 'desk' at 10.0.0.1, port 4000\nconnect to 10.0.0.1 port 4000\n");
    wait_ms(1000);
    expect("");
}

static void a_gateway_is_taken_where_the_head_does_not_answer(void **state) {
    (void)state;
    begin("", 1);
    tick();
    found_gateway("10.0.0.2"); // too early: the head may not have received the query yet
    wait_ms(500);
    assert_null(strstr(trace, "connect"));
    wait_ms(5000);
    forget();
    found_gateway("10.0.0.2");
    wait_ms(400);
    assert_non_null(
        strstr(trace, "say found the head 'desk' through the device at 10.0.0.2, port 4000\nconnect to 10.0.0.2 port 4000\n"));
}

static void a_head_that_answers_searches_only_is_reached_by_a_gateway(void **state) {
    (void)state;
    begin("", 1);
    tick();
    found("10.0.0.1");
    lost("no answer in time");
    wait_ms(300);
    forget();
    found("10.0.0.1");
    expect("");
    found_gateway("10.0.0.2");
    expect("say found the head 'desk' through the device at 10.0.0.2, port 4000\nconnect to 10.0.0.2 port 4000\n");
    lost("the connection ended");
    wait_ms(600);
    forget();
    found_gateway("10.0.0.2");
    found("10.0.0.1"); // the gateway does not help either, so the head is tried again
    expect("say found the head 'desk' at 10.0.0.1, port 4000\nconnect to 10.0.0.1 port 4000\n");
}

static void a_gateway_without_a_head_is_asked_again_soon(void **state) {
    (void)state;
    begin("laptop.local", 1);
    tick();
    forget();
    refused("no head: this is a device without a head at present");
    expect("drop: it has no head\nsay no head at 'laptop.local' yet: this is a device without a head at present\n");
    wait_ms(260);
    expect("connect to laptop.local port 7577\n");
}

static void a_given_address_is_not_searched(void **state) {
    (void)state;
    begin("desk.local", 1);
    expect_state(KIN_MEMBER_CONNECTING);
    tick();
    expect("connect to desk.local port 7577\n");
    lost("connection refused");
    expect("say no head at 'desk.local' yet: connection refused\n");
    wait_ms(120);
    expect("");
    wait_ms(140);
    expect("connect to desk.local port 7577\n");
}

static void searches_become_rarer_but_never_stop(void **state) {
    (void)state;
    begin("", 1);
    wait_ms(1000);
    assert_in_range(n_searches(), 3, 5);
    wait_ms(30000);
    forget();
    wait_ms(60000);
    assert_in_range(n_searches(), 12, 24); // every 2.5 to 5 s
}

static void two_devices_do_not_search_in_step(void **state) {
    (void)state;
    kin_time at[2];
    for (uint64_t seed = 0; seed < 2; seed++) {
        begin("", seed);
        for (forget(); n_searches() < 8; wait_ms(10)) continue;
        at[seed] = now;
    }
    assert_true(at[0] != at[1]);
}

static void a_head_that_does_not_answer_is_dropped(void **state) {
    (void)state;
    begin("desk.local", 1);
    tick();
    forget();
    wait_ms(3990);
    expect("");
    wait_ms(10);
    expect("drop: the head did not answer in time\nsay no head at 'desk.local' yet: the head did not answer in time\n");
    accepted(); // too late
    expect("");
}

static void a_lost_head_is_searched_and_the_shard_kept(void **state) {
    (void)state;
    begin_ready();
    wait_ms(10000);
    lost("nothing was heard for 1500 ms");
    expect("say the head 'desk' is gone (nothing was heard for 1500 ms)\nclose ring 5\n");
    assert_int_equal(kin_member_epoch(member), 0);
    wait_ms(250);
    expect("connect to desk.local port 7577\n");
    accepted();
    forget();
    plan(3, "layers 0-8"); // a restarted head may restart its epochs
    expect("reuse for 3\nsend ready 3\nconnect next 3\n");
}

static void an_epoch_after_the_last_number_is_newer(void **state) {
    (void)state;
    begin_ready();
    plan(UINT32_MAX, "layers 0-8");
    assert_int_equal(kin_member_epoch(member), 5); // 2^31 or more ahead counts as behind
    plan(UINT32_MAX / 2 + 2, "layers 0-8");
    plan(UINT32_MAX, "layers 0-8");
    assert_int_equal(kin_member_epoch(member), UINT32_MAX);
    plan(0, "layers 0-8"); // 0 is not an epoch
    assert_int_equal(kin_member_epoch(member), UINT32_MAX);
    plan(1, "layers 0-8");
    assert_int_equal(kin_member_epoch(member), 1);
    plan(UINT32_MAX, "layers 0-8");
    assert_int_equal(kin_member_epoch(member), 1);
}

static void a_head_that_throws_out_at_once_is_not_stormed(void **state) {
    (void)state;
    begin("desk.local", 1);
    int n_tries = 0;
    for (int i = 0; i < 6000; i++) {
        wait_ms(10);
        if (!strstr(trace, "connect")) continue;
        n_tries++;
        accepted();
        lost("closed by the other side");
        forget();
    }
    assert_in_range(n_tries, 12, 30); // in a minute
}

static void a_head_that_throws_out_after_it_was_served_is_not_stormed(void **state) {
    (void)state;
    begin_ready();
    lost("the head stopped");
    int n_tries = 0;
    for (int i = 0; i < 6000; i++) {
        forget();
        wait_ms(10);
        if (!strstr(trace, "connect")) continue;
        n_tries++;
        accepted();
        lost("closed by the other side");
    }
    assert_in_range(n_tries, 12, 30); // in a minute
}

static void a_head_that_was_there_for_five_seconds_is_tried_again_at_once(void **state) {
    (void)state;
    begin("desk.local", 1);
    for (int i = 0; i < 10; i++) {
        tick();
        accepted();
        forget();
        wait_ms(5000);
        lost("connection reset");
        wait_ms(260);
        assert_non_null(strstr(trace, "connect to desk.local"));
    }
}

// `kin run` is started ten times in a row: the device returns as soon after the tenth time as after the first.
static void a_head_that_comes_and_goes_finds_its_device_at_once(void **state) {
    (void)state;
    begin("desk.local", 1);
    tick();
    for (uint32_t run = 1; run <= 10; run++) {
        accepted();
        plan(run, "layers 0-8");
        prepared(run);
        next_opens(run);
        previous_opens(run);
        expect_state(KIN_MEMBER_READY);
        end(run);
        lost("the head stopped");
        forget();
        wait_ms(260);
        assert_non_null(strstr(trace, "connect to desk.local"));
    }
}

static void another_version_is_final(void **state) {
    (void)state;
    begin("desk.local", 1);
    tick();
    forget();
    refused("version: the head is kin 2, the device is kin 1");
    expect("drop: it was refused\n"
           "give up: the head 'desk.local' refuses this device: the head is kin 2, the device is kin 1\n");
    lost("closed");
    wait_ms(100000);
    expect("");
    expect_state(KIN_MEMBER_GIVEN_UP);
}

static void a_busy_head_is_asked_again_slowly(void **state) {
    (void)state;
    begin("desk.local", 1);
    tick();
    forget();
    refused("busy: 32 devices have joined already");
    expect("drop: it was refused\nsay the head 'desk.local' refuses this device for now: 32 devices have joined already\n");
    lost("closed");
    wait_ms(29990);
    expect("");
    wait_ms(10);
    expect("connect to desk.local port 7577\n");
}

static void a_copy_asks_again_a_few_times_and_gives_up(void **state) {
    (void)state;
    static const char twin[] = "twin: 'anna' has already joined with the same identity";
    begin("desk.local", 1);
    tick();
    forget();
    refused(twin);
    expect("drop: it was refused\nsay the head 'desk.local' refuses this device for now: 'anna' has already joined with the same "
           "identity\n");
    wait_ms(2490);
    expect("");
    wait_ms(10);
    expect("connect to desk.local port 7577\n");
    refused(twin); // already logged
    expect("drop: it was refused\n");
    wait_ms(2500);
    forget();
    refused(twin);
    expect("drop: it was refused\n"
           "give up: the head 'desk.local' refuses this device: 'anna' has already joined with the same identity\n");
    expect_state(KIN_MEMBER_GIVEN_UP);
}

static void a_restarted_device_is_accepted_when_its_old_process_is_missed(void **state) {
    (void)state;
    static const char twin[] = "twin: 'anna' has already joined with the same identity";
    begin("desk.local", 1);
    for (int i = 0; i < 5; i++) { // joining resets the count of refusals
        for (forget(); !strstr(trace, "connect");) wait_ms(10);
        refused(twin);
        wait_ms(2500);
        accepted();
        expect_state(KIN_MEMBER_JOINED);
        lost("closed");
    }
}

static void a_refusal_after_joining_ends_the_epoch(void **state) {
    (void)state;
    begin_ready();
    refused("model: its model file differs from the head's");
    expect("close ring 5\n"
           "drop: it was refused\n"
           "say the head 'desk' refuses this device for now: its model file differs from the head's\n");
    expect_state(KIN_MEMBER_IS_REFUSED);
    assert_int_equal(kin_member_epoch(member), 0);
}

static void the_same_work_is_reused_other_work_is_not(void **state) {
    (void)state;
    begin_ready();
    end(5);
    expect("close ring 5\n");
    expect_state(KIN_MEMBER_JOINED);
    plan(6, "layers 0-8");
    expect("reuse for 6\nsend ready 6\nconnect next 6\n");
    plan(7, "layers 0-4"); // without an end of epoch 6
    expect("close ring 6\nprepare 2 for 7\nconnect next 7\n");
    prepared(2);
    expect("send ready 7\n");
}

static void a_preparation_outlives_its_epoch(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    end(5);
    forget();
    plan(6, "layers 0-8");
    expect("connect next 6\n"); // the preparation is already running
    prepared(1);
    expect("send ready 6\n");
}

static void a_preparation_may_end_after_its_epoch(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    lost("closed");
    prepared(1);
    wait_ms(250);
    accepted();
    forget();
    plan(6, "layers 0-8");
    expect("reuse for 6\nsend ready 6\nconnect next 6\n");
}

static void a_cancelled_preparation_is_not_listened_to(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    forget();
    plan(6, "layers 8-16");
    expect("close ring 5\ncancel 1\nprepare 2 for 6\nconnect next 6\n");
    prepared(1);
    step((kin_member_event){.kind = KIN_MEMBER_PREPARE_FAILED, .ticket = 1, .stage = "loading", .reason = "cancelled"});
    expect("");
    prepared(2);
    expect("send ready 6\n");
}

static void a_failed_preparation_is_told_and_forgotten(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    forget();
    step((kin_member_event){.kind = KIN_MEMBER_PREPARE_FAILED, .ticket = 1, .stage = "loading", .reason = "out of memory"});
    expect("send failed 5: loading: out of memory\nsay failed at loading: out of memory\n");
    end(5);
    forget();
    plan(6, "layers 0-8");
    expect("prepare 2 for 6\nconnect next 6\n");
    end(6);
    forget();
    step((kin_member_event){.kind = KIN_MEMBER_PREPARE_FAILED, .ticket = 2, .stage = "loading", .reason = "out of memory"});
    expect("say cannot prepare what the last plan asked for: out of memory\n");
}

static void what_was_ready_breaks_when_the_rest_of_it_does_not_come(void **state) {
    (void)state;
    begin_ready();
    step((kin_member_event){.kind = KIN_MEMBER_PREPARE_FAILED, .ticket = 0, .stage = "fetching", .reason = "late"});
    prepared(1);
    expect("");
    step((kin_member_event){.kind = KIN_MEMBER_PREPARE_FAILED, .ticket = 1, .stage = "fetching", .reason = "the head is gone"});
    expect("send failed 5: fetching: the head is gone\nsay failed at fetching: the head is gone\n");
    expect_state(KIN_MEMBER_PREPARING);
    step((kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = 5, .stage = "compute", .reason = "the head is gone"});
    expect(""); // already logged
    end(5);
    forget();
    plan(6, "layers 0-8");
    expect("prepare 2 for 6\nconnect next 6\n");
}

static void a_long_reason_is_told_whole(void **state) {
    (void)state;
    char text[KIN_MEMBER_SENTENCE];
    assert_int_equal(KIN_MEMBER_REASON, KIN_PROTO_MAX_REASON + 1);
    begin_ready();
    step((kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = 5, .stage = "compute", .reason = long_reason()});
    assert_non_null(strstr(trace, "see /a/path\n"));
    refused(long_reason());
    assert_non_null(strstr(kin_member_doing(member, text, sizeof text), "see /a/path"));
}

static void what_could_not_compute_is_prepared_anew(void **state) {
    (void)state;
    begin_ready();
    step((kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = 4, .stage = "compute", .reason = "late"});
    expect("");
    step((kin_member_event){.kind = KIN_MEMBER_COMPUTE_FAILED, .epoch = 5, .stage = "compute", .reason = "a disk error"});
    expect("send failed 5: compute: a disk error\nsay failed at compute: a disk error\n");
    end(5);
    forget();
    plan(6, "layers 0-8");
    expect("prepare 2 for 6\nconnect next 6\n");
}

static void progress_is_told_four_times_a_second(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    forget();
    int n = 0;
    for (int i = 0; i < 100; i++) {
        wait_ms(10);
        step((kin_member_event){.kind = KIN_MEMBER_PROGRESS, .ticket = 1});
        n += strstr(trace, "send progress 5") != NULL;
        forget();
    }
    assert_in_range(n, 4, 5);
}

static void epochs_do_not_go_back_on_one_link(void **state) {
    (void)state;
    begin_ready();
    plan(4, "layers 8-16");
    plan(5, "layers 8-16");
    end(4);
    expect("");
    end(5);
    forget();
    plan(5, "layers 0-8");
    expect("");
    assert_false(kin_member_accepts(member, 5));
}

static void the_next_member_is_tried_until_the_epoch_ends(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    prepared(1);
    previous_opens(5);
    forget();
    next_closes(5, "connection refused");
    expect("send ring closed 5: connection refused\n");
    wait_ms(250);
    expect("connect next 5\n");
    next_closes(5, "connection refused"); // the head has been told
    expect("");
    wait_ms(500);
    expect("connect next 5\n");
    next_closes(5, "no route");
    expect("send ring closed 5: no route\n");
    wait_ms(1000);
    expect("connect next 5\n");
    next_opens(5);
    expect("send ring open 5\n");
    next_closes(5, "connection reset");
    expect("send ring closed 5: connection reset\n");
    wait_ms(250);
    expect("connect next 5\n");
    end(5);
    expect("close ring 5\n");
    next_closes(5, "late");
    wait_ms(60000);
    expect("");
}

static void a_hop_that_its_sender_does_not_open_is_opened_by_its_receiver(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    next_opens(5);
    forget();
    wait_ms(690);
    expect("");
    wait_ms(10);
    expect("connect previous 5\n");
    previous_closes(5, "no answer within 2000 ms"); // the sender reports this to the head
    wait_ms(250);
    expect("connect previous 5\n");
    previous_opens(5);
    wait_ms(60000);
    expect("");
    previous_closes(5, "connection reset"); // the sender starts again with the full timeout
    wait_ms(690);
    expect("");
    wait_ms(10);
    expect("connect previous 5\n");
    previous_closes(4, "late");
    end(5);
    previous_closes(5, "late");
    wait_ms(60000);
    expect("close ring 5\n");
}

static void a_hop_that_neither_end_opens_goes_by_the_head(void **state) {
    (void)state;
    begin_joined();
    plan(5, "layers 0-8");
    forget();
    now += 2000 * MS; // both sides try during this time
    next_closes(5, "no answer within 2000 ms");
    previous_closes(5, "connection refused");
    forget();
    wait_ms(400);
    expect("connect previous 5 by the head\nconnect next 5 by the head\n");
    next_opens(5);
    previous_opens(5);
    expect("send ring open 5\n");
    next_closes(5, "connection reset"); // next time another device's firewall may be the cause
    forget();
    wait_ms(250);
    expect("connect next 5\n");
}

static void a_hop_that_is_known_to_go_by_the_head_does_so_at_once(void **state) {
    (void)state;
    begin_joined();
    step((kin_member_event){.kind = KIN_MEMBER_PLAN, .epoch = 5, .work = 1, .next_by_head = true, .previous_by_head = true});
    expect("prepare 1 for 5\nconnect next 5 by the head\nconnect previous 5 by the head\n");
}

static void a_device_without_layers_says_why_until_it_has_some(void **state) {
    (void)state;
    char text[KIN_MEMBER_SENTENCE];
    begin_joined();
    step((kin_member_event){.kind = KIN_MEMBER_LEFT_OUT, .reason = "it would add 27 ms/token"});
    assert_true(reported);
    expect_state(KIN_MEMBER_JOINED);
    const char *said = "joined the head 'desk', whose plan leaves this device out: it would add 27 ms/token";
    assert_string_equal(kin_member_doing(member, text, sizeof text), said);
    plan(5, "layers 0-8");
    end(5);
    assert_string_equal(kin_member_doing(member, text, sizeof text), "joined the head 'desk', waiting for work");
    step((kin_member_event){.kind = KIN_MEMBER_LEFT_OUT, .reason = "it would add 27 ms/token"});
    step((kin_member_event){.kind = KIN_MEMBER_LEFT_OUT, .reason = ""}); // no plan is in force any more
    assert_string_equal(kin_member_doing(member, text, sizeof text), "joined the head 'desk', waiting for work");
    step((kin_member_event){.kind = KIN_MEMBER_LEFT_OUT, .reason = "it would add 27 ms/token"});
    lost("it broke");
    wait_ms(10000);
    accepted();
    assert_string_equal(kin_member_doing(member, text, sizeof text), "joined the head 'desk', waiting for work");
}

static void plans_before_joining_are_ignored(void **state) {
    (void)state;
    begin("desk.local", 1);
    tick();
    forget();
    plan(5, "layers 0-8");
    end(5);
    expect("");
    expect_state(KIN_MEMBER_CONNECTING);
}

static void a_search_without_an_answer_says_what_may_be_wrong(void **state) {
    (void)state;
    char text[KIN_MEMBER_SENTENCE];
    begin("", 1);
    for (int i = 0; i < 4000 && n_searches() < 4; i++) {
        assert_null(strstr(kin_member_doing(member, text, sizeof text), "--ask-code"));
        wait_ms(10);
    }
    assert_non_null(strstr(kin_member_doing(member, text, sizeof text), "--ask-code"));
    found("10.0.0.1");
    lost("it broke");
    assert_string_equal(kin_member_doing(member, text, sizeof text), "searching for a head");
}

static void every_state_can_be_said(void **state) {
    (void)state;
    char text[KIN_MEMBER_SENTENCE];
    begin("", 1);
    assert_string_equal(kin_member_doing(member, text, sizeof text), "searching for a head");
    tick();
    found("10.0.0.1");
    assert_string_equal(kin_member_doing(member, text, sizeof text), "connecting to the head 'desk'");
    accepted();
    assert_string_equal(kin_member_doing(member, text, sizeof text), "joined the head 'desk', waiting for work");
    plan(5, "layers 0-8");
    assert_string_equal(kin_member_doing(member, text, sizeof text), "getting ready for the head 'desk'");
    prepared(1);
    assert_string_equal(kin_member_doing(member, text, sizeof text), "working for the head 'desk'");
    refused("busy: later");
    assert_string_equal(kin_member_doing(member, text, sizeof text), "the head 'desk' refuses this device for now: later");
    wait_ms(30000);
    found("10.0.0.1");
    refused("feature: none");
    assert_string_equal(kin_member_doing(member, text, sizeof text), "the head 'desk' refuses this device: none");
}

int main(void) {
#define STORY(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        STORY(from_nothing_to_ready),
        STORY(the_head_is_preferred_to_a_gateway),
        STORY(a_gateway_is_taken_where_the_head_does_not_answer),
        STORY(a_head_that_answers_searches_only_is_reached_by_a_gateway),
        STORY(a_gateway_without_a_head_is_asked_again_soon),
        STORY(a_given_address_is_not_searched),
        STORY(searches_become_rarer_but_never_stop),
        STORY(two_devices_do_not_search_in_step),
        STORY(a_head_that_does_not_answer_is_dropped),
        STORY(a_lost_head_is_searched_and_the_shard_kept),
        STORY(an_epoch_after_the_last_number_is_newer),
        STORY(a_head_that_throws_out_at_once_is_not_stormed),
        STORY(a_head_that_throws_out_after_it_was_served_is_not_stormed),
        STORY(a_head_that_was_there_for_five_seconds_is_tried_again_at_once),
        STORY(a_head_that_comes_and_goes_finds_its_device_at_once),
        STORY(another_version_is_final),
        STORY(a_busy_head_is_asked_again_slowly),
        STORY(a_copy_asks_again_a_few_times_and_gives_up),
        STORY(a_restarted_device_is_accepted_when_its_old_process_is_missed),
        STORY(a_refusal_after_joining_ends_the_epoch),
        STORY(the_same_work_is_reused_other_work_is_not),
        STORY(a_preparation_outlives_its_epoch),
        STORY(a_preparation_may_end_after_its_epoch),
        STORY(a_cancelled_preparation_is_not_listened_to),
        STORY(a_failed_preparation_is_told_and_forgotten),
        STORY(what_was_ready_breaks_when_the_rest_of_it_does_not_come),
        STORY(a_long_reason_is_told_whole),
        STORY(what_could_not_compute_is_prepared_anew),
        STORY(progress_is_told_four_times_a_second),
        STORY(epochs_do_not_go_back_on_one_link),
        STORY(the_next_member_is_tried_until_the_epoch_ends),
        STORY(a_hop_that_its_sender_does_not_open_is_opened_by_its_receiver),
        STORY(a_hop_that_neither_end_opens_goes_by_the_head),
        STORY(a_hop_that_is_known_to_go_by_the_head_does_so_at_once),
        STORY(a_device_without_layers_says_why_until_it_has_some),
        STORY(plans_before_joining_are_ignored),
        STORY(a_search_without_an_answer_says_what_may_be_wrong),
        STORY(every_state_can_be_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
