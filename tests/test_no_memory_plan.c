// Planning and membership with failing allocations (failing_malloc.h): every scheduler, facts as JSON, the step functions of
// head, device and swarm.
#include "failing_malloc.h"

#include <stdio.h>

#include "observe/facts_file.h"
#include "pure/plan/scheduler.h"
#include "pure/proto/member.h"
#include "pure/proto/membership.h"
#include "pure/proto/swarm.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"

// ---- plans

typedef struct planning {
    kin_facts facts;
    const kin_plan_scheduler *scheduler;
} planning;

static int plan(void *arg, kin_err *err) {
    const planning *p = arg;
    kin_plan_options o = kin_plan_options_defaults();
    kin_plan plan;
    o.ilp = kin_ilp_small;
    o.max_nodes = 2000;
    o.max_orders = 5;
    return p->scheduler->plan(&p->facts, &o, &plan, err);
}

static void every_scheduler_plans_or_says_why_not(void **state) {
    (void)state;
    planning *p = calloc(1, sizeof *p);
    assert_non_null(p);
    kin_paper_facts(&p->facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 4);
    for (p->scheduler = kin_plan_schedulers; p->scheduler->name; p->scheduler++) without_memory(plan, p);
    free(p);
}

static int keep_facts(void *arg, kin_err *err) {
    const planning *p = arg;
    kin_facts *back = malloc(sizeof *back);
    if (!back) return kin_err_set(err, "out of memory");
    json_t *json = kin_facts_file_to_json(&p->facts, err);
    int rc = json ? kin_facts_file_from_json(json, back, err) : KIN_FAIL;
    if (rc == 0 && memcmp(back->devices, p->facts.devices, sizeof back->devices) != 0)
        rc = kin_err_set(err, "the facts are others after writing and reading");
    json_decref(json);
    free(back);
    return rc;
}

static void facts_as_json_are_whole_or_refused(void **state) {
    (void)state;
    planning *p = calloc(1, sizeof *p);
    assert_non_null(p);
    kin_paper_facts(&p->facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2);
    without_memory(keep_facts, p);
    free(p);
}

// ---- step functions

static int join_and_plan(void *arg, kin_err *err) {
    const kin_membership_options o = kin_membership_options_default();
    (void)arg;
    kin_membership *m = kin_membership_new(&o, 0);
    if (!m) return kin_err_set(err, "out of memory");
    const kin_membership_hello hello = {.id = {{1}}, .name = "tower"};
    const kin_proto_device facts = {.n_threads = 4, .memory = 1u << 30};
    kin_membership_step(m, 1, &(kin_membership_event){.kind = KIN_MEMBERSHIP_JOINS, .link = 1, .hello = &hello});
    kin_membership_step(m, 2, &(kin_membership_event){.kind = KIN_MEMBERSHIP_FACTS, .link = 1, .facts = &facts});
    kin_membership_step(m, (kin_time)3e9, &(kin_membership_event){.kind = KIN_MEMBERSHIP_TICK});
    kin_membership_step(m, (kin_time)4e9, &(kin_membership_event){.kind = KIN_MEMBERSHIP_LOST, .link = 1, .reason = "gone"});
    assert_int_equal(kin_membership_state_now(m), KIN_MEMBERSHIP_GATHERING);
    kin_membership_free(m);
    return 0;
}

static int be_a_member(void *arg, kin_err *err) {
    kin_member_options o = kin_member_options_default();
    (void)arg;
    strcpy(o.address, "desk");
    kin_member *m = kin_member_new(&o, 0);
    if (!m) return kin_err_set(err, "out of memory");
    kin_member_step(m, 1, &(kin_member_event){.kind = KIN_MEMBER_TICK});
    kin_member_step(m, 2, &(kin_member_event){.kind = KIN_MEMBER_ACCEPTED, .name = "desk"});
    kin_member_step(m, 3, &(kin_member_event){.kind = KIN_MEMBER_PLAN, .epoch = 1, .work = 123});
    assert_int_equal(kin_member_state_now(m), KIN_MEMBER_PREPARING);
    kin_member_free(m);
    return 0;
}

static void head_and_device_allocate_only_at_the_beginning(void **state) {
    (void)state;
    without_memory(join_and_plan, NULL);
    without_memory(be_a_member, NULL);
}

static int fetch(void *arg, kin_err *err) {
    const kin_swarm_options o = kin_swarm_options_defaults(40, 1 << 20, 7);
    const uint8_t id[KIN_SWARM_ID_BYTES] = {1}, other[KIN_SWARM_ID_BYTES] = {2}, bits[5] = {255, 255};
    const uint32_t chunks[] = {3, 4, 5, 39};
    (void)arg;
    kin_swarm *s = kin_swarm_new(&o, 0);
    if (!s) return kin_err_set(err, "out of memory");
    int head = kin_swarm_add_source(s, id, true), device = kin_swarm_add_source(s, other, false);
    if (device >= 0) kin_swarm_offers(s, device, bits, sizeof bits);
    kin_swarm_want(s, chunks, 4, true, 0);
    for (kin_swarm_action a; (a = kin_swarm_next(s, 1)).verb == KIN_SWARM_ASK;) kin_swarm_got(s, a.source, a.chunk, 1);
    bool whole = kin_swarm_complete(s);
    kin_swarm_free(s);
    return whole && head >= 0 ? 0 : kin_err_set(err, "not everything was asked for");
}

static void a_swarm_asks_whom_it_has_room_for(void **state) {
    (void)state;
    without_memory(fetch, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheduler_plans_or_says_why_not),
        cmocka_unit_test(facts_as_json_are_whole_or_refused),
        cmocka_unit_test(head_and_device_allocate_only_at_the_beginning),
        cmocka_unit_test(a_swarm_asks_whom_it_has_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
