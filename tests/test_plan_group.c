// Groups in plans: the time of a token with devices that share each layer, the best plan with groups, and its explanation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pure/plan/deal.h"
#include "pure/plan/group_search.h"
#include "pure/plan/timeline.h"
#include "testkit/equal_devices.h"
#include "testkit/plan_brute.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

static kin_facts f, grouped;
static kin_grouped_plan found;

// n_rounds 0: the best number
static kin_prediction ring_of_rounds(const kin_facts *facts, int n_rounds) {
    kin_plan_options o = kin_plan_options_defaults();
    o.n_rounds = n_rounds;
    kin_plan plan;
    kin_prediction p = {0};
    kin_err err;
    if (kin_plan_playoff(facts, &o, &plan, &err) != 0 || kin_timeline_predict(facts, &plan, &p, &err) != 0)
        fail_msg("%s", err.text);
    return p;
}
#define ring_of_rounds(...) FROM_TEST(ring_of_rounds(__VA_ARGS__))
#define ring_of(facts) ring_of_rounds(facts, 0)

static void search(double below_s, kin_device_set leave_out) {
    kin_plan_options o = kin_plan_options_defaults();
    kin_err err;
    o.leave_out = leave_out;
    if (kin_plan_grouped(&f, &o, below_s, &found, &err) != 0) fail_msg("%s", err.text);
}
#define search(...) FROM_TEST(search(__VA_ARGS__))

// Makes one group of these devices with the whole model. Returns its prediction; closed: the same in closed form.
static kin_prediction predict_by(kin_device_set members, kin_group_shares by, kin_grouping *g, kin_group_time *time,
                                 kin_prediction *closed) {
    static kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    kin_plan plan = {.n_rounds = 1, .n_stops = 1, .shares = {{f.model.n_layer, 0, 0}}};
    kin_prediction p = {0};
    kin_err err;
    kin_group_rates(&f, members, rates);
    g->n = 1;
    kin_group_of(&f, rates, members, by, &g->groups[0]);
    if (kin_group_time_of(&f, rates, &g->groups[0], time, &err) != 0 || kin_grouping_apply(&f, g, &grouped, &err) != 0 ||
        kin_timeline_predict(&grouped, &plan, &p, &err) != 0 || kin_timeline_closed(&grouped, &plan, closed, &err) != 0)
        fail_msg("%s", err.text);
    return p;
}
#define predict_by(...) FROM_TEST(predict_by(__VA_ARGS__))

static kin_prediction predict(kin_device_set members, kin_grouping *g, kin_group_time *time) {
    kin_prediction closed;
    return predict_by(members, KIN_SHARES_BY_SPEED, g, time, &closed);
}
#define predict(...) FROM_TEST(predict(__VA_ARGS__))

static void short_links_make_groups_and_long_ones_rings(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        kin_equal_devices(&f, n, 1e-4);
        double ring_s = ring_of(&f).tpot_s;
        search(ring_s, 0);
        assert_int_equal(found.plan.groups.n, 1);
        assert_int_equal(found.plan.groups.groups[0].n, n);
        assert_int_equal(found.plan.n_stops, 1);
        assert_true(found.is_proven && !found.is_only_tried && found.prediction.tpot_s < ring_s * 0.75);
        kin_equal_devices(&f, n, 5e-3);
        ring_s = ring_of(&f).tpot_s;
        search(ring_s, 0);
        assert_true(found.is_only_tried && found.plan.groups.n == 1 && found.prediction.tpot_s > ring_s * 1.5);
    }
}

// A group wins only while its 2 sums per layer cost less than sharing gains.
static void the_time_is_its_parts_and_grows_with_the_round_trip(void **state) {
    (void)state;
    kin_grouping g;
    kin_group_time a, b;
    kin_equal_devices(&f, 3, 1e-3);
    kin_prediction p = predict(7, &g, &a);
    assert_true(fabs(p.tpot_s - p.compute_s - p.hops_s) < 1e-9);
    assert_true(fabs(p.sums_s - 64 * (a.sum_s + a.sum_token_s)) < 1e-9);
    double output_s = 295e6 / 45e9, hop_s = 0.5e-3 + 16384 / 1.25e8;
    assert_true(fabs(p.compute_s - p.sums_s - 32 * a.layer_s - output_s) < 1e-9);
    assert_true(fabs(p.hops_s - 3 * hop_s) < 1e-9); // head, a, b, head
    assert_true(a.sum_token_s >= 2 * 16384 / 1.25e8);
    kin_equal_devices(&f, 3, 2e-3);
    kin_prediction q = predict(7, &g, &b);
    assert_true(fabs(b.sum_s - a.sum_s - 5e-4) < 1e-9);
    assert_true(fabs(q.sums_s - p.sums_s - 64 * 5e-4) < 1e-9);
    assert_true(fabs(b.layer_s - a.layer_s) < 1e-12);
}

static void a_slow_device_gets_less_or_is_left_out(void **state) {
    (void)state;
    kin_equal_devices(&f, 3, 1e-4);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        f.devices[1].cpu.token_bytes_s[q] = 15e9; // a third
        f.devices[2].cpu.token_bytes_s[q] = 1e9;  // a 45th
    }
    search(INFINITY, 0);
    const kin_group *g = &found.plan.groups.groups[0];
    assert_int_equal(found.plan.groups.n, 1);
    assert_int_equal(g->n, 2);
    assert_int_equal(g->devices[0], 1);
    assert_int_equal(g->devices[1], 0); // the head is the last
    assert_true(g->weights[1] > 2.5 * g->weights[0] && g->weights[1] < 3.5 * g->weights[0]);
    search(INFINITY, kin_device_bit(1) | kin_device_bit(2));
    assert_int_equal(found.plan.groups.n, 0);
}

// The join order does not matter, so that the slices in the devices' caches stay valid.
static void ranks_follow_the_names(void **state) {
    (void)state;
    static const char *const names[] = {"nuc", "den", "desk", "attic"};
    kin_equal_devices(&f, 4, 1e-4);
    for (int i = 0; i < 4; i++) snprintf(f.devices[i].name, sizeof f.devices[i].name, "%s", names[i]);
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.groups[0].n, 4);
    const int want[] = {3, 1, 2, 0};
    for (int rank = 0; rank < 4; rank++) assert_int_equal(found.plan.groups.groups[0].devices[rank], want[rank]);
}

// In most models some matrices of some layers have a larger type.
static void layers_of_unlike_sizes_are_shared_too(void **state) {
    (void)state;
    double bytes[32];
    kin_equal_devices(&f, 2, 1e-4);
    for (int i = 0; i < 32; i++) bytes[i] = i % 2 ? 120e6 : 128e6;
    kin_facts_set_shares(&f.model, bytes);
    search(ring_of(&f).tpot_s, 0);
    assert_true(found.plan.groups.n == 1 && !found.is_only_tried && found.plan.n_stops == 1);
    // No group if the members' memory is too small for their shares when every layer counts as a larger one.
    for (int i = 0; i < 2; i++)
        f.devices[i].memory_bytes = (i == 0 ? 295e6 : 0) + 16 * (128e6 + 4096 * 1024) * 0.999, f.devices[i].disk_bytes_s = 0;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 0);
}

static void a_tab_is_in_no_group(void **state) {
    (void)state;
    kin_equal_devices(&f, 3, 1e-4);
    f.devices[1].os = KIN_OS_BROWSER;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 1);
    assert_int_equal(kin_group_members(&found.plan.groups.groups[0]), 5);
    f.devices[2].os = KIN_OS_BROWSER;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 0);
}

// ---- slices that stream

static void link_both(int a, int b, double rtt_s) {
    f.links[a][b].rtt_s = f.links[b][a].rtt_s = rtt_s;
}

// Uses weight blocks like the engine's, and an output matrix in tiles.
static void use_blocks(int n, double rtt_s, double memory_bytes, double disk_bytes_s) {
    kin_equal_devices(&f, n, rtt_s);
    f.model.layer_blocks = 3, f.model.output_blocks = 19;
    f.model.block_bytes = 67e6;
    for (int i = 0; i < n; i++) {
        f.devices[i].memory_bytes = memory_bytes + (i == 0 ? 295e6 : 0);
        f.devices[i].disk_bytes_s = f.devices[i].disk_random_bytes_s = disk_bytes_s;
        f.devices[i].window_s = 3e-5;
    }
}

// A group of two is predicted like a single device with half of every weight, apart from the sums.
static void slices_stream_as_a_model_of_slices_would(void **state) {
    (void)state;
    for (double memory = 3e8; memory < 2e9; memory *= 1.3) {
        for (double disk = 1e8; disk < 1e10; disk *= 10) {
            kin_grouping g;
            kin_group_time t;
            kin_prediction closed, half = {0};
            kin_plan plan = {.n_rounds = 1, .n_stops = 1, .shares = {{32, 0, 0}}};
            kin_err err;
            use_blocks(2, 1e-9, memory, disk);
            f.model.output_bytes[KIN_QUANT_Q4_K] = 1e3, f.model.output_blocks = 1;
            f.devices[0].memory_bytes = memory;
            f.links[0][1].bytes_s = f.links[1][0].bytes_s = 1e12;
            kin_prediction p = predict_by(3, KIN_SHARES_BY_SPEED, &g, &t, &closed);
            assert_true(fabs(p.devices[0].streamed_bytes - p.devices[1].streamed_bytes) < 8e6);
            f.n_device = 1;
            f.model.layer_bytes[KIN_QUANT_Q4_K] /= 2, f.model.attn_bytes /= 2, f.model.block_bytes /= 2;
            f.model.weight_block_bytes /= 2, f.model.kv_bytes /= 2;
            if (kin_timeline_predict(&f, &plan, &half, &err) != 0) fail_msg("%s", err.text);
            assert_true(fabs(p.devices[0].streamed_bytes - half.devices[0].streamed_bytes) < 2);
            double error = (p.tpot_s - p.sums_s) / half.tpot_s - 1;
            if (fabs(error) > 0.02)
                fail_msg("%.0f MB, %.0f MB/s: %g s, a half %g s", memory / 1e6, disk / 1e6, p.tpot_s, half.tpot_s);
        }
    }
}

// In a group both disks read a layer at the same time; in a ring a disk reads ahead only as far as its buffers allow.
static void disks_that_read_at_once_make_a_group(void **state) {
    (void)state;
    char text[KIN_GROUP_EXPLAIN_MAX];
    use_blocks(2, 2e-3, 1e9, 3e8); // memory for half of the weights
    kin_prediction ring = ring_of(&f);
    search(ring.tpot_s, 0);
    assert_int_equal(found.plan.groups.n, 1);
    assert_int_equal(found.plan.n_stops, 1);
    assert_true(found.is_proven && found.prediction.tpot_s < ring.tpot_s);
    assert_true(found.prediction.tpot_s < 0.92 * ring_of_rounds(&f, 1).tpot_s);
    // The token takes at least the reading time of the slowest disk, and little more.
    double load_s = fmax(found.prediction.devices[0].own_load_s, found.prediction.devices[1].own_load_s);
    assert_true(load_s > 3 && found.prediction.tpot_s >= load_s && found.prediction.tpot_s < 1.15 * load_s);
    assert_true(fabs(found.prediction.devices[0].load_s - load_s) < 1e-12);
    assert_true(found.n_streamed[0] > 14 && found.n_streamed[0] < 20);
    kin_grouped_explain(&f, &found, &ring, text, sizeof text);
    assert_non_null(strstr(text, "a group is faster: b + a share 32 layers, 1"));
    assert_non_null(strstr(text, " of them from disk, 2 x 32 sums of 1."));
    assert_non_null(strstr(text, " ms of computing and "));
    assert_non_null(strstr(text, " ms of waiting for disks: "));
    // The sums cost more than computing together gains; reading together still makes the group faster.
    assert_true(kin_group_saves_s(&found.times[0]) < 0 && found.times[0].reads_s > 0);
}

// One device has a third of the other's memory: with equal shares it would stream.
static void shares_follow_memory_where_it_is_short(void **state) {
    (void)state;
    use_blocks(2, 1e-4, 3.2e9, 0);
    f.devices[1].memory_bytes = 1.1e9;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 1);
    const kin_group *g = &found.plan.groups.groups[0];
    assert_int_equal(g->devices[1], 0);
    assert_true(g->weights[1] > 2.5 * g->weights[0] && g->weights[1] < 3.5 * g->weights[0]);
    assert_int_equal(found.plan.shares[0].n_layer, 32);
    assert_int_equal(found.n_streamed[0], 0);
    for (int i = 0; i < 2; i++) assert_true(found.prediction.devices[i].memory_bytes <= f.devices[i].memory_bytes);
}

// A pair with memory in the ratio 3:1, and a head for the remaining layers. With shares computed for the whole model one member
// of the pair would stream.
static void shares_by_memory_keep_the_most_layers_inside_of_a_ring(void **state) {
    (void)state;
    use_blocks(3, 5e-3, 8.2 * 129e6, 1e8);
    link_both(1, 2, 1e-4);
    f.devices[1].memory_bytes = 24.2 * 129e6 * 0.75;
    f.devices[2].memory_bytes = 24.2 * 129e6 * 0.25;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 1);
    assert_int_equal(kin_group_members(&found.plan.groups.groups[0]), 6);
    assert_true(found.plan.shares[2].n_layer == 24 && found.plan.shares[0].n_layer == 8);
    for (int i = 0; i < 3; i++) assert_true(found.prediction.devices[i].streamed_bytes == 0);
}

static void shares_follow_disks_where_they_are_the_limit(void **state) {
    (void)state;
    kin_group_time t;
    kin_grouping g;
    kin_prediction closed;
    use_blocks(2, 1e-4, 3e8, 1e8);
    f.devices[1].disk_bytes_s = 3e8;
    double equal_s = predict_by(3, KIN_SHARES_BY_SPEED, &g, &t, &closed).tpot_s;
    assert_true(closed.devices[0].own_load_s > 2 * closed.devices[1].own_load_s);
    assert_true(closed.devices[0].load_s == closed.devices[0].own_load_s && closed.devices[1].load_s == 0);
    f.devices[1].disk_bytes_s = 3e7; // now the other member's disk is the slowest
    predict_by(3, KIN_SHARES_BY_SPEED, &g, &t, &closed);
    assert_true(closed.devices[1].own_load_s > 2 * closed.devices[0].own_load_s);
    assert_true(closed.devices[0].load_s == closed.devices[1].own_load_s && closed.slowest_disk == 1);
    f.devices[1].disk_bytes_s = 3e8;
    search(INFINITY, 0);
    const kin_group *best = &found.plan.groups.groups[0];
    assert_int_equal(found.plan.groups.n, 1);
    assert_true(best->weights[0] > 2 * best->weights[1]); // b's disk is the faster one
    assert_true(found.prediction.tpot_s < 0.65 * equal_s);
}

// Slices stream only from the prepacked cache.
static void a_device_without_prepacked_weights_streams_no_slices(void **state) {
    (void)state;
    use_blocks(2, 1e-4, 1e9, 3e8);
    f.devices[1].no_slices = true;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 1);
    assert_true(found.prediction.devices[1].streamed_bytes == 0 && found.prediction.devices[0].streamed_bytes > 1e9);
    f.devices[0].no_slices = true;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 0);
    f.devices[0].memory_bytes = f.devices[1].memory_bytes = 4e9;
    search(INFINITY, 0);
    assert_int_equal(found.plan.groups.n, 1);
}

// A group reads ahead while the other members of the ring compute, like a single device.
static void a_group_that_streams_may_be_a_part_of_a_ring(void **state) {
    (void)state;
    use_blocks(3, 5e-3, 1.1e9, 3e8);
    link_both(1, 2, 1e-4);
    double ring_s = ring_of(&f).tpot_s;
    search(ring_s, 0);
    assert_true(found.plan.groups.n == 1 && found.prediction.tpot_s < ring_s);
    assert_true(found.prediction.tpot_s < 0.9 * ring_of_rounds(&f, 1).tpot_s);
    assert_true(found.n_streamed[0] > 0);
    int last = kin_group_last(&found.plan.groups.groups[0]);
    double of_group_s = found.prediction.devices[last].load_s;
    for (int i = 0; i < found.plan.groups.groups[0].n; i++)
        assert_true(found.prediction.devices[found.plan.groups.groups[0].devices[i]].own_load_s <= of_group_s);
}

static bool can_have_all(kin_device_set members, kin_group_shares by) {
    static kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    kin_group g;
    kin_group_time t;
    kin_group_rates(&f, members, rates);
    kin_group_of(&f, rates, members, by, &g);
    return kin_group_time_of(&f, rates, &g, &t, NULL) == 0 && t.layers_max >= f.model.n_layer;
}

static void the_closed_form_of_groups_is_close_to_their_timeline(void **state) {
    (void)state;
    enum { N = 500 };
    kin_rng rng;
    int n_streaming = 0;
    double sum = 0, worst = 0;
    kin_rng_seed(&rng, 7);
    for (int n = 0; n < N;) {
        kin_grouping g;
        kin_prediction closed;
        int n_device = 2 + kin_random_below(&rng, 3);
        kin_group_shares by = (kin_group_shares)kin_random_below(&rng, KIN_N_SHARES);
        use_blocks(n_device, exp(kin_rng_unit(&rng) * 4) * 1e-4, 1e8 + kin_rng_unit(&rng) * 3e9, 1e8);
        for (int i = 0; i < n_device; i++) {
            f.devices[i].disk_bytes_s = 1e8 * exp(kin_rng_unit(&rng) * 4);
            f.devices[i].memory_bytes *= 0.5 + kin_rng_unit(&rng);
            for (int q = 0; q < KIN_N_QUANT; q++) f.devices[i].cpu.token_bytes_s[q] *= exp(-2 * kin_rng_unit(&rng));
        }
        if (!can_have_all(kin_device_bit(n_device) - 1, by)) continue;
        kin_group_time t;
        kin_prediction p = predict_by(kin_device_bit(n_device) - 1, by, &g, &t, &closed);
        n++;
        double error = fabs(closed.tpot_s / p.tpot_s - 1);
        bool streams = closed.devices[0].load_s > 0;
        if (!streams && error > 1e-9) fail_msg("case %d: %g s, played %g s, and nothing is streamed", n, closed.tpot_s, p.tpot_s);
        n_streaming += streams;
        sum += error;
        worst = fmax(worst, error);
    }
    print_message("%d groups, %d stream: error %.2f %% on average, %.2f %% of those that stream, largest %.1f %%\n", N,
                  n_streaming, 100 * sum / N, 100 * sum / n_streaming, 100 * worst);
    assert_true(n_streaming > N / 2 && sum / n_streaming < 0.03);
}

// ---- groups inside of rings

// Two wired devices in one room, the head on Wi-Fi in another; no device has memory for more than half of the model.
static void a_pair_far_from_the_head_is_a_group_in_its_ring(void **state) {
    (void)state;
    kin_err err;
    kin_equal_devices(&f, 3, 5e-3);
    link_both(1, 2, 1e-4);
    for (int i = 0; i < 3; i++) f.devices[i].memory_bytes = 2.6e9, f.devices[i].disk_bytes_s = 0;
    double ring_s = ring_of(&f).tpot_s;
    search(ring_s, 0);
    assert_int_equal(found.plan.groups.n, 1);
    assert_int_equal(kin_group_members(&found.plan.groups.groups[0]), 6);
    int last = kin_group_last(&found.plan.groups.groups[0]), n_layer = found.plan.shares[last].n_layer;
    assert_true(n_layer > 20 && n_layer <= 32 && found.plan.shares[0].n_layer == 32 - n_layer);
    assert_int_equal(found.plan.n_stops, 2);
    assert_true(found.is_proven && found.prediction.tpot_s < ring_s * 0.9);
    // The hops of a round: to the first of the pair, to the second, back to the head.
    assert_int_equal(kin_grouping_apply(&f, &found.plan.groups, &grouped, &err), 0);
    double bytes_s = 16384 / 1.25e8;
    assert_true(fabs(found.prediction.hops_s - (2.5e-3 + 0.5e-4 + 2.5e-3 + 3 * bytes_s)) < 1e-9);
    assert_int_equal(kin_plan_check(&found.plan, &grouped, &err), 0);
}

static void two_pairs_are_a_ring_of_two_groups(void **state) {
    (void)state;
    kin_equal_devices(&f, 4, 5e-3);
    link_both(0, 1, 1e-4);
    link_both(2, 3, 1e-4);
    for (int i = 0; i < 4; i++) f.devices[i].memory_bytes = 1.6e9, f.devices[i].disk_bytes_s = 0;
    search(ring_of(&f).tpot_s, 0);
    assert_int_equal(found.plan.groups.n, 2);
    assert_int_equal(kin_group_members(&found.plan.groups.groups[0]) | kin_group_members(&found.plan.groups.groups[1]), 15);
    assert_int_equal(found.plan.n_stops, 2);
    // The group's layers fit its members' memory.
    kin_device_set heads = kin_group_members(&found.plan.groups.groups[0]) & 1 ? 0 : 1;
    const kin_group *far = &found.plan.groups.groups[heads ? 0 : 1];
    double layers = found.plan.shares[kin_group_last(far)].n_layer;
    assert_true(layers * (124e6 + 4096 * 1024) / 2 <= 1.6e9 && layers >= 10);
}

// Tries all sets of disjoint groups with all kinds of shares. Lowers *best_s to the best time.
static void best_of_all_groupings(kin_grouping *g, int from, kin_device_set taken, bool only_gains, double *best_s) {
    static kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    static kin_facts with;
    kin_err err;
    int n = f.n_device;
    kin_device_set force_in = 0;
    for (int i = 0; i < g->n; i++) force_in |= kin_device_bit(kin_group_last(&g->groups[i]));
    if (kin_grouping_apply(&f, g, &with, &err) == 0) *best_s = fmin(*best_s, kin_plan_brute(&with, force_in));
    kin_group_rates(&f, kin_device_bit(n) - 1, rates);
    for (int i = from; i < KIN_N_SHARES << n; i++) {
        kin_group_time t;
        kin_group *next = &g->groups[g->n];
        kin_device_set members = (kin_device_set)i / KIN_N_SHARES;
        int size = __builtin_popcount(members);
        if (members & taken || size < 2 || size > KIN_GROUP_SEARCHED) continue;
        kin_group_of(&f, rates, members, KIN_SHARES_BY_SPEED, next);
        bool is_short = kin_group_time_of(&f, rates, next, &t, &err) != 0 || kin_group_is_short(&f, &t);
        if (!is_short && i % KIN_N_SHARES != KIN_SHARES_BY_SPEED) continue;
        kin_group_of(&f, rates, members, (kin_group_shares)(i % KIN_N_SHARES), next);
        if (kin_group_time_of(&f, rates, next, &t, &err) != 0 || (only_gains && !is_short && kin_group_saves_s(&t) <= 0))
            continue;
        g->n++;
        best_of_all_groupings(g, i + 1, taken | members, only_gains, best_s);
        g->n--;
    }
}

// Makes random devices without GPUs, some with short links, with little memory, so that rings of groups are sometimes the best.
static void random_home(kin_rng *rng) {
    kin_equal_devices(&f, 2 + kin_random_below(rng, KIN_BRUTE_DEVICES - 1), 1e-4);
    f.model.n_layer = 3 + kin_random_below(rng, 3);
    f.model.output_blocks = 19;
    double less = kin_random_below(rng, 2) ? 1 : 0.3;
    for (int i = 0; i < f.n_device; i++) {
        double speed = exp((kin_rng_unit(rng) - 0.5) * 2);
        for (int q = 0; q < KIN_N_QUANT; q++) f.devices[i].cpu.token_bytes_s[q] *= speed;
        f.devices[i].window_s = 5e-5;
        f.devices[i].memory_bytes = less * (1 + f.model.n_layer * kin_rng_unit(rng)) * 1.4e8 + (i == 0 ? 295e6 : 0);
        if (kin_random_below(rng, 2)) f.devices[i].disk_bytes_s = 0;
        for (int k = 0; k < i; k++) link_both(i, k, kin_random_below(rng, 2) ? 1e-4 : 2e-3);
        if (i > 1 && kin_random_below(rng, 8) == 0) f.links[i][1].bytes_s = 0;
    }
    kin_facts_set_shares(&f.model, NULL);
}

static bool is_by_speed(const kin_group *g) {
    static kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    kin_group by_speed;
    kin_group_rates(&f, kin_group_members(g), rates);
    kin_group_of(&f, rates, kin_group_members(g), KIN_SHARES_BY_SPEED, &by_speed);
    return kin_group_is_same(&f, g, &by_speed);
}

static void the_best_grouping_is_that_of_brute_force(void **state) {
    (void)state;
    enum { N = 400 };
    kin_rng rng;
    int n_none = 0, n_inside = 0, n_several = 0, n_rounds = 0, n_without_gain = 0, n_streaming = 0, n_uneven = 0;
    kin_rng_seed(&rng, 23);
    for (int round = 0; round < N; round++) {
        kin_grouping g = {0};
        double best_s = INFINITY, any_s = INFINITY;
        random_home(&rng);
        double ring_s = kin_plan_brute(&f, 0);
        best_of_all_groupings(&g, 0, 0, true, &best_s);
        best_of_all_groupings(&g, 0, 0, false, &any_s);
        search(ring_s, 0);
        double s = found.plan.groups.n > 0 && !found.is_only_tried ? found.plan.bound_s : ring_s;
        if (!isfinite(best_s) && !isfinite(s)) continue;
        if (fabs(s - best_s) > 1e-9 * best_s)
            fail_msg("round %d: searched %.9g ms, brute force %.9g ms, a ring %.9g ms", round, s * 1e3, best_s * 1e3,
                     ring_s * 1e3);
        assert_true(found.is_proven || found.plan.groups.n == 0 || found.is_only_tried);
        n_none += s == ring_s;
        n_inside += s < ring_s && found.plan.n_stops > 1;
        n_several += s < ring_s && found.plan.groups.n > 1;
        n_rounds += s < ring_s && found.plan.n_rounds > 1;
        for (int i = 0; i < found.plan.groups.n && s < ring_s; i++) {
            n_streaming += found.n_streamed[i] > 0;
            n_uneven += !is_by_speed(&found.plan.groups.groups[i]);
        }
        n_without_gain += any_s < best_s * (1 - 1e-9);
    }
    print_message("%d homes: %d best without groups, %d with groups inside of a ring, %d with several, %d with several rounds; "
                  "%d would be faster with a group that saves nothing; %d groups stream, %d share otherwise than by speed\n",
                  N, n_none, n_inside, n_several, n_rounds, n_without_gain, n_streaming, n_uneven);
    assert_true(n_none > N / 20 && n_inside > N / 20 && n_several > 5 && n_streaming > N / 20 && n_uneven > N / 20);
    assert_true(n_without_gain < N / 50);
}

static void many_devices_are_planned_in_time(void **state) {
    (void)state;
    kin_equal_devices(&f, KIN_FACTS_MAX_DEVICES, 1e-4);
    f.model.n_layer = 80;
    kin_facts_set_shares(&f.model, NULL);
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) f.devices[i].memory_bytes = 8e8 + 1e7 * i;
    double ring_s = ring_of(&f).tpot_s;
    kin_time begun = kin_clock_now();
    search(ring_s, 0);
    double ms = kin_clock_ms(begun, kin_clock_now());
    print_message("%d groups, %.0f ms a token, a ring %.0f ms; found in %.0f ms\n", found.plan.groups.n,
                  found.prediction.tpot_s * 1e3, ring_s * 1e3, ms);
    assert_true(found.plan.groups.n >= 3 && found.prediction.tpot_s < ring_s * 0.8);
    assert_true(ms < 5000);
}

// ---- explanations

static void what_cannot_be_is_said(void **state) {
    (void)state;
    char text[KIN_GROUP_EXPLAIN_MAX];
    kin_equal_devices(&f, 2, 1e-4);
    kin_prediction ring = ring_of(&f);
    search(ring.tpot_s, 0);
    kin_grouped_explain(&f, &found, &ring, text, sizeof text);
    assert_non_null(strstr(text, "a group is faster: b + a share 32 layers, 2 x 32 sums of 0."));
    assert_non_null(strstr(text, "tensor parallelism gains"));
    f.model.share_heads = 1;
    search(ring.tpot_s, 0);
    kin_grouped_explain(&f, &found, &ring, text, sizeof text);
    assert_string_equal(text, "no group: the model's layers do not divide into that many shares");
    kin_equal_devices(&f, 2, 5e-3);
    ring = ring_of(&f);
    search(ring.tpot_s, 0);
    kin_grouped_explain(&f, &found, &ring, text, sizeof text);
    assert_non_null(strstr(text, "no group: b + a share 32 layers, 2 x 32 sums of 2."));
    kin_equal_devices(&f, 2, 1e-4);
    f.devices[1].memory_bytes = 4e6;
    f.devices[1].disk_bytes_s = 0;
    search(ring.tpot_s, 0);
    kin_grouped_explain(&f, &found, &ring, text, sizeof text);
    assert_non_null(strstr(text, "does not fit"));
    kin_equal_devices(&f, 3, 1e-4);
    f.links[1][2].bytes_s = 0;
    search(INFINITY, 0);
    assert_true(found.plan.groups.n == 1 && found.plan.groups.groups[0].n == 2); // 1 and 2 have no link
}

static void pieces_are_dealt_by_weight(void **state) {
    (void)state;
    int counts[4];
    kin_deal(8, (double[]){1, 1}, 2, counts);
    assert_true(counts[0] == 4 && counts[1] == 4);
    kin_deal(8, (double[]){3, 1, 1e-9}, 3, counts);
    assert_true(counts[0] == 5 && counts[1] == 2 && counts[2] == 1);
    kin_deal(3, (double[]){1e9, 1, 1}, 3, counts);
    assert_true(counts[0] == 1 && counts[1] == 1 && counts[2] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_links_make_groups_and_long_ones_rings),
        cmocka_unit_test(the_time_is_its_parts_and_grows_with_the_round_trip),
        cmocka_unit_test(a_slow_device_gets_less_or_is_left_out),
        cmocka_unit_test(ranks_follow_the_names),
        cmocka_unit_test(layers_of_unlike_sizes_are_shared_too),
        cmocka_unit_test(a_tab_is_in_no_group),
        cmocka_unit_test(slices_stream_as_a_model_of_slices_would),
        cmocka_unit_test(disks_that_read_at_once_make_a_group),
        cmocka_unit_test(shares_follow_memory_where_it_is_short),
        cmocka_unit_test(shares_by_memory_keep_the_most_layers_inside_of_a_ring),
        cmocka_unit_test(shares_follow_disks_where_they_are_the_limit),
        cmocka_unit_test(a_device_without_prepacked_weights_streams_no_slices),
        cmocka_unit_test(a_group_that_streams_may_be_a_part_of_a_ring),
        cmocka_unit_test(the_closed_form_of_groups_is_close_to_their_timeline),
        cmocka_unit_test(a_pair_far_from_the_head_is_a_group_in_its_ring),
        cmocka_unit_test(two_pairs_are_a_ring_of_two_groups),
        cmocka_unit_test(the_best_grouping_is_that_of_brute_force),
        cmocka_unit_test(many_devices_are_planned_in_time),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(pieces_are_dealt_by_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
