// Nonsense from peers that have the key: any event at any time, about any link, epoch and ticket. Neither the head's side of
// membership (pure/proto/membership.h) nor the device's (pure/proto/member.h) may break, and both must still do their work in
// between.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/rng.h"
#include "pure/proto/member.h"
#include "pure/proto/membership.h"

#define MS ((kin_time)1000000)

enum { N_EVENTS = 1500000 }; // with fewer, a ring comes up only by luck

// ---- the head's side

// The planner is trusted: its answer is about the devices of the question.
static void answer(kin_membership *membership, kin_time now, const kin_membership_actions *actions) {
    for (int i = 0; i < actions->n; i++) {
        const kin_membership_action *a = &actions->at[i];
        if (a->kind != KIN_MEMBERSHIP_ASK || a->n_devices == 0) continue;
        kin_membership_stage stage = {.id = kin_membership_device_at(membership, a->devices[0])->id};
        kin_membership_step(
            membership, now,
            &(kin_membership_event){
                .kind = KIN_MEMBERSHIP_PLANNED, .question = a->question, .stages = &stage, .n_stages = a->question % 4 > 0});
        return; // the actions are invalid now
    }
}

static const kin_membership_actions *roster_event(kin_membership *membership, kin_time now, uint64_t x) {
    uint32_t link = x >> 8 & 63;
    bool has_features = x >> 24 & 7, has_no_model = x >> 32 & 31;
    kin_membership_hello hello = {.id = {{(uint8_t)(x >> 16 & 63)}}, .name = "\x1b\n", .features = has_features};
    kin_proto_device facts = {.n_threads = 1, .model = {{has_no_model ? 0 : 1}}};
    kin_proto_progress progress = {.stage = KIN_PROTO_LOADING, .done = x, .total = x >> 40};
    kin_membership_event_kind kind = (kin_membership_event_kind)(x % (KIN_MEMBERSHIP_ABORTED + 1));
    bool is_own_affair = kind == KIN_MEMBERSHIP_PLANNED || kind == KIN_MEMBERSHIP_MODEL;
    kin_membership_event e = {.kind = is_own_affair ? KIN_MEMBERSHIP_READY : kind,
                              .link = link == 63 ? KIN_MEMBERSHIP_OWN : link,
                              .epoch = kin_membership_epoch(membership) - (uint32_t)(x >> 36 & 1),
                              .hello = &hello,
                              .facts = &facts,
                              .progress = &progress,
                              .stage = "\xff",
                              .question = kin_membership_prepares(membership) + (uint32_t)(x >> 42 & 1),
                              .is_here = x >> 43 & 1,
                              .reason = kind == KIN_MEMBERSHIP_PREFETCHED && (x >> 44 & 7) ? NULL : "nonsense"};
    return kin_membership_step(membership, now, &e);
}

static void no_order_of_events_breaks_the_membership(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    kin_time now = 0;
    kin_membership_options options = kin_membership_options_default();
    options.id = (kin_proto_id){{255}};
    options.features = 1;
    options.model = (kin_proto_hash){{2}};
    kin_membership *membership = kin_membership_new(&options, now);
    assert_non_null(membership);
    int n_serving = 0;
    for (int i = 0; i < N_EVENTS; i++) {
        uint64_t x = kin_rng_u64(&rng);
        now += x >> 50 & 127 ? MS : 1000 * MS;
        answer(membership, now, roster_event(membership, now, x));
        char doing[64]; // too short for some
        assert_non_null(kin_membership_doing(membership, doing, sizeof doing));
        n_serving += kin_membership_state_now(membership) == KIN_MEMBERSHIP_SERVING;
    }
    assert_true(kin_membership_epoch(membership) > 1000 && n_serving > 1000); // not everything was refused
    kin_membership_free(membership);
}

// ---- the device's side

static uint32_t member_event(kin_member *member, kin_time now, uint64_t x) {
    kin_member_event_kind kind = (kin_member_event_kind)(x % (KIN_MEMBER_PREVIOUS_CLOSED + 1));
    bool is_rare = kind == KIN_MEMBER_REFUSED || kind == KIN_MEMBER_LOST; // else it would do little else
    kin_member_event e = {.kind = is_rare && (x >> 20 & 31) ? KIN_MEMBER_TICK : kind,
                          .epoch = kin_member_epoch(member) + (uint32_t)(x >> 8 & 1),
                          .ticket = (uint32_t)(x >> 32),
                          .port = 1,
                          .name = "\x1b\n",
                          .address = "10.0.0.1",
                          .stage = "\xff",
                          .reason = "busy: nonsense",
                          .work = x >> 9 & 1 ? x : 0};
    const kin_member_actions *actions = kin_member_step(member, now, &e);
    for (int i = 0; i < actions->n; i++) {
        if (actions->at[i].kind == KIN_MEMBER_PREPARE) return actions->at[i].ticket;
    }
    return 0;
}

static void no_order_of_events_breaks_the_member(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    kin_time now = 0;
    kin_member_options options = kin_member_options_default();
    kin_member *member = kin_member_new(&options, now);
    assert_non_null(member);
    int n_ready = 0;
    for (int i = 0; i < N_EVENTS; i++) {
        uint64_t x = kin_rng_u64(&rng);
        now += x >> 50 & 127 ? MS : 40000 * MS;
        uint32_t ticket = member_event(member, now, x);
        if (ticket && (x >> 10 & 3)) {
            kin_member_step(member, now, &(kin_member_event){.kind = KIN_MEMBER_PREPARED, .ticket = ticket});
        }
        n_ready += kin_member_state_now(member) == KIN_MEMBER_READY;
    }
    assert_true(n_ready > 1000);
    kin_member_free(member);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_events_breaks_the_membership),
        cmocka_unit_test(no_order_of_events_breaks_the_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
