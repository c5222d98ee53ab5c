// The cost of losing a device (pure/plan/loss.h): each term of the formula, with round numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pure/plan/device_time.h"
#include "pure/plan/loss_group.h"
#include "pure/plan/prompt.h"
#include "tests/place.h"

enum { N_LAYER = 8, HEAD = 0, FIRST = 1, SECOND = 2, N_CACHED = 1030 };

// A head and two devices; links of 1 MB/s and 10 ms, disks of 4 MB/s, layers of 1 MB.
static kin_facts three(void) {
    kin_facts f = {.n_device = 3};
    for (int i = 0; i < f.n_device; i++) {
        kin_device_facts *d = &f.devices[i];
        d->name[0] = (char)('a' + i);
        d->memory_bytes = 1e9;
        d->disk_bytes_s = 4e6;
        d->cpu.token_bytes_s[KIN_QUANT_Q8_0] = d->cpu.token_bytes_s[KIN_QUANT_OTHER] = 1e8;
        d->cpu.prompt_flop_s[KIN_QUANT_Q8_0] = d->cpu.prompt_flop_s[KIN_QUANT_OTHER] = 1e9;
        d->cpu.read_bytes_s = 1e9;
        for (int k = 0; k < f.n_device; k++) f.links[i][k] = (kin_link_facts){0.01, 1e6};
    }
    f.model = (kin_model_facts){.n_layer = N_LAYER,
                                .hidden_bytes = 4096,
                                .block_bytes = 1e5,
                                .weight_block_bytes = 1e5,
                                .input_bytes = 1e6,
                                .layer_ops = 10,
                                .output_ops = 1,
                                .layer_blocks = 4,
                                .output_blocks = 1,
                                .n_vocab = 1000,
                                .kv_bytes = 1000};
    f.model.layer_bytes[KIN_QUANT_Q8_0] = f.model.output_bytes[KIN_QUANT_Q8_0] = 1e6;
    f.model.layer_flops[KIN_QUANT_Q8_0] = f.model.output_flops[KIN_QUANT_Q8_0] = 2e6;
    kin_facts_set_shares(&f.model, NULL);
    f.work = (kin_work_facts){.n_ctx = 4096, .n_cached = N_CACHED, .n_prompt = 16, .n_batch = 512};
    return f;
}

// A plan whose layers go in order to the first device, the second device and the head, which computes last in a round.
static kin_plan plan_of(int n_head, int n_first, int n_second) {
    kin_plan p = {.n_rounds = 1, .n_stops = 1};
    p.shares[HEAD].n_layer = n_head;
    p.shares[FIRST].n_layer = n_first;
    p.shares[SECOND].n_layer = n_second;
    for (int d = FIRST; d <= SECOND; d++) {
        if (p.shares[d].n_layer > 0) p.stops[p.n_stops++].device = d;
    }
    return p;
}

static kin_loss lose(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, int device) {
    kin_loss loss;
    kin_err err;
    if (kin_loss_predict(facts, plan, without, device, &loss, &err) != 0) fail_msg("%s", err.text);
    return loss;
}
#define lose(...) FROM_TEST(lose(__VA_ARGS__))

static double pass(const kin_facts *facts, const kin_plan *plan, int n, int n_cached) {
    kin_prediction p;
    kin_err err;
    assert_int_equal(kin_latency_pass(facts, plan, n, n_cached, 1, &p, &err), 0);
    return p.tpot_s;
}
#define pass(...) FROM_TEST(pass(__VA_ARGS__))

static void near(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b)) fail_msg("%.12g is not %.12g", a, b);
}
#define near(...) FROM_TEST(near(__VA_ARGS__))

static double reading(int n_pages, int n_layer) {
    return n_layer * n_pages * 64 * 1000.0 / KIN_LOSS_READ_BYTES_S;
}

// 16 pages and 6 tokens after them. Pages are requested 2, 4, 8 and 2 at a time; each request takes two hops.
static void the_replica_reads_its_own_disk_and_the_others_what_moved(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5); // 0-2 | 3-5 | 6-7 -> 0-4 | 5-7
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_PAGES);
    assert_int_equal(l.replica, SECOND);
    assert_int_equal(l.n_computed, N_CACHED % 64);
    // The second device has copies of layers 0 to 2; the head fetches layer 5 from it.
    double requests = 4, hops = 0.01, moved = 16 * 64 * 1000.0 / 1e6 + requests * 0.01;
    near(l.pages_s, requests * hops + moved + reading(16, 5) + pass(&f, &without, 7, 1024));
    near(l.load_s, 3e6 / 4e6);
    near(l.fetch_s, 3e6 / 1e6);
    near(l.pause_s, KIN_LOSS_SWITCH_S + l.load_s + l.pages_s);
}

static void of_the_last_device_the_head_has_copies(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(2, 6, 0);
    kin_loss l = lose(&f, &plan, &without, SECOND);
    assert_int_equal(l.replica, HEAD);
    near(l.pages_s, 4 * 0.01 + 3 * 16 * 64 * 1000.0 / 1e6 + 4 * 0.01 + reading(16, 6) + pass(&f, &without, 7, 1024));
}

static void all_is_computed_where_no_device_has_pages(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    f.devices[SECOND].os = KIN_OS_BROWSER;
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_COMPUTED);
    assert_int_equal(l.n_computed, N_CACHED);
    assert_true(l.pages_s == 0);
    double ttft_s;
    kin_err err;
    f.work.n_prompt = N_CACHED + 1;
    assert_int_equal(kin_prompt_predict(&f, &without, &ttft_s, &err), 0);
    near(l.compute_s, ttft_s);
    near(l.pause_s, KIN_LOSS_SWITCH_S + l.load_s + ttft_s);
}

// The lost device is a browser, of which no pages were kept. The second device takes over its layers 0 to 2; the head has their
// input.
static void the_lost_layers_alone_are_computed_where_the_others_have_pages(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    f.devices[FIRST].os = KIN_OS_BROWSER;
    for (int i = 0; i < f.n_device; i++) {
        for (int k = 0; k < f.n_device; k++) f.links[i][k].bytes_s = 1e8;
    }
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_LAYERS);
    assert_int_equal(l.n_computed, N_CACHED % 64);
    kin_device_rates rates;
    kin_load lost = kin_load_of(3, 0, 0);
    kin_device_rates_init(&rates, &f, SECOND, 512, 512, 0);
    double computing = 2 * kin_device_time_of(&rates, &lost).compute_s; // 1024 tokens in batches of 512
    double requests = 4, hops = 0.01, moved = 16 * 64 * 1000.0 / 1e8 + requests * 0.01, hidden = 16 * 64 * 4096.0 / 1e8;
    near(l.layers_s, (requests + 1) * hops + moved + reading(16, 2) + hidden + computing + pass(&f, &without, 7, 1024));
    near(l.pause_s, KIN_LOSS_SWITCH_S + l.load_s + l.layers_s);
    assert_true(l.layers_s < l.compute_s);
}

// Loading two pages first shows that pages take longer than computing their tokens.
static void all_else_is_computed_where_pages_are_slow(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    f.model.kv_bytes = 50000;
    for (int i = 0; i < f.n_device; i++) f.devices[i].cpu.read_bytes_s = 1e12;
    f.work.n_ctx = N_CACHED + 1;
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_COMPUTED);
    assert_int_equal(l.n_computed, N_CACHED - 2 * 64);
    near(l.pause_s, KIN_LOSS_SWITCH_S + l.load_s + 0.01 + 2 * 64 * 50000.0 / 1e6 + 0.01 + 50 * reading(2, 5) + l.compute_s);
    assert_true(l.pages_s > l.compute_s);
}

// A checkpoint is at each multiple of 512, and near the end of the prompt, before a reply of 256 tokens.
static void behind_the_last_checkpoint_all_layers_are_computed(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    double tail_s, requests = 4, hops = 0.01;
    kin_err err;
    f.model.checkpoint_gap = 512;
    f.model.checkpoint_bytes = N_LAYER * 1e5;
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.n_computed, N_CACHED - 1024); // 1030 is near 1024, a multiple of the gap
    f.work.n_cached = 1000;
    l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_PAGES);
    assert_int_equal(l.n_computed, 1000 - 11 * 64);
    assert_int_equal(kin_prompt_predict_behind(&f, &without, 1000 - 11 * 64 + 1, 11 * 64, &tail_s, &err), 0);
    requests = 3; // 2, 4 and 5 pages
    double states = 1e5 / 1e6 + 5 * 1e5 / KIN_LOSS_READ_BYTES_S;
    near(l.pages_s, requests * hops + 11 * 64 * 1000.0 / 1e6 + requests * 0.01 + reading(11, 5) + states + tail_s);
    f.devices[FIRST].os = KIN_OS_BROWSER; // the lost layers alone cannot be computed: no device logs hidden states
    assert_int_equal(lose(&f, &plan, &without, FIRST).recovery, KIN_LOSS_COMPUTED);
}

// The 60 tokens after the pages are computed in chunks, which both devices process at the same time.
static void the_tail_is_computed_in_chunks(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    double tail_s;
    kin_err err;
    f.work.n_cached = 1024;
    double pages_s = lose(&f, &plan, &without, FIRST).pages_s - pass(&f, &without, 1, 1024);
    f.work.n_cached = 1024 + 60;
    assert_int_equal(kin_prompt_predict_behind(&f, &without, 61, 1024, &tail_s, &err), 0);
    near(lose(&f, &plan, &without, FIRST).pages_s, pages_s + tail_s);
    assert_true(tail_s < 0.9 * pass(&f, &without, 61, 1024));
}

static void a_short_text_has_no_page(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    f.work.n_cached = 63;
    kin_loss l = lose(&f, &plan, &without, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_COMPUTED);
    assert_int_equal(l.n_computed, 63);
}

static void layers_that_come_to_a_gpu_are_computed(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(3, 0, 5);
    f.devices[HEAD].has_gpu = true;
    f.devices[HEAD].gpu = f.devices[HEAD].cpu;
    f.devices[HEAD].gpu_memory_bytes = f.devices[HEAD].gpu_copy_bytes_s = 1e9;
    without.shares[HEAD].n_layer_gpu = 1;
    assert_int_equal(lose(&f, &plan, &without, FIRST).recovery, KIN_LOSS_COMPUTED);
}

// All downloads together are limited by the head's own link.
static void what_is_fetched_shares_the_heads_link(void **state) {
    (void)state;
    kin_facts f = three();
    f.links[HEAD][SECOND].bytes_s = 2e6;
    kin_plan without = plan_of(2, 3, 3);
    kin_facts four = f;
    four.n_device = 4;
    four.devices[3] = f.devices[FIRST];
    for (int i = 0; i < 4; i++) four.links[i][3] = four.links[3][i] = (kin_link_facts){0.01, 1e6};
    kin_plan lost = plan_of(7, 0, 0);
    lost.n_stops = 2, lost.stops[1].device = 3, lost.shares[3].n_layer = 1;
    kin_loss l = lose(&four, &lost, &without, 3);
    near(l.fetch_s, 3); // 3 MB for the first device at 1 MB/s; all 6 MB at the head's 2 MB/s take as long
    four.links[HEAD][FIRST].bytes_s = 2e6;
    near(lose(&four, &lost, &without, 3).fetch_s, 3); // 1.5 s each alone, but both share the head's link
}

static void a_plan_that_still_has_the_device_is_refused(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3);
    kin_loss l;
    kin_err err;
    assert_int_equal(kin_loss_predict(&f, &plan, &plan, FIRST, &l, &err), KIN_FAIL);
    assert_string_equal(err.text, "the plan without 'b' assigns layers to it");
}

static void what_a_disk_of_no_known_rate_takes_is_not_known(void **state) {
    (void)state;
    kin_facts f = three();
    kin_plan plan = plan_of(2, 3, 3), without = plan_of(4, 0, 4);
    kin_loss l;
    kin_err err;
    f.devices[HEAD].disk_bytes_s = 0;
    assert_int_equal(kin_loss_predict(&f, &plan, &without, FIRST, &l, &err), KIN_FAIL);
    assert_string_equal(err.text, "the rate of a disk is unknown");
}

// ---- groups

static kin_loss lose_grouped(const kin_facts *f, const kin_plan *before, const kin_plan *after, int device) {
    kin_loss loss;
    kin_err err;
    if (kin_loss_predict_grouped(f, before, after, device, &loss, &err) != 0) fail_msg("%s", err.text);
    return loss;
}
#define lose_grouped(...) FROM_TEST(lose_grouped(__VA_ARGS__))

// The first and the second device share six of the eight layers.
static void of_a_group_all_is_computed_and_whole_layers_are_read(void **state) {
    (void)state;
    kin_facts f = three();
    const kin_plan plan = plan_of(2, 0, 6);
    kin_plan shared = plan;
    shared.groups = (kin_grouping){1, {{2, {FIRST, SECOND}, {1, 1}}}};
    f.model.share_heads = f.model.share_ff = 2;
    kin_loss l = lose_grouped(&f, &shared, &plan, FIRST);
    assert_int_equal(l.recovery, KIN_LOSS_COMPUTED);
    assert_int_equal(l.n_computed, N_CACHED);
    assert_true(l.pages_s == 0 && l.layers_s == 0);
    near(l.load_s, 6e6 / 4e6);
    near(l.fetch_s, 3e6 / 1e6); // the device already had half of their bytes
    near(l.compute_s, lose(&f, &plan, &plan, FIRST).compute_s);
    near(l.pause_s, KIN_LOSS_SWITCH_S + l.load_s + l.compute_s);
}

// A single device is lost, and another one takes over its layers.
static void groups_that_stay_have_their_pages(void **state) {
    (void)state;
    enum { THIRD = 3 };
    static kin_facts f, with;
    const kin_grouping pair = {1, {{2, {FIRST, HEAD}, {1, 1}}}}, uneven = {1, {{2, {FIRST, HEAD}, {3, 1}}}};
    kin_plan plan = plan_of(4, 0, 4), without = {.n_rounds = 1, .n_stops = 2, .stops = {{.device = HEAD}, {.device = THIRD}}};
    kin_err err;
    f = three();
    f.n_device = 4;
    f.devices[THIRD] = f.devices[SECOND];
    f.devices[THIRD].name[0] = 'd';
    for (int i = 0; i < 4; i++) f.links[i][THIRD] = f.links[THIRD][i] = (kin_link_facts){0.01, 1e6};
    f.model.share_heads = f.model.share_ff = 4;
    without.shares[HEAD].n_layer = without.shares[THIRD].n_layer = 4;
    plan.groups = without.groups = pair;
    kin_loss l = lose_grouped(&f, &plan, &without, SECOND);
    assert_int_equal(l.recovery, KIN_LOSS_PAGES);
    assert_int_equal(l.replica, HEAD);
    assert_int_equal(kin_grouping_apply(&f, &pair, &with, &err), 0);
    near(l.pause_s, lose(&with, &plan, &without, SECOND).pause_s);
    near(l.load_s, 4e6 / 4e6);
    plan.groups = uneven;
    l = lose_grouped(&f, &plan, &without, SECOND);
    plan.groups = pair;
    assert_int_equal(l.recovery, KIN_LOSS_COMPUTED); // the shares differ
    f.devices[SECOND].os = KIN_OS_BROWSER;           // no device has pages of its layers, and a group logs no hidden states
    l = lose_grouped(&f, &plan, &without, SECOND);
    assert_true(l.recovery == KIN_LOSS_COMPUTED && l.layers_s == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_replica_reads_its_own_disk_and_the_others_what_moved),
        cmocka_unit_test(of_the_last_device_the_head_has_copies),
        cmocka_unit_test(all_is_computed_where_no_device_has_pages),
        cmocka_unit_test(the_lost_layers_alone_are_computed_where_the_others_have_pages),
        cmocka_unit_test(all_else_is_computed_where_pages_are_slow),
        cmocka_unit_test(behind_the_last_checkpoint_all_layers_are_computed),
        cmocka_unit_test(the_tail_is_computed_in_chunks),
        cmocka_unit_test(a_short_text_has_no_page),
        cmocka_unit_test(layers_that_come_to_a_gpu_are_computed),
        cmocka_unit_test(what_is_fetched_shares_the_heads_link),
        cmocka_unit_test(a_plan_that_still_has_the_device_is_refused),
        cmocka_unit_test(what_a_disk_of_no_known_rate_takes_is_not_known),
        cmocka_unit_test(of_a_group_all_is_computed_and_whole_layers_are_read),
        cmocka_unit_test(groups_that_stay_have_their_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
