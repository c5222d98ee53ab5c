// An assignment (cluster/assignment.h): its members in the order of the ring, and the message that tells a member its work.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cluster/assignment.h"

static kin_assignment make(void) {
    kin_assignment a;
    memset(&a, 0, sizeof a);
    a.n_rounds = 2;
    a.n_members = 3;
    for (int i = 0; i < 3; i++) {
        kin_member_windows *w = &a.windows[i];
        a.ids[i] = (kin_proto_id){{(uint8_t)(i + 1)}};
        a.memory[i] = 1u << 30;
        a.shares[i] =
            (kin_share){.n_ranks = 2, .rank = (uint8_t)(i % 2), .head_begin = 1, .head_end = 4, .ff_begin = 5, .ff_end = 9};
        w->windows.n = 2;
        for (int k = 0; k < 2; k++) {
            w->windows.at[k] = (kin_window){.layer_begin = 4 * k, .layer_end = 4 * k + 3, .n_gpu_layers = 2, .n_cpu_moe = 1};
            w->rounds[k] = k;
        }
    }
    return a;
}

// Returns the hash by which head and device notice that the work of member 1 has changed.
static uint64_t work_of(const kin_assignment *a) {
    static kin_proto_plan m;
    memset(&m, 0, sizeof m);
    kin_assignment_fill(a, 1, &m);
    return kin_proto_plan_work(&m);
}

static void the_same_work_has_the_same_hash(void **state) {
    (void)state;
    kin_assignment a = make(), b = make();
    assert_true(work_of(&a) == work_of(&b));
    b.question = 7; // the same answer to another question, and other work of other members
    b.memory[0] = b.memory[2] = 5;
    b.shares[0].head_end = b.shares[2].head_end = 5;
    b.windows[0].windows.n = b.windows[2].windows.n = 1;
    b.windows[1].windows.at[2].layer_end = 9; // behind its windows
    b.windows[1].rounds[2] = 9;
    assert_true(work_of(&a) == work_of(&b));
}

#define EXPECT_OTHER_WORK(change)                                                                                                \
    do {                                                                                                                         \
        kin_assignment a = make(), b = make();                                                                                   \
        b.change;                                                                                                                \
        if (work_of(&a) == work_of(&b)) fail_msg("%s: the same hash", #change);                                                  \
    } while (0)

static void each_part_of_the_work_changes_the_hash(void **state) {
    (void)state;
    EXPECT_OTHER_WORK(n_rounds = 3);
    EXPECT_OTHER_WORK(memory[1]++);
    EXPECT_OTHER_WORK(shares[1].n_ranks = 3);
    EXPECT_OTHER_WORK(shares[1].rank = 0);
    EXPECT_OTHER_WORK(shares[1].head_begin++);
    EXPECT_OTHER_WORK(shares[1].head_end++);
    EXPECT_OTHER_WORK(shares[1].ff_begin++);
    EXPECT_OTHER_WORK(shares[1].ff_end++);
    EXPECT_OTHER_WORK(windows[1].windows.n = 1);
    EXPECT_OTHER_WORK(windows[1].windows.at[0].layer_begin = 1);
    EXPECT_OTHER_WORK(windows[1].windows.at[0].layer_end++);
    EXPECT_OTHER_WORK(windows[1].windows.at[1].n_gpu_layers = 1);
    EXPECT_OTHER_WORK(windows[1].windows.at[1].n_cpu_moe = 0);
    EXPECT_OTHER_WORK(windows[1].rounds[0] = 1);
    EXPECT_OTHER_WORK(windows[1].rounds[1] = 0);
}

static void other_neighbours_are_the_same_work(void **state) {
    (void)state;
    static kin_proto_plan m;
    kin_assignment a = make();
    kin_assignment_fill(&a, 1, &m);
    m.next_id = m.previous_id = m.group.id[0] = (kin_proto_id){{9}};
    m.next = m.previous = m.group.endpoint[1] = (kin_proto_endpoint){.n_addresses = 1, .address = {"10.0.0.1"}, .port = 1};
    m.flags |= KIN_PROTO_PLAN_TIMELINE;
    assert_true(kin_proto_plan_work(&m) == work_of(&a));
    m.n_ctx = 1;
    assert_true(kin_proto_plan_work(&m) != work_of(&a));
}

static void the_message_has_all_of_a_members_work(void **state) {
    (void)state;
    kin_assignment a = make();
    kin_proto_plan m = {0};
    kin_assignment_fill(&a, 1, &m);
    assert_int_equal(m.memory, 1u << 30);
    assert_int_equal(m.n_rounds, 2);
    assert_int_equal(m.group.n_ranks, 2);
    assert_int_equal(m.group.rank, 1);
    assert_int_equal(m.group.head_begin, 1);
    assert_int_equal(m.group.head_end, 4);
    assert_int_equal(m.group.ff_begin, 5);
    assert_int_equal(m.group.ff_end, 9);
    assert_int_equal(m.n_windows, 2);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(m.window[k].round, k);
        assert_int_equal(m.window[k].layer_begin, 4 * k);
        assert_int_equal(m.window[k].layer_end, 4 * k + 3);
        assert_int_equal(m.window[k].n_gpu, 2);
        assert_int_equal(m.window[k].n_cpu_moe, 1);
    }
}

static void a_device_is_found_by_its_id_and_the_head_is_none(void **state) {
    (void)state;
    kin_assignment a = make();
    assert_int_equal(kin_assignment_find(&a, &a.ids[0]), -1); // the head
    assert_int_equal(kin_assignment_find(&a, &a.ids[1]), 1);
    assert_int_equal(kin_assignment_find(&a, &a.ids[2]), 2);
    assert_int_equal(kin_assignment_find(&a, &(kin_proto_id){{9}}), -1);
}

static void behind_the_last_member_comes_the_head(void **state) {
    (void)state;
    kin_assignment a = make();
    assert_int_equal(kin_assignment_behind(&a, 1, 1), 2);
    assert_int_equal(kin_assignment_behind(&a, 2, 1), 0);
    assert_int_equal(kin_assignment_behind(&a, 0, -2), 1);
}

// Device 2 computes first, then devices 3 and 1, then the head.
static void members_follow_the_ring_and_the_head_is_the_first(void **state) {
    (void)state;
    static kin_assignment a;
    static const kin_model no_model; // not needed without groups
    const kin_proto_id ids[] = {{{10}}, {{11}}, {{12}}, {{13}}};
    const int order[] = {0, 2, 3, 1}, begin[] = {5, 0, 0, 3};
    kin_plan plan = {.n_rounds = 2,
                     .n_stops = 4,
                     .stops = {{0, false}, {2, false}, {3, true}, {1, false}},
                     .shares = {{4, 0, 0}, {3, 2, 0}, {5, 0, 0}},
                     .memory = {0, 7}};
    kin_err err;
    assert_int_equal(kin_assignment_lay_out(&a, &plan, ids, &no_model, 0, &err), 0);
    assert_true(a.n_members == 4 && a.n_rounds == 2 && a.memory[3] == 7);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a.ids[i].bytes[0], 10 + order[i]);
        assert_int_equal(a.windows[i].windows.n, i == 2 ? 0 : 2); // the relay has no layers
        if (i == 2) continue;
        assert_int_equal(a.windows[i].windows.at[0].layer_begin, begin[i]);
        assert_int_equal(a.windows[i].rounds[1], 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_work_has_the_same_hash),
        cmocka_unit_test(each_part_of_the_work_changes_the_hash),
        cmocka_unit_test(other_neighbours_are_the_same_work),
        cmocka_unit_test(the_message_has_all_of_a_members_work),
        cmocka_unit_test(members_follow_the_ring_and_the_head_is_the_first),
        cmocka_unit_test(behind_the_last_member_comes_the_head),
        cmocka_unit_test(a_device_is_found_by_its_id_and_the_head_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
