// Facts: a device with impossible figures is refused with a reason, and the others are still planned. Measurements correct facts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "pure/plan/correction.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"

enum { N_ODD = 3000 };

typedef void spoil_fn(kin_device_facts *d);

static void no_cpu_rate(kin_device_facts *d) {
    memset(d->cpu.token_bytes_s, 0, sizeof d->cpu.token_bytes_s);
}
static void rate_is_not_a_number(kin_device_facts *d) {
    d->cpu.token_bytes_s[KIN_QUANT_Q4_K] = NAN;
}
static void rate_is_infinite(kin_device_facts *d) {
    d->cpu.token_bytes_s[KIN_QUANT_Q4_K] = INFINITY;
}
static void rate_is_negative(kin_device_facts *d) {
    d->cpu.prompt_flop_s[KIN_QUANT_Q6_K] = -2;
}
static void memory_is_negative(kin_device_facts *d) {
    d->memory_bytes = -4e9;
}
static void memory_is_zero(kin_device_facts *d) {
    d->memory_bytes = 0;
}
static void memory_is_a_petabyte(kin_device_facts *d) {
    d->memory_bytes = 1e15;
}
static void gpu_memory_is_a_petabyte(kin_device_facts *d) {
    d->has_gpu = true;
    d->gpu = d->cpu;
    d->gpu_memory_bytes = 1e15;
}
static void gpu_without_rates(kin_device_facts *d) {
    d->has_gpu = true;
    memset(&d->gpu, 0, sizeof d->gpu);
}
static void disk_is_negative(kin_device_facts *d) {
    d->disk_bytes_s = -1;
}
static void disk_is_not_a_number(kin_device_facts *d) {
    d->disk_random_bytes_s = NAN;
}
static void window_takes_an_hour(kin_device_facts *d) {
    d->window_s = 3600;
}
static void memory_rate_is_zero(kin_device_facts *d) {
    d->cpu.read_bytes_s = 0;
}

static void batches_take_less_than_nothing(kin_device_facts *d) {
    d->cpu.batch_factor[KIN_FACTS_BATCHES - 1][KIN_QUANT_Q4_K] = -0.5;
}
static void a_cache_takes_less_than_nothing(kin_device_facts *d) {
    d->cpu.cached_factor[0][KIN_QUANT_OTHER] = -0.5;
}
static void keys_are_read_and_nothing_is_computed(kin_device_facts *d) {
    d->cpu.kv_bytes_s = 1e9;
    d->cpu.prompt_read_bytes_s = 0;
}

static const struct {
    spoil_fn *spoil;
    const char *reason;
} spoiled[] = {
    {no_cpu_rate, "CPU: the rate for Q6_K weights is missing"},
    {rate_is_not_a_number, "CPU: Q4_K: bytes per second is not a number"},
    {rate_is_infinite, "too large"},
    {rate_is_negative, "CPU: Q6_K: FLOP per second is negative"},
    {memory_is_negative, "memory is negative (-4e+09)"},
    {memory_is_zero, "memory is too small"},
    {memory_is_a_petabyte, "memory is too large (1e+15"},
    {gpu_memory_is_a_petabyte, "GPU memory is too large"},
    {gpu_without_rates, "GPU: the rate"},
    {disk_is_negative, "disk rate is negative"},
    {disk_is_not_a_number, "random disk rate is not a number"},
    {window_takes_an_hour, "time to start a window is too large"},
    {memory_rate_is_zero, "memory's bytes per second is too small"},
    {batches_take_less_than_nothing, "CPU: factor of a batch is negative"},
    {a_cache_takes_less_than_nothing, "CPU: factor of a cache is negative"},
    {keys_are_read_and_nothing_is_computed, "CPU: the rate of keys and values needs a rate for prompts"},
};
enum { N_SPOILED = sizeof spoiled / sizeof *spoiled };

// A rate that is missing for one type is another case: then the rate for other types is used.
static void a_gpu_that_cannot_multiply_the_weights_is_left_out_and_its_device_is_not(void **state) {
    (void)state;
    const kin_plan_options options = kin_plan_options_defaults();
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    kin_facts facts;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2);
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), 0);
    assert_true(plan.shares[0].n_layer_gpu > 0);
    facts.devices[0].gpu.token_bytes_s[KIN_QUANT_Q6_K] = KIN_RATE_CANNOT;
    facts.devices[1].gpu.prompt_flop_s[KIN_QUANT_Q4_K] = KIN_RATE_CANNOT;
    assert_int_equal(kin_facts_screen(&facts, &usable, reasons, &err), 0);
    assert_int_equal(usable, 3);
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        if (s->plan(&facts, &options, &plan, &err) != 0) continue;
        assert_int_equal(plan.shares[0].n_layer_gpu + plan.shares[1].n_layer_gpu, 0);
        plan.shares[0].n_layer_gpu = 1;
        assert_int_equal(kin_plan_check(&plan, &facts, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "has no GPU that can multiply these weights"));
    }
    facts.devices[1].cpu.token_bytes_s[KIN_QUANT_Q6_K] = KIN_RATE_CANNOT;
    assert_int_equal(kin_facts_screen(&facts, &usable, reasons, &err), 0);
    assert_int_equal(usable, 1);
    assert_string_equal(reasons[1], "CPU: cannot multiply Q6_K weights");
}

static void nonsense_is_refused_and_the_others_are_planned(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    kin_facts facts;
    kin_plan plan, three;
    kin_err err;
    for (int i = 0; i < N_SPOILED; i++) {
        kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 3);
        assert_int_equal(kin_plan_exact(&facts, &options, &three, &err), 0);
        kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
        spoiled[i].spoil(&facts.devices[3]);
        assert_int_equal(kin_facts_screen(&facts, &usable, reasons, &err), 0);
        assert_int_equal(usable, 7);
        if (!strstr(reasons[3], spoiled[i].reason)) fail_msg("'%s', expected '%s'", reasons[3], spoiled[i].reason);
        assert_string_equal(reasons[0], "");
        for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
            if (s->plan(&facts, &options, &plan, &err) != 0) continue;
            assert_int_equal(plan.shares[3].n_layer, 0);
        }
        assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), 0);
        assert_true(plan.tpot_s == three.tpot_s);
    }
}

static void a_head_with_nonsense_is_an_error_with_its_reason(void **state) {
    (void)state;
    kin_device_set usable;
    kin_facts facts;
    kin_err err;
    for (int i = 0; i < N_SPOILED; i++) {
        kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
        spoiled[i].spoil(&facts.devices[0]);
        assert_int_equal(kin_facts_screen(&facts, &usable, NULL, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "the head's facts"));
        assert_non_null(strstr(err.text, spoiled[i].reason));
    }
}

static void an_unreachable_device_is_refused(void **state) {
    (void)state;
    const double bad[] = {0, -1, NAN, INFINITY};
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    kin_device_set usable;
    kin_facts facts;
    kin_err err;
    for (int i = 0; i < 4; i++) {
        kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
        for (int a = 0; a < 3; a++) facts.links[3][a].bytes_s = bad[i]; // broken in one direction only
        assert_int_equal(kin_facts_screen(&facts, &usable, reasons, &err), 0);
        assert_int_equal(usable, 7);
        assert_string_equal(reasons[3], "it has no usable link to the head");
    }
}

static void a_model_that_cannot_be_is_an_error(void **state) {
    (void)state;
    kin_device_set usable;
    kin_facts good, facts;
    kin_err err;
    kin_paper_facts(&good, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 4);
#define REFUSED(change, words)                                                                                                   \
    do {                                                                                                                         \
        facts = good;                                                                                                            \
        change;                                                                                                                  \
        assert_int_equal(kin_facts_screen(&facts, &usable, NULL, &err), KIN_FAIL);                                               \
        if (!strstr(err.text, words)) fail_msg("'%s', expected '%s'", err.text, words);                                          \
    } while (0)
    REFUSED(facts.model.n_layer = 0, "0 layers");
    REFUSED(facts.model.n_layer = 100000, "100000 layers");
    REFUSED(facts.n_device = 0, "0 devices");
    REFUSED(facts.n_device = 33, "33 devices");
    REFUSED(facts.model.layer_bytes[0] = NAN, "F32: bytes of a layer is not a number");
    REFUSED(memset(facts.model.layer_bytes, 0, sizeof facts.model.layer_bytes), "bytes of a layer is too small");
    REFUSED(facts.model.expert_share = 1.5, "share of experts");
    REFUSED(facts.model.expert_hits[1] = 1.5, "hits of experts");
    REFUSED(facts.model.block_bytes = 0, "largest block");
    REFUSED(facts.model.weight_block_bytes = facts.model.block_bytes * 2, "streamed weight block");
    REFUSED(facts.model.layer_share[3] = 2, "mean must be 1");
    REFUSED(facts.model.layer_share[3] = -1, "share of a layer is negative");
    REFUSED(facts.model.kv_share[3] = 2, "KV caches: their mean must be 1");
    REFUSED(facts.model.kv_share[3] = -1, "KV cache is negative");
    REFUSED(facts.model.kv_held_bytes = -1, "holds is negative");
    REFUSED(facts.model.gpu_kv_bytes = -1, "on a GPU is negative");
    REFUSED(facts.model.n_vocab = 0, "vocabulary");
    REFUSED(facts.work.n_batch = 0, "batch 0");
#undef REFUSED
}

static void a_type_without_a_rate_counts_as_other(void **state) {
    (void)state;
    kin_facts facts;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 1);
    facts.devices[0].cpu.token_bytes_s[KIN_QUANT_Q4_K] = facts.devices[0].cpu.prompt_flop_s[KIN_QUANT_Q4_K] = 0;
    assert_int_equal(kin_facts_check_device(&facts.devices[0], &facts.model, true, &err), 0);
    facts.devices[0].cpu.token_bytes_s[KIN_QUANT_OTHER] = 0;
    assert_int_equal(kin_facts_check_device(&facts.devices[0], &facts.model, true, &err), KIN_FAIL);
}

static void a_worker_needs_no_rate_for_the_output(void **state) {
    (void)state;
    kin_facts facts;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2);
    facts.model.output_bytes[KIN_QUANT_Q8_0] = 1e8;
    facts.devices[1].cpu.token_bytes_s[KIN_QUANT_Q8_0] = facts.devices[1].cpu.token_bytes_s[KIN_QUANT_OTHER] = 0;
    assert_int_equal(kin_facts_check_device(&facts.devices[1], &facts.model, false, &err), 0);
    assert_int_equal(kin_facts_check_device(&facts.devices[1], &facts.model, true, &err), KIN_FAIL);
}

// Facts come from other machines, so any field may have any value.
static void any_numbers_at_all_are_refused_or_planned(void **state) {
    (void)state;
    const double odd[] = {0, -0.0, -1, NAN, INFINITY, -INFINITY, 1e-300, 1e300, 1e-9, 1e12, 5e13, 1};
    kin_plan_options options = kin_plan_options_defaults();
    static kin_facts facts;
    kin_rng rng;
    int n_planned = 0;
    kin_rng_seed(&rng, 43);
    for (int round = 0; round < N_ODD; round++) {
        kin_random_facts(&facts, &rng, 5, 20);
        for (int i = 1 + kin_random_below(&rng, 3); i > 0; i--) {
            kin_device_facts *d = &facts.devices[kin_random_below(&rng, facts.n_device)];
            bool of_model = kin_random_below(&rng, 3) == 0;
            double *numbers = of_model ? &facts.model.hidden_bytes : &d->cpu.token_bytes_s[0];
            size_t n = of_model ? (sizeof facts.model - offsetof(kin_model_facts, hidden_bytes)) / sizeof(double)
                                : (sizeof *d - offsetof(kin_device_facts, cpu)) / sizeof(double);
            numbers[kin_random_below(&rng, (int)n)] = odd[kin_random_below(&rng, sizeof odd / sizeof *odd)];
        }
        for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
            kin_plan plan;
            options.max_orders = 3;
            options.ilp = kin_ilp_small;
            if (s->plan(&facts, &options, &plan, NULL) != 0) continue;
            if (!(plan.tpot_s >= 0) || !isfinite(plan.tpot_s)) fail_msg("round %d: %s: %g s", round, s->name, plan.tpot_s);
            n_planned++;
        }
    }
    assert_true(n_planned > N_ODD / 2);
}

// ---- corrections

static const kin_plan alone = {.n_rounds = 1, .n_stops = 1};

// Returns the figures that a device with this true prediction would measure.
static kin_measured measure(const kin_prediction *real, int device) {
    const kin_device_prediction *r = &real->devices[device];
    return (kin_measured){
        .compute_s = r->compute_s + r->windows_s,
        .disk_s = r->load_s,
        .disk_bytes = r->streamed_bytes,
        .hop_s = device == 0 ? real->hops_s : 0,
    };
}

static void speed_up(kin_engine_facts *e, double ratio) {
    for (int q = 0; q < KIN_N_QUANT; q++) e->token_bytes_s[q] *= ratio;
    e->read_bytes_s *= ratio;
    e->kv_copy_s /= ratio;
}

// The profile overestimates D2's computing speed by a factor of 2 and its disk by 1.5, and halves round trip times.
static void running_corrections_find_the_true_facts(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts truth, facts;
    kin_corrections corrections;
    kin_prediction real, predicted, corrected;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&truth, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    facts = truth;
    kin_device_facts *d = &facts.devices[1];
    speed_up(&d->cpu, 2);
    speed_up(&d->gpu, 2);
    d->window_s /= 2, d->to_gpu_s /= 2, d->from_gpu_s /= 2;
    d->disk_bytes_s *= 1.5;
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) facts.links[from][to].rtt_s /= 2;
    }
    assert_int_equal(kin_plan_exact(&facts, &options, &plan, &err), 0);
    assert_int_equal(kin_timeline_closed(&truth, &plan, &real, &err), 0);
    assert_int_equal(kin_timeline_closed(&facts, &plan, &predicted, &err), 0);
    assert_true(fabs(predicted.tpot_s / real.tpot_s - 1) > 0.01);
    kin_corrections_init(&corrections);
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < 4; i++) {
            kin_measured measured = measure(&real, i);
            kin_corrections_set(&corrections, i, &measured, &plan, &predicted);
        }
        kin_facts now = facts;
        kin_corrections_apply(&corrections, &now);
        assert_int_equal(kin_timeline_closed(&now, &plan, &corrected, &err), 0);
        assert_true(fabs(corrected.tpot_s / real.tpot_s - 1) < 1e-6);
    }
}

// Predicts a device with 10 layers: those on the GPU take 1 s each, those on the CPU 2 s.
static kin_prediction divided(int n_gpu) {
    kin_prediction p = {0};
    p.devices[1].compute_s = n_gpu + 2 * (10 - n_gpu);
    p.devices[1].gpu_s = n_gpu;
    return p;
}

static void an_engine_is_corrected_by_what_it_did(void **state) {
    (void)state;
    kin_corrections c;
    kin_prediction predicted = divided(10);
    kin_corrections_init(&c);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 15}, &alone, &predicted); // the GPU takes 1.5 s per layer
    assert_true(c.devices[1].gpu == 1.5 && c.devices[1].cpu == 1);
    predicted = divided(4);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 4 * 1.5 + 6 * 2}, &alone, &predicted); // as corrected so far
    assert_true(c.devices[1].gpu == 1.5 && c.devices[1].cpu == 1);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 2 * (4 * 1.5 + 6 * 2)}, &alone,
                        &predicted); // unknown which of the two is slower, so both are
    assert_true(c.devices[1].gpu == 3 && c.devices[1].cpu == 2);
    predicted = divided(0);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 20}, &alone, &predicted);
    assert_true(c.devices[1].gpu == 3 && c.devices[1].cpu == 1);
}

static void what_is_not_known_corrects_nothing_and_nonsense_little(void **state) {
    (void)state;
    kin_corrections c;
    kin_prediction predicted = divided(0);
    kin_corrections_init(&c);
    const kin_measured nothing = {0}, odd = {.compute_s = NAN, .disk_s = INFINITY, .disk_bytes = NAN, .hop_s = -1};
    const kin_measured streams = {.disk_s = 1, .disk_bytes = 1e9, .hop_s = 1}; // neither was predicted
    kin_corrections_set(&c, 1, &nothing, &alone, &predicted);
    kin_corrections_set(&c, 1, &odd, &alone, &predicted);
    kin_corrections_set(&c, 1, &streams, &alone, &predicted);
    kin_corrections_set(&c, 0, &streams, &alone, &predicted);
    assert_true(c.devices[1].cpu == 1 && c.devices[1].gpu == 1 && c.devices[1].disk == 1 && c.hops[1][0] == 1);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 1e9}, &alone, &predicted);
    assert_true(c.devices[1].cpu == 10);
    kin_corrections_set(&c, 1, &(kin_measured){.compute_s = 1e-9}, &alone, &predicted);
    assert_true(c.devices[1].cpu == 0.1);
}

static void a_disk_is_corrected_by_its_rate_or_with_experts_by_its_time(void **state) {
    (void)state;
    kin_corrections c;
    kin_prediction predicted = {0};
    kin_device_prediction *p = &predicted.devices[0];
    kin_corrections_init(&c);
    p->load_s = p->own_load_s = 1, p->streamed_bytes = 1e9;
    kin_corrections_set(&c, 0, &(kin_measured){.disk_s = 1, .disk_bytes = 0.5e9}, &alone,
                        &predicted); // half the bytes, so half the rate
    assert_true(c.devices[0].disk == 2);
    kin_corrections_set(&c, 0, &(kin_measured){.disk_s = 3}, &alone, &predicted);
    assert_true(c.devices[0].disk == 3);
    p->experts_s = 1;
    kin_corrections_set(&c, 0, &(kin_measured){.disk_s = 3, .disk_bytes = 1}, &alone, &predicted);
    assert_true(c.devices[0].disk == 1.5);
}

static void a_device_that_streams_more_than_it_should_has_less_memory(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts truth, facts;
    kin_corrections c;
    kin_prediction real, predicted, corrected;
    kin_plan plan;
    kin_err err;
    kin_paper_facts(&truth, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    assert_int_equal(kin_plan_exact(&truth, &options, &plan, &err), 0);
    assert_int_equal(kin_timeline_closed(&truth, &plan, &real, &err), 0);
    int i = 0;
    while (real.devices[i].streamed_bytes == 0) i++;
    facts = truth;
    facts.devices[i].memory_bytes += fmin(1e9, real.devices[i].streamed_bytes / 2);
    kin_corrections_init(&c);
    assert_int_equal(kin_timeline_closed(&facts, &plan, &predicted, &err), 0);
    assert_true(predicted.devices[i].streamed_bytes < real.devices[i].streamed_bytes);
    for (int again = 0; again < 2; again++) {
        kin_measured measured = measure(&real, i);
        kin_corrections_set(&c, i, &measured, &plan, &predicted);
        kin_facts now = facts;
        kin_corrections_apply(&c, &now);
        assert_int_equal(kin_timeline_closed(&now, &plan, &corrected, &err), 0);
        assert_true(fabs(corrected.tpot_s / real.tpot_s - 1) < 1e-6);
        assert_true(fabs(corrected.devices[i].streamed_bytes / real.devices[i].streamed_bytes - 1) < 1e-6);
    }
    kin_corrections_set(&c, i, &(kin_measured){.disk_s = 1, .disk_bytes = 1}, &plan, &predicted);
    assert_true(c.devices[i].missing_bytes == 0); // memory is never corrected upwards
}

static void a_ring_corrects_only_links_between_its_devices(void **state) {
    (void)state;
    const kin_plan ring = {.n_rounds = 1, .n_stops = 3, .stops = {{0, false}, {2, false}, {1, false}}};
    const kin_prediction predicted = {.hops_s = 2, .hops_latency_s = 1};
    kin_corrections c;
    static kin_facts facts;
    kin_corrections_init(&c);
    kin_corrections_set(&c, 0, &(kin_measured){.hop_s = 1}, &ring, &predicted);
    facts.n_device = 4;
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) facts.links[from][to] = (kin_link_facts){1, 3};
    }
    kin_corrections_apply(&c, &facts);
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) assert_true(facts.links[from][to].rtt_s == 0.5 && facts.links[from][to].bytes_s == 6);
        assert_true(facts.links[from][3].rtt_s == 1 && facts.links[3][from].bytes_s == 3);
    }
}

// Each hop waits longer than the links' figures say, by the same time for 1 token and for 16.
static void hops_that_wait_do_not_make_the_bytes_of_many_tokens_slower(void **state) {
    (void)state;
    const kin_plan ring = {.n_rounds = 2, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{2, 0, 0}, {2, 0, 0}}};
    kin_facts facts, truth, now;
    kin_prediction predicted, real, corrected;
    kin_corrections c;
    kin_err err;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 2);
    facts.model.n_layer = 4;
    facts.devices[0].memory_bytes = facts.devices[1].memory_bytes = 64e9;
    facts.links[0][1] = (kin_link_facts){4e-4, 125e6};
    facts.links[1][0] = (kin_link_facts){8e-4, 125e6};
    truth = facts;
    truth.links[0][1].rtt_s *= 3, truth.links[1][0].rtt_s *= 3;
    assert_int_equal(kin_latency_pass(&facts, &ring, 1, 8, 1, &predicted, &err), 0);
    assert_int_equal(kin_latency_pass(&truth, &ring, 1, 8, 1, &real, &err), 0);
    assert_true(fabs(predicted.hops_latency_s - 2 * 6e-4) < 1e-9);
    kin_corrections_init(&c);
    kin_corrections_set(&c, 0, &(kin_measured){.hop_s = real.hops_s}, &ring, &predicted);
    now = facts;
    kin_corrections_apply(&c, &now);
    for (int n = 1; n <= 16; n *= 16) {
        assert_int_equal(kin_latency_sequences(&truth, &ring, n, 8, &real, &err), 0);
        assert_int_equal(kin_latency_sequences(&now, &ring, n, 8, &corrected, &err), 0);
        assert_true(fabs(corrected.hops_s / real.hops_s - 1) < 1e-6);
    }
}

static void of_several_sweeps_the_middle_counts_figure_by_figure(void **state) {
    (void)state;
    kin_engine_facts sweeps[4], out;
    for (int k = 0; k < 4; k++) {
        double *figures = (double *)&sweeps[k]; // all fields are doubles
        for (size_t i = 0; i < sizeof sweeps[0] / sizeof(double); i++)
            figures[i] = (double)(i + 1) * (k == 0 ? 9 : k == 1 ? 1 : k + 1);
    }
    kin_engine_facts_median(&out, sweeps, 3); // factors 9, 1 and 3
    for (size_t i = 0; i < sizeof out / sizeof(double); i++) assert_true(((double *)&out)[i] == 3.0 * (double)(i + 1));
    kin_engine_facts_median(&out, sweeps, 4); // factors 9, 1, 3 and 4
    assert_true(out.token_bytes_s[0] == 3.5);
    sweeps[1].op_s = 1e6; // the median is taken for each figure separately
    kin_engine_facts_median(&out, sweeps, 1);
    assert_memory_equal(&out, &sweeps[0], sizeof out);
    kin_engine_facts_median(&out, sweeps, 3);
    assert_true(out.op_s == sweeps[0].op_s && out.kv_copy_s == sweeps[2].kv_copy_s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_cannot_multiply_the_weights_is_left_out_and_its_device_is_not),
        cmocka_unit_test(nonsense_is_refused_and_the_others_are_planned),
        cmocka_unit_test(a_head_with_nonsense_is_an_error_with_its_reason),
        cmocka_unit_test(an_unreachable_device_is_refused),
        cmocka_unit_test(a_model_that_cannot_be_is_an_error),
        cmocka_unit_test(a_type_without_a_rate_counts_as_other),
        cmocka_unit_test(a_worker_needs_no_rate_for_the_output),
        cmocka_unit_test(any_numbers_at_all_are_refused_or_planned),
        cmocka_unit_test(a_ring_corrects_only_links_between_its_devices),
        cmocka_unit_test(hops_that_wait_do_not_make_the_bytes_of_many_tokens_slower),
        cmocka_unit_test(a_device_that_streams_more_than_it_should_has_less_memory),
        cmocka_unit_test(running_corrections_find_the_true_facts),
        cmocka_unit_test(an_engine_is_corrected_by_what_it_did),
        cmocka_unit_test(what_is_not_known_corrects_nothing_and_nonsense_little),
        cmocka_unit_test(a_disk_is_corrected_by_its_rate_or_with_experts_by_its_time),
        cmocka_unit_test(of_several_sweeps_the_middle_counts_figure_by_figure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
