// Helpers for stories about membership: a membership, events by name, and the resulting actions as lines of a trace. Include
// after cmocka.
#pragma once

#include <stdio.h>
#include <string.h>

#include "pure/proto/epoch.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/membership.h"
#include "tests/place.h"
#include "tests/trace.h"

static kin_membership *membership;
static kin_membership_actions last;

// ---- recording the trace

static inline void add_action(const kin_membership_action *a) {
    switch (a->kind) {
    case KIN_MEMBERSHIP_ACCEPT: add("accept %u\n", a->link); break;
    case KIN_MEMBERSHIP_REFUSE: add("refuse %u: %s\n", a->link, a->text); break;
    case KIN_MEMBERSHIP_DROP: add("drop %u: %s\n", a->link, a->text); break;
    case KIN_MEMBERSHIP_ASK:
        add("ask %u:", a->question);
        for (int i = 0; i < a->n_devices; i++) add(" %s", kin_membership_device_at(membership, a->devices[i])->name);
        add("\n");
        break;
    case KIN_MEMBERSHIP_PREFETCH:
        add("prefetch %u to ", a->question);
        if (a->link == KIN_MEMBERSHIP_OWN)
            add("itself\n");
        else
            add("%u%s\n", a->link, a->rate_limited ? ", gently" : "");
        break;
    case KIN_MEMBERSHIP_SEND_PLAN: add("plan %u to %u\n", a->epoch, a->link); break;
    case KIN_MEMBERSHIP_SEND_END: add("end %u to %u\n", a->epoch, a->link); break;
    case KIN_MEMBERSHIP_OPEN_RING:
        add("open ring %u to %s\n", a->epoch, kin_membership_device_at(membership, a->device)->name);
        break;
    case KIN_MEMBERSHIP_CLOSE_RING: add("close ring %u\n", a->epoch); break;
    case KIN_MEMBERSHIP_UP: add("up %u\n", a->epoch); break;
    case KIN_MEMBERSHIP_FAIL: add("fail: %s\n", a->text); break;
    case KIN_MEMBERSHIP_LOG: add("%s %s\n", a->level == KIN_LOG_DEBUG ? "whisper" : "say", a->text); break;
    case KIN_MEMBERSHIP_STATUS: break;
    }
}

static inline void step(kin_membership_event e) {
    const kin_membership_actions *actions = kin_membership_step(membership, now, &e);
    last = *actions;
    for (int i = 0; i < actions->n; i++) add_action(&actions->at[i]);
}

// True if the last step reported the status.
static inline bool reports_status(void) {
    for (int i = 0; i < last.n; i++) {
        if (last.at[i].kind == KIN_MEMBERSHIP_STATUS) return true;
    }
    return false;
}

static inline void expect_words(const char *words) {
    if (!strstr(trace, words)) fail_msg("'%s' is not in:\n%s", words, trace);
    forget();
}
#define expect_words(...) FROM_TEST(expect_words(__VA_ARGS__))

// ---- events

static inline void begin(kin_membership_options o) {
    o.id = (kin_proto_id){{255}};
    o.features = 3;
    o.model = (kin_proto_hash){{9}};
    kin_membership_free(membership);
    now = 1000 * MS;
    membership = kin_membership_new(&o, now);
    assert_non_null(membership);
    forget();
}
#define begin(...) FROM_TEST(begin(__VA_ARGS__))

static inline void begin_default(void) {
    begin(kin_membership_options_default());
}
#define begin_default(...) FROM_TEST(begin_default(__VA_ARGS__))

static inline int tear_down(void **state) {
    (void)state;
    kin_membership_free(membership);
    membership = NULL;
    return 0;
}

// Advances the clock in ticks of 50 ms.
static inline void wait_ms(int ms) {
    for (kin_time end = now + (kin_time)ms * MS; now < end;) {
        now += 50 * MS;
        step((kin_membership_event){.kind = KIN_MEMBERSHIP_TICK});
    }
}

static inline void hello(uint32_t link, uint8_t id, const char *name, uint32_t features) {
    kin_membership_hello h = {.id = {{id}}, .name = name, .features = features};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_JOINS, .link = link, .hello = &h});
}

static inline void facts(uint32_t link, uint8_t model) {
    kin_proto_device f = {.n_threads = 4, .memory = 1u << 30, .model = {{model}}};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_FACTS, .link = link, .facts = &f});
}

static inline void joins(uint32_t link, uint8_t id, const char *name) {
    hello(link, id, name, 3);
    facts(link, 0);
}

// The planner's answer to `question`: these devices in this order, each with the windows `work`.
static inline void planned(uint32_t question, const char *ids, uint8_t work) {
    kin_membership_stage stages[KIN_MEMBERSHIP_DEVICES];
    int n = (int)strlen(ids);
    for (int i = 0; i < n; i++) {
        stages[i] = (kin_membership_stage){.id = {{(uint8_t)(ids[i] - '0')}}, .work = work};
    }
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PLANNED, .question = question, .stages = stages, .n_stages = n});
}

// Link's prefetch progress (KIN_MEMBERSHIP_OWN: the head's): done if is_here, else failed with `reason` or in progress.
static inline void prefetched(uint32_t link, uint32_t question, bool is_here, const char *reason) {
    kin_proto_progress progress = {KIN_PROTO_FETCHING, is_here ? 400 : 100, 400, 0, 0};
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED,
                                .link = link,
                                .question = question,
                                .is_here = is_here,
                                .progress = &progress,
                                .reason = reason});
}

static inline void does_not_fit(uint32_t question) {
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_NO_PLAN, .question = question, .reason = "2.0 GiB are missing"});
}

static inline void of_link(kin_membership_event_kind kind, uint32_t link, const char *reason) {
    step((kin_membership_event){
        .kind = kind, .link = link, .epoch = kin_membership_epoch(membership), .stage = "compute", .reason = reason});
}

static inline void ready(uint32_t link) {
    of_link(KIN_MEMBERSHIP_READY, link, NULL);
}

static uint64_t progress_made; // tokens generated by all rings so far

static inline void ring_opens(uint32_t link) {
    step((kin_membership_event){.kind = KIN_MEMBERSHIP_RING_OPENED,
                                .link = link,
                                .epoch = kin_membership_epoch(membership),
                                .progress_made = progress_made});
}

static inline void request(kin_membership_event_kind kind) {
    step((kin_membership_event){.kind = kind, .epoch = kin_membership_epoch(membership)});
}

static inline const char *doing(void) {
    static char text[KIN_MEMBERSHIP_SENTENCE];
    return kin_membership_doing(membership, text, sizeof text);
}

// Begins with devices tower (id 1, link 11) and laptop (id 2, link 12) in a ring that is up.
static inline void begin_with_two(void) {
    begin_default();
    joins(11, 1, "tower");
    joins(12, 2, "laptop");
    wait_ms(1000);
    planned(1, "12", 7);
    ring_opens(KIN_MEMBERSHIP_OWN);
    ready(11);
    ready(12);
    ring_opens(11);
    ring_opens(12);
    assert_int_equal(kin_membership_state_now(membership), KIN_MEMBERSHIP_SERVING);
    forget();
}
#define begin_with_two(...) FROM_TEST(begin_with_two(__VA_ARGS__))

#define STORY(name) cmocka_unit_test_teardown(name, tear_down)
