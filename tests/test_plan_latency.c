// The timeline model: its closed form compared with a simulation block by block, and properties of its equations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pure/plan/latency.h"
#include "pure/plan/prompt.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "testkit/plan_random.h"
#include "tests/place.h"

enum { N_PLAYED = 1500, N_RANDOM = 500 };

// Returns a plan with the head alone.
static kin_plan alone(const kin_facts *facts, int n_gpu) {
    kin_plan plan = {.n_rounds = 1, .n_stops = 1};
    plan.shares[0] = (kin_layer_share){facts->model.n_layer, n_gpu, 0};
    return plan;
}

static kin_prediction predict(const kin_facts *facts, const kin_plan *plan) {
    kin_prediction out;
    kin_err err = {""};
    if (kin_timeline_closed(facts, plan, &out, &err) != 0) fail_msg("%s", err.text);
    return out;
}
#define predict(...) FROM_TEST(predict(__VA_ARGS__))

// ---- compared with the simulated timeline

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool make_case(kin_facts *facts, kin_plan *plan, kin_rng *rng) {
    kin_plan_options options = kin_plan_options_defaults();
    kin_random_facts(facts, rng, 5, 60);
    options.n_rounds = 1 + kin_random_below(rng, 5);
    kin_plan_scheduler_fn *make = kin_random_below(rng, 2) ? kin_plan_exact : kin_plan_memsched;
    return make(facts, &options, plan, NULL) == 0;
}

static void the_closed_form_is_close_to_the_timeline_played(void **state) {
    (void)state;
    static double errors[N_PLAYED];
    static kin_facts facts;
    kin_rng rng;
    int n = 0, n_streaming = 0, n_bound = 0;
    double sum = 0, streaming_sum = 0;
    kin_rng_seed(&rng, 23);
    while (n < N_PLAYED) {
        kin_plan plan;
        if (!make_case(&facts, &plan, &rng)) continue;
        kin_prediction p = predict(&facts, &plan);
        double played_s;
        bool streams = false;
        assert_int_equal(kin_timeline_play(&facts, &plan, &played_s, NULL), 0);
        double error = fabs(p.tpot_s / played_s - 1);
        for (int i = 0; i < facts.n_device; i++) streams = streams || p.devices[i].streamed_bytes > 0;
        if (!streams && error > 1e-9) fail_msg("case %d: %g s, played %g s, and nothing is streamed", n, p.tpot_s, played_s);
        n_streaming += streams;
        n_bound += p.slowest_disk >= 0;
        streaming_sum += streams ? error : 0;
        sum += error;
        errors[n++] = error;
    }
    qsort(errors, N_PLAYED, sizeof *errors, by_value);
    print_message(
        "%d plans, %d stream, %d of these limited by a disk: error %.2f %% on average, %.2f %% of those that stream; 95 %% below "
        "%.1f %%, largest %.1f %%\n",
        n, n_streaming, n_bound, 100 * sum / n, 100 * streaming_sum / n_streaming, 100 * errors[n * 95 / 100],
        100 * errors[n - 1]);
    assert_true(n_streaming > N_PLAYED / 4);
    assert_true(streaming_sum / n_streaming < 0.03);
    assert_true(errors[n * 95 / 100] < 0.06);
}

static void layers_of_unlike_sizes_are_played_as_they_are(void **state) {
    (void)state;
    enum { N = 300 };
    static kin_facts facts;
    kin_rng rng;
    int n_streaming = 0;
    double streaming_sum = 0;
    kin_rng_seed(&rng, 31);
    for (int n = 0; n < N;) {
        kin_plan plan;
        kin_prediction p;
        double played_s, sizes[KIN_FACTS_MAX_LAYERS];
        if (!make_case(&facts, &plan, &rng)) continue;
        for (int il = 0; il < facts.model.n_layer; il++) sizes[il] = 10 + kin_random_below(&rng, 20);
        kin_facts_set_shares(&facts.model, sizes);
        if (kin_timeline_closed(&facts, &plan, &p, NULL) != 0) continue; // the GPU's layers may be too large for its memory
        assert_int_equal(kin_timeline_play(&facts, &plan, &played_s, NULL), 0);
        double error = fabs(p.tpot_s / played_s - 1);
        bool streams = false;
        for (int i = 0; i < facts.n_device; i++) streams = streams || p.devices[i].streamed_bytes > 0;
        if (!streams && error > 1e-9) fail_msg("case %d: %g s, played %g s, and nothing is streamed", n, p.tpot_s, played_s);
        n_streaming += streams;
        streaming_sum += streams ? error : 0;
        n++;
    }
    print_message("%d plans of unlike layers, %d stream: error of those %.2f %% on average\n", N, n_streaming,
                  100 * streaming_sum / n_streaming);
    assert_true(streaming_sum / n_streaming < 0.05);
}

static void the_closed_form_of_a_prompt_is_close_to_its_chunks_played(void **state) {
    (void)state;
    static double errors[N_PLAYED];
    static kin_facts facts;
    kin_rng rng;
    int n = 0, n_rings = 0;
    double sum = 0;
    kin_rng_seed(&rng, 37);
    while (n < N_PLAYED) {
        kin_plan plan;
        if (!make_case(&facts, &plan, &rng)) continue;
        facts.work.n_prompt = 1 + kin_random_below(&rng, 3000);
        facts.work.n_batch = 16 << kin_random_below(&rng, 6);
        double closed_s, played_s;
        assert_int_equal(kin_prompt_predict(&facts, &plan, &closed_s, NULL), 0);
        assert_int_equal(kin_prompt_play(&facts, &plan, &played_s, NULL), 0);
        double error = fabs(closed_s / played_s - 1);
        if (plan.n_stops == 1 && error > 1e-9) fail_msg("case %d: %g s, played %g s, alone", n, closed_s, played_s);
        n_rings += plan.n_stops > 1;
        sum += error;
        errors[n++] = error;
    }
    qsort(errors, N_PLAYED, sizeof *errors, by_value);
    print_message("%d prompts, %d round a ring: error %.2f %% on average; 95 %% below %.1f %%, largest %.1f %%\n", n, n_rings,
                  100 * sum / n, 100 * errors[n * 95 / 100], 100 * errors[n - 1]);
    assert_true(n_rings > N_PLAYED / 2);
    assert_true(sum / n < 0.05);
    assert_true(errors[n * 95 / 100] < 0.15);
}

static void a_prediction_that_is_shown_is_the_played_one(void **state) {
    (void)state;
    static kin_facts facts;
    kin_rng rng;
    int n_disk = 0;
    kin_rng_seed(&rng, 41);
    for (int n = 0; n < N_RANDOM;) {
        kin_plan plan;
        kin_prediction p;
        double tpot_s, ttft_s;
        if (!make_case(&facts, &plan, &rng)) continue;
        n++;
        assert_int_equal(kin_timeline_predict(&facts, &plan, &p, NULL), 0);
        assert_int_equal(kin_timeline_play(&facts, &plan, &tpot_s, NULL), 0);
        assert_int_equal(kin_prompt_play(&facts, &plan, &ttft_s, NULL), 0);
        assert_true(p.tpot_s == tpot_s && p.ttft_s == ttft_s);
        double parts_s = p.compute_s + p.windows_s + p.exposed_s + p.hops_s + p.disk_bound_s;
        assert_true(p.exposed_s >= 0 && p.disk_bound_s >= 0 && fabs(parts_s / p.tpot_s - 1) < 0.05);
        n_disk += p.disk_bound_s > 0.01 * p.tpot_s;
        if (p.disk_bound_s > 1e-9 * p.tpot_s) assert_true(p.devices[p.slowest_disk].streamed_bytes > 0);
    }
    assert_true(n_disk > N_RANDOM / 20);
}

// ---- properties of the equations

// n_device equal devices. 10 layers of 100 MB in 4 weight blocks, the largest read of 50 MB, CPU 10 GB/s: 10 ms per layer. Output
// 100 MB: 10 ms.
static void make_simple(kin_facts *f, int n_device) {
    kin_facts facts = {.n_device = n_device};
    kin_model_facts *m = &facts.model;
    m->n_layer = 10;
    m->hidden_bytes = 1e4;
    m->layer_bytes[KIN_QUANT_Q4_K] = 100e6;
    m->layer_flops[KIN_QUANT_Q4_K] = 400e6;
    m->output_bytes[KIN_QUANT_Q4_K] = 100e6;
    m->output_flops[KIN_QUANT_Q4_K] = 400e6;
    m->block_bytes = 50e6; // gate and up; a layer has four weight blocks of 25 MB, and the ring 62.5 MB
    m->weight_block_bytes = 1;
    m->n_vocab = 1000;
    kin_facts_set_shares(m, NULL);
    facts.work = (kin_work_facts){.n_ctx = 1, .n_prompt = 100, .n_batch = 40};
    for (int i = 0; i < n_device; i++) {
        kin_device_facts *d = &facts.devices[i];
        strcpy(d->name, "simple");
        d->cpu.token_bytes_s[KIN_QUANT_OTHER] = d->gpu.token_bytes_s[KIN_QUANT_OTHER] = 10e9;
        d->cpu.prompt_flop_s[KIN_QUANT_OTHER] = d->gpu.prompt_flop_s[KIN_QUANT_OTHER] = 400e9;
        d->cpu.read_bytes_s = d->gpu.read_bytes_s = d->gpu_copy_bytes_s = 10e9;
        d->memory_bytes = 2e9;
        d->disk_bytes_s = d->disk_random_bytes_s = 1e9;
        for (int to = 0; to < n_device; to++) facts.links[i][to] = (kin_link_facts){.rtt_s = 2e-3, .bytes_s = 1e7};
    }
    *f = facts;
}

static void assert_close(double got, double expected) {
    if (fabs(got - expected) > 1e-6 * expected + 1e-12) fail_msg("%.9g, expected %.9g", got, expected);
}
#define assert_close(...) FROM_TEST(assert_close(__VA_ARGS__))

// Two devices with 5 layers each; a layer takes 10 ms for the weights and 1 ms per token. A chunk of 16 tokens takes 130 ms on a
// device, and its hop 1 ms and 16 ms of transfer.
static void chunks_of_a_prompt_follow_each_other(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 2);
    kin_plan plan = {.n_rounds = 1, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{5, 0, 0}, {5, 0, 0}}};
    const double window_s = 5 * 0.026, hop_s = 1e-3 + 16 * 1e-3, output_s = 0.010;
    double played_s;
    facts.work.n_prompt = 64; // 4 chunks
    assert_close(predict(&facts, &plan).ttft_s, 5 * window_s + 2 * hop_s + output_s);
    assert_int_equal(kin_prompt_play(&facts, &plan, &played_s, NULL), 0);
    assert_close(played_s, 5 * window_s + 2 * hop_s + output_s);
    plan.shares[0].n_layer = plan.shares[1].n_layer = 4; // two rounds of 2 layers: the devices are never idle
    facts.model.n_layer = 8;
    plan.n_rounds = 2;
    assert_close(predict(&facts, &plan).ttft_s, 2 * 4 * 2 * 0.026 + 2 * 0.026 + 2 * hop_s + output_s);
    assert_int_equal(kin_prompt_play(&facts, &plan, &played_s, NULL), 0);
    assert_close(played_s, 2 * 4 * 2 * 0.026 + 2 * 0.026 + 2 * hop_s + output_s);
    facts.links[1][0].bytes_s = 1e6; // now the transfer back takes 160 ms
    plan.n_rounds = 1;
    assert_close(predict(&facts, &plan).ttft_s, 2 * 4 * 0.026 + 0.017 + 0.001 + 4 * 0.160 + output_s);
    assert_int_equal(kin_prompt_play(&facts, &plan, &played_s, NULL), 0);
    assert_close(played_s, 2 * 4 * 0.026 + 0.017 + 0.001 + 4 * 0.160 + output_s);
}

// The head's rule (pipeline/head.c): two chunks per member, none smaller than 16 tokens or larger than a batch.
static void a_prompt_is_cut_as_the_head_cuts_it(void **state) {
    (void)state;
    assert_int_equal(kin_prompt_chunk_tokens(1000, 1, 512, 0), 512);
    assert_int_equal(kin_prompt_chunk_tokens(1000, 2, 512, 0), 250);
    assert_int_equal(kin_prompt_chunk_tokens(1001, 2, 512, 0), 251);
    assert_int_equal(kin_prompt_chunk_tokens(1000, 2, 128, 0), 128);
    assert_int_equal(kin_prompt_chunk_tokens(40, 4, 512, 0), 16);
    assert_int_equal(kin_prompt_chunk_tokens(40, 4, 8, 0), 8);
    assert_int_equal(kin_prompt_chunk_tokens(40, 4, 512, 16), 16);
    assert_int_equal(kin_prompt_chunk_tokens(150, 4, 512, 70), 75);
    assert_int_equal(kin_prompt_chunk_tokens(100, 4, 512, 70), 100);
    assert_int_equal(kin_prompt_chunk_tokens(20, 4, 512, 70), 20);
    assert_int_equal(kin_prompt_chunk_tokens(1000, 4, 512, 70), 125);
    assert_int_equal(kin_prompt_chunk_tokens(1000, 4, 512, 400), 334);
    assert_int_equal(kin_prompt_chunk_tokens(1000, 1, 512, 70), 512);
}

static bool any_reads_longer_than_it_computes(const kin_facts *facts, const kin_plan *plan, int n_tokens) {
    kin_prediction p;
    bool any = false;
    assert_int_equal(kin_latency_pass(facts, plan, n_tokens, 0, 0, &p, NULL), 0);
    for (int i = 0; i < facts->n_device; i++) any = any || p.devices[i].load_s > p.devices[i].compute_s + p.devices[i].windows_s;
    return any;
}
#define any_reads_longer_than_it_computes(...) FROM_TEST(any_reads_longer_than_it_computes(__VA_ARGS__))

static void a_chunk_is_worth_reading_for_that_takes_as_long_to_compute(void **state) {
    (void)state;
    enum { N = 300 };
    static kin_facts facts;
    kin_rng rng;
    int n_usual = 0, n_between = 0, n_batches = 0;
    kin_rng_seed(&rng, 41);
    for (int i = 0; i < N; i++) {
        kin_plan plan;
        int worth;
        if (!make_case(&facts, &plan, &rng)) continue;
        facts.work.n_batch = 16 << kin_random_below(&rng, 6);
        assert_int_equal(kin_prompt_chunk_worth(&facts, &plan, &worth, NULL), 0);
        assert_true(worth >= KIN_PROMPT_CHUNK_LEAST && worth <= facts.work.n_batch);
        bool is_usual = worth == KIN_PROMPT_CHUNK_LEAST, is_batch = worth == facts.work.n_batch;
        if (!is_usual) assert_true(any_reads_longer_than_it_computes(&facts, &plan, worth - 1));
        if (!is_batch) assert_false(any_reads_longer_than_it_computes(&facts, &plan, worth));
        n_usual += is_usual;
        n_batches += is_batch && !is_usual;
        n_between += !is_batch && !is_usual;
    }
    print_message("%d usual, %d between, %d whole batches\n", n_usual, n_between, n_batches);
    assert_true(n_usual > N / 20 && n_between > N / 20 && n_batches > N / 20);
}

static void a_prompt_without_end_is_refused(void **state) {
    (void)state;
    kin_facts facts;
    double ttft_s;
    kin_err err;
    make_simple(&facts, 1);
    kin_plan plan = alone(&facts, 0);
    facts.work.n_prompt = INT_MAX;
    facts.work.n_batch = 1000;
    assert_int_equal(kin_prompt_predict(&facts, &plan, &ttft_s, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "a prompt of 2147484 chunks of 1000 tokens"));
    assert_int_equal(kin_prompt_play(&facts, &plan, &ttft_s, &err), KIN_FAIL);
    facts.work.n_prompt = 0;
    assert_int_equal(kin_prompt_predict(&facts, &plan, &ttft_s, &err), 0);
    assert_true(ttft_s == 0);
    facts.work.n_prompt = 100;
    plan.shares[0].n_layer--;
    assert_int_equal(kin_prompt_predict(&facts, &plan, &ttft_s, &err), KIN_FAIL);
    assert_int_equal(kin_prompt_play(&facts, &plan, &ttft_s, &err), KIN_FAIL);
}

static void in_memory_a_token_is_computing_only(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    kin_plan plan = alone(&facts, 0);
    kin_prediction p = predict(&facts, &plan);
    assert_close(p.tpot_s, 0.110);
    assert_close(p.devices[0].resident_bytes, 1.1e9);
    assert_true(p.devices[0].streamed_bytes == 0 && p.exposed_s == 0 && p.hops_s == 0);
    // 100 tokens in batches of 40, 40, 20: 1 ms of FLOP per token and layer, 10 ms of reading in each batch; one output.
    assert_close(p.ttft_s, 10 * (0.050 + 0.050 + 0.030) + 0.010);
}

// With 662.5 MB of memory, 600 MB are resident and 500 MB of 1100 streamed: 500 ms of reading, which hides 110 ms of computing.
static void streaming_alone_costs_the_disk_its_time(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    facts.devices[0].memory_bytes = 662.5e6;
    kin_plan plan = alone(&facts, 0);
    kin_prediction p = predict(&facts, &plan);
    assert_close(p.devices[0].streamed_bytes, 500e6);
    assert_close(p.devices[0].load_s, 0.5);
    assert_close(p.tpot_s, 0.5);
    assert_int_equal(p.slowest_disk, 0);
}

// Beside gate and up the ring has room for 12.5 MB, too little for a weight block, so nothing is read while these are computed,
// for 5 ms per layer.
static void what_the_ring_cannot_take_while_a_block_is_computed_is_waited_for(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    facts.devices[0].memory_bytes = 62.5e6; // everything is streamed
    kin_plan plan = alone(&facts, 0);
    kin_prediction p = predict(&facts, &plan);
    assert_close(p.devices[0].streamed_bytes, 1.1e9);
    assert_close(p.tpot_s, 10 * (0.100 + 0.005) + 0.100);
    // 2.5 ms per weight block: gate is read while attention is computed, the next attention while down is.
    facts.devices[0].disk_bytes_s = 10e9;
    p = predict(&facts, &plan);
    assert_close(p.tpot_s, 10 * (0.010 + 2 * 0.0025) + 0.010);
    facts.model.block_bytes = 80e6; // now the ring has 100 MB
    facts.devices[0].memory_bytes = 100e6;
    p = predict(&facts, &plan);
    assert_close(p.tpot_s, 0.110);
}

// The facts' ring holds 37.5 MB, but gate and up need 50 MB: the engine's ring is large enough for weights needed together.
static void a_block_that_is_larger_than_the_ring_takes_finite_time(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    facts.model.block_bytes = 30e6;
    facts.model.weight_block_bytes = 25e6;
    facts.devices[0].memory_bytes = 700e6;
    kin_plan plan = alone(&facts, 0);
    kin_prediction p;
    kin_err err;
    if (kin_timeline_predict(&facts, &plan, &p, &err) != 0) fail_msg("%s", err.text);
    assert_true(isfinite(p.tpot_s) && p.tpot_s >= p.devices[0].load_s && p.tpot_s < p.devices[0].load_s + 0.2);
    assert_true(isfinite(p.exposed_s) && p.exposed_s > 0);
}

// Two devices with 5 layers each; the second one reads its disk while the first one computes. On average 2.4 of a layer's weight
// blocks are streamed. With two streamed a layer takes 50 ms; with attention, gate and up 75 ms, and 5 ms of computing during
// which no block fits. A window begins with two weight blocks in the ring, which saves 50 ms, less the computing in its first
// layer: 10 ms with two blocks, 5 ms with three.
static void more_rounds_hide_more_loading(void **state) {
    (void)state;
    kin_facts facts;
    double before_s = INFINITY, wait_s = 5 * (0.6 * 0.050 + 0.4 * 0.080 - 0.010), hidden_s = 0.6 * 0.040 + 0.4 * 0.045;
    make_simple(&facts, 2);
    facts.devices[1].memory_bytes = 262.5e6; // 200 MB resident, 300 MB streamed: 0.3 s at 1 GB/s
    facts.devices[0].cpu.token_bytes_s[KIN_QUANT_OTHER] = 2e9;
    kin_plan plan = {.n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{5, 0, 0}, {5, 0, 0}}};
    for (plan.n_rounds = 1; plan.n_rounds <= 3; plan.n_rounds++) {
        kin_prediction p = predict(&facts, &plan);
        double played_s;
        assert_close(p.devices[1].exposed_s, wait_s - plan.n_rounds * hidden_s);
        assert_close(p.hops_s, plan.n_rounds * 4e-3);
        assert_int_equal(kin_timeline_play(&facts, &plan, &played_s, NULL), 0);
        assert_true(fabs(p.tpot_s / played_s - 1) < 0.02 && p.tpot_s < before_s);
        before_s = p.tpot_s;
    }
}

static void a_gpu_has_its_own_memory_or_shares_it(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    kin_err err;
    make_simple(&facts, 1);
    kin_device_facts *d = &facts.devices[0];
    d->has_gpu = true;
    d->gpu_memory_bytes = 650e6;
    d->to_gpu_s = d->from_gpu_s = 1e-3;
    d->gpu.token_bytes_s[KIN_QUANT_OTHER] = 100e9;
    kin_plan plan = alone(&facts, 6);
    p = predict(&facts, &plan);
    assert_close(p.tpot_s, 4 * 0.010 + 6 * 0.001 + 0.010 + 0.002);
    assert_close(p.devices[0].memory_bytes, 500e6);
    d->uma = true;
    p = predict(&facts, &plan);
    assert_close(p.tpot_s, 4 * 0.010 + 6 * 0.001 + 0.010); // no copies
    assert_close(p.devices[0].memory_bytes, 1.1e9);
    plan.shares[0].n_layer_gpu = 7;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot hold 10 layers, 7 of them on the GPU"));
}

// As in the engine: the output matrix is in the GPU's memory and its time is the GPU's.
static void a_gpu_with_all_layers_has_the_output_too(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    double played_s;
    make_simple(&facts, 1);
    kin_device_facts *d = &facts.devices[0];
    d->has_gpu = true;
    d->gpu_memory_bytes = 1.1e9;
    d->gpu.token_bytes_s[KIN_QUANT_OTHER] = 100e9;
    kin_plan plan = alone(&facts, 10), best;
    p = predict(&facts, &plan);
    assert_close(p.tpot_s, 10 * 0.001 + 0.001);
    assert_close(p.devices[0].gpu_s, 11 * 0.001);
    assert_close(p.devices[0].gpu_bytes, 1.1e9);
    assert_close(p.devices[0].resident_bytes, 0);
    assert_int_equal(kin_timeline_play(&facts, &plan, &played_s, NULL), 0);
    assert_close(played_s, p.tpot_s);
    const kin_plan_options options = kin_plan_options_defaults();
    assert_int_equal(kin_plan_exact(&facts, &options, &best, NULL), 0);
    assert_int_equal(best.shares[0].n_layer_gpu, 10);
    d->gpu_memory_bytes = 1.05e9; // room for the layers, but not for the output
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, NULL), KIN_FAIL);
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        if (s->plan(&facts, &options, &best, NULL) != 0) continue;
        assert_int_equal(best.shares[0].n_layer_gpu, 9);
    }
    d->gpu_memory_bytes = 1.1e9;
    facts.model.output_bytes[KIN_QUANT_Q6_K] = 1;
    d->gpu.token_bytes_s[KIN_QUANT_Q6_K] = KIN_RATE_CANNOT;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, NULL), KIN_FAIL);
}

static void attention_of_a_prompt_has_its_own_rate(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    facts.model.kv_bytes = 1e4;
    kin_plan plan = alone(&facts, 0);
    facts.devices[0].cpu.prompt_read_bytes_s = 50e9;
    assert_int_equal(kin_latency_pass(&facts, &plan, 101, 50, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + 101 * 0.001 + 101 * 100 * 1e4 / 50e9)); // a token sees 100 cells on average
    facts.devices[0].cpu.prompt_read_bytes_s = 0;                                // not known: uses the rate of single tokens
    assert_int_equal(kin_latency_pass(&facts, &plan, 101, 50, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + 101 * 0.001 + 101 * 100 * 1e4 / 10e9));
}

// A layer takes 10 ms for the weights and 1 ms per token, times the measured factor of the batch size.
static void a_batch_takes_what_was_measured_of_so_many_rows(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    kin_plan plan = alone(&facts, 0);
    const double factors[KIN_FACTS_BATCHES] = {0.9, 0.8, 0.7, 0.9, 1.2};
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) facts.devices[0].cpu.batch_factor[i][KIN_QUANT_OTHER] = factors[i];
    const struct {
        int n_tokens;
        double layer_s;
    } expected[] = {
        {1, 0.010},        {2, 0.9 * 0.012},  {4, 0.8 * 0.014},  {8, 0.7 * 0.018},
        {16, 0.9 * 0.026}, {32, 1.2 * 0.042}, {64, 1.1 * 0.074}, // interpolated half way to 128 tokens
        {128, 0.138},      {400, 0.410},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(kin_latency_pass(&facts, &plan, expected[i].n_tokens, 0, 0, &p, NULL), 0);
        assert_close(p.tpot_s, 10 * expected[i].layer_s);
    }
    // With three drafted tokens all four rows need the output matrix.
    assert_int_equal(kin_latency_pass(&facts, &plan, 4, 0, 4, &p, NULL), 0);
    assert_close(p.tpot_s, 11 * 0.8 * 0.014);
}

// The output's type has its own factor; the layers' type uses the common one.
static void a_weight_type_has_a_factor_of_its_own(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    kin_plan plan = alone(&facts, 0);
    facts.model.output_bytes[KIN_QUANT_Q6_K] = facts.model.output_bytes[KIN_QUANT_Q4_K];
    facts.model.output_flops[KIN_QUANT_Q6_K] = facts.model.output_flops[KIN_QUANT_Q4_K];
    facts.model.output_bytes[KIN_QUANT_Q4_K] = facts.model.output_flops[KIN_QUANT_Q4_K] = 0;
    facts.devices[0].cpu.batch_factor[1][KIN_QUANT_OTHER] = 0.6;
    facts.devices[0].cpu.batch_factor[1][KIN_QUANT_Q6_K] = 0.95;
    assert_int_equal(kin_latency_sequences(&facts, &plan, 4, 0, &p, NULL), 0);
    assert_close(p.tpot_s, (10 * 0.6 + 0.95) * 0.014);
    assert_int_equal(kin_latency_sequences(&facts, &plan, 3, 0, &p, NULL),
                     0); // interpolated between two rows (factor 1) and four
    double part = log2(3) - 1;
    assert_close(p.tpot_s, (10 * (1 - 0.4 * part) + 1 - 0.05 * part) * 0.013);
}

// Groups of 4 heads, 10 kB of keys and values per token: reading a cell takes 0.2 us, computing it for all heads 0.4 us.
static void keys_and_values_are_read_once_for_a_group_s_heads_and_a_batch_s_rows(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    facts.model.kv_bytes = 1e4;
    facts.model.kv_reads = 4;
    facts.devices[0].memory_bytes = 20e9;
    facts.devices[0].cpu.kv_bytes_s = 50e9;
    facts.devices[0].cpu.prompt_read_bytes_s = 100e9;
    kin_plan plan = alone(&facts, 0);
    assert_int_equal(kin_latency_pass(&facts, &plan, 1, 10000, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + hypot(10000 * 0.2e-6, 10000 * 0.4e-6)));
    assert_int_equal(kin_latency_pass(&facts, &plan, 5, 10000, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.015 + hypot(10004 * 0.2e-6, 5 * 10002 * 0.4e-6)));
    kin_prediction none;
    assert_int_equal(kin_latency_sequences(&facts, &plan, 5, 0, &none, NULL), 0); // but each sequence reads its own cells
    assert_int_equal(kin_latency_sequences(&facts, &plan, 5, 10000, &p, NULL), 0);
    assert_close(p.tpot_s - none.tpot_s, 10 * hypot(5 * 10000 * 0.2e-6, 5 * 10000 * 0.4e-6));
    facts.devices[0].cpu.kv_bytes_s = 0; // each head and each row reads separately, at 10 GB/s
    assert_int_equal(kin_latency_pass(&facts, &plan, 5, 10000, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.015 + 5 * 10002 * 4e-6));
}

// Each token uses a tenth of the experts. 400 tokens use all: every expert is read, and its FLOP count twice. 2 tokens use 19 %.
static void an_expert_s_products_are_slower_than_a_batch_s(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1; // experts have half of a layer's FLOP
    facts.devices[0].memory_bytes = 20e9;
    kin_plan plan = alone(&facts, 0);
    assert_int_equal(kin_latency_pass(&facts, &plan, 400, 0, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + 400 * 0.0005 + 0.1 + 400 * 0.0005 * 2));
    assert_int_equal(kin_latency_pass(&facts, &plan, 2, 0, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + 2 * 0.0005 + 0.19 * 0.1 + 2 * 0.0005 * 2));
    facts.devices[0].cpu.kv_bytes_s = facts.devices[0].cpu.prompt_read_bytes_s =
        1e15; // kin's kernels compute an expert's tokens together
    assert_int_equal(kin_latency_pass(&facts, &plan, 400, 0, 0, &p, NULL), 0);
    assert_close(p.tpot_s, 10 * (0.010 + 400 * 0.0005 + 0.1 + 400 * 0.0005 * 1.1));
}

// Reading the missed experts of ten layers, each of which reads all that it uses in 100 ms, and uses a tenth. The last layer's
// took the place of others, which the share `slope` of a token's experts used.
static double missed_s(double misses, double slope) {
    return 10 * 0.1 * misses / (1 - slope * 0.1 / 10);
}

static void experts_that_are_not_in_memory_wait_for_the_disk(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9; // 10 GB in total, a tenth used: each layer reads twice as many bytes
    facts.model.expert_share = 0.1;
    facts.devices[0].memory_bytes = 20e9;
    kin_plan plan = alone(&facts, 0);
    kin_prediction p = predict(&facts, &plan);
    assert_close(p.tpot_s, 10 * 0.020 + 0.010);
    facts.devices[0].memory_bytes = 6.1e9; // room for the other 1.1 GB and half of the experts
    p = predict(&facts, &plan);
    assert_close(p.devices[0].experts_s, missed_s(0.5, 1));
    assert_close(p.tpot_s, 10 * 0.020 + 0.010 + missed_s(0.5, 1));

    facts.devices[0].disk_bytes_s = 4 * facts.devices[0].disk_random_bytes_s;
    p = predict(&facts, &plan);
    assert_close(p.devices[0].experts_s, missed_s(0.5, 1)); // page by page
    facts.devices[0].cpu.kv_bytes_s = 1e15;                 // kin's kernels
    p = predict(&facts, &plan);
    assert_close(p.devices[0].experts_s, missed_s(0.5, 1) / 4);
}

// A layer has 25 MB of attention, 75 MB of other weights that each token uses, and 1 GB of experts, of which it uses a tenth. The
// GPU, ten times as fast, has no room for a whole layer.
static void attention_alone_on_the_gpu_leaves_the_experts_to_the_cpu(void **state) {
    (void)state;
    kin_facts facts;
    kin_plan best;
    kin_err err;
    double played_s;
    make_simple(&facts, 1);
    facts.model.attn_bytes = 25e6;
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1;
    kin_device_facts *d = &facts.devices[0];
    d->memory_bytes = 20e9;
    d->has_gpu = true;
    d->gpu_memory_bytes = 350e6; // attention and the output
    d->to_gpu_s = d->from_gpu_s = 1e-4;
    d->gpu.token_bytes_s[KIN_QUANT_OTHER] = 100e9;
    kin_plan plan = alone(&facts, 10);
    plan.shares[0].n_cpu_moe = 10;
    kin_prediction p = predict(&facts, &plan);
    assert_close(p.tpot_s, 10 * (0.0175 + 0.00025 + 0.0002) + 0.001 + 0.0002);
    assert_close(p.devices[0].resident_bytes, 750e6);
    assert_close(p.devices[0].gpu_bytes, 350e6);
    assert_int_equal(kin_timeline_play(&facts, &plan, &played_s, NULL), 0);
    assert_close(played_s, p.tpot_s);
    const kin_plan_options options = kin_plan_options_defaults();
    assert_int_equal(kin_plan_exact(&facts, &options, &best, NULL), 0);
    assert_int_equal(best.shares[0].n_layer_gpu, 10);
    assert_int_equal(best.shares[0].n_cpu_moe, 10);
    d->gpu_memory_bytes = 350e6 + 2 * (75e6 + 1e9); // and two whole layers
    assert_int_equal(kin_plan_exact(&facts, &options, &best, NULL), 0);
    assert_int_equal(best.shares[0].n_layer_gpu, 10);
    assert_int_equal(best.shares[0].n_cpu_moe, 8);
    facts.model.cpu_only = true;
    assert_int_equal(kin_plan_exact(&facts, &options, &best, NULL), 0);
    assert_int_equal(best.shares[0].n_layer_gpu, 0);
    facts.model.cpu_only = false;
    d->memory_bytes = 750e6 + 5e9; // room for half of the experts
    assert_close(predict(&facts, &plan).devices[0].experts_s, missed_s(0.5, 1));
    plan.shares[0].n_cpu_moe = 11;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "10 layers on the GPU, the experts of 11 of them on the CPU"));
    plan.shares[0].n_cpu_moe = 10;
    memset(facts.model.expert_bytes, 0, sizeof facts.model.expert_bytes);
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the model has none"));
}

static void experts_that_are_used_often_are_in_memory(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 1);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1;
    facts.devices[0].memory_bytes = 6.1e9; // room for the other 1.1 GB and half of the experts
    kin_plan plan = alone(&facts, 0);
    const double hits[KIN_FACTS_N_HITS] = {0.6, 0.8, 0.9};
    memcpy(facts.model.expert_hits, hits, sizeof hits);
    assert_close(predict(&facts, &plan).devices[0].experts_s, missed_s(0.2, 0.8));
    facts.devices[0].memory_bytes = 7.35e9; // five eighths
    assert_close(predict(&facts, &plan).devices[0].experts_s, missed_s(0.15, 0.4));
    facts.devices[0].memory_bytes = 1.1e9 + 0.125 * 10e9;
    assert_close(predict(&facts, &plan).devices[0].experts_s, missed_s(0.7, 2.4));
}

// The experts that a device with one layer missed belong to this layer. If all experts are used equally, they are as useful as
// those that they replaced.
static void one_layer_finds_the_experts_that_it_missed(void **state) {
    (void)state;
    kin_facts facts;
    make_simple(&facts, 2);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1;
    facts.devices[1].memory_bytes = 0.1e9 + 0.5e9; // a layer, with half of its experts
    kin_plan plan = {.n_rounds = 1, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{9, 0, 0}, {1, 0, 0}}};
    assert_close(predict(&facts, &plan).devices[1].experts_s, 0.5 * 0.1);
}

// A prompt of 400 tokens uses all experts, so each layer reads what it misses within a second. What it misses takes the place of
// other layers' experts, as long as there are any.
static void a_prompt_reads_each_missing_expert_once(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    make_simple(&facts, 1);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1;
    kin_plan plan = alone(&facts, 0);
    facts.devices[0].memory_bytes = 1.1e9 + 5e9; // the other weights, and half of the experts
    assert_int_equal(kin_latency_pass(&facts, &plan, 400, 0, 0, &p, NULL), 0);
    assert_close(p.devices[0].experts_s, 10 * 0.5 / (1 - 0.1));
    facts.devices[0].memory_bytes = 1.1e9 + 0.5e9; // half a layer's
    assert_int_equal(kin_latency_pass(&facts, &plan, 400, 0, 0, &p, NULL), 0);
    assert_close(p.devices[0].experts_s, 10);
    make_simple(&facts, 2);
    facts.model.expert_bytes[KIN_QUANT_Q4_K] = 1e9;
    facts.model.expert_share = 0.1;
    facts.devices[1].memory_bytes = 0.1e9 + 0.5e9; // one layer, which finds what was left there
    const kin_plan two = {.n_rounds = 1, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{9, 0, 0}, {1, 0, 0}}};
    assert_int_equal(kin_latency_pass(&facts, &two, 400, 0, 0, &p, NULL), 0);
    assert_close(p.devices[1].experts_s, 0.5);
}

static void a_layer_s_size_counts_where_it_lies(void **state) {
    (void)state;
    kin_facts facts;
    double bytes[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    make_simple(&facts, 2);
    kin_facts_set_shares(&facts.model, bytes);
    kin_plan plan = {.n_rounds = 1, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{1, 0, 0}, {9, 0, 0}}};
    kin_prediction p = predict(&facts, &plan); // the head has the last layer
    assert_close(p.devices[0].compute_s, 0.010 + 0.010 * 3 / 1.2);
    assert_close(p.devices[1].compute_s, 0.010 * 9 / 1.2);
}

// The head has the one layer that holds most of the context.
static void a_layer_s_part_of_the_context_counts_where_it_lies(void **state) {
    (void)state;
    kin_facts facts;
    double held[10] = {0, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 12e6};
    make_simple(&facts, 2);
    kin_facts_set_kv(&facts.model, facts.work.n_ctx, held);
    kin_plan plan = {.n_rounds = 1, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{1, 0, 0}, {9, 0, 0}}};
    const kin_prediction with = predict(&facts, &plan);
    memset(held, 0, sizeof held);
    kin_facts_set_kv(&facts.model, facts.work.n_ctx, held);
    const kin_prediction without = predict(&facts, &plan);
    assert_close(with.devices[0].memory_bytes, without.devices[0].memory_bytes + 12e6);
    assert_close(with.devices[1].memory_bytes, without.devices[1].memory_bytes + 8e6);
}

// More memory or a faster disk, CPU or link never increases the predicted time.
static void better_facts_never_predict_a_longer_token(void **state) {
    (void)state;
    kin_plan_options options = kin_plan_options_defaults();
    kin_facts facts;
    kin_rng rng;
    kin_rng_seed(&rng, 29);
    for (int round = 0; round < N_RANDOM; round++) {
        kin_plan plan;
        kin_prediction p;
        kin_random_facts(&facts, &rng, 5, 40);
        options.n_rounds = 1 + kin_random_below(&rng, 3);
        if (kin_plan_exact(&facts, &options, &plan, NULL) != 0) continue;
        int i = kin_random_below(&rng, facts.n_device);
        kin_device_facts *d = &facts.devices[i];
        switch (kin_random_below(&rng, 4)) {
        case 0: d->memory_bytes *= 1.2; break;
        case 1: d->disk_bytes_s *= 1.2, d->disk_random_bytes_s *= 1.2; break;
        case 2:
            for (int to = 0; to < facts.n_device; to++) facts.links[i][to].bytes_s *= 1.2;
            break;
        default:
            for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] *= 1.2;
        }
        p = predict(&facts, &plan);
        if (p.tpot_s > plan.tpot_s * (1 + 1e-9)) fail_msg("round %d: %g s became %g s", round, plan.tpot_s, p.tpot_s);
    }
}

static void a_plan_that_is_none_is_refused(void **state) {
    (void)state;
    kin_facts facts;
    kin_prediction p;
    kin_err err;
    make_simple(&facts, 2);
    const kin_plan good = {.n_rounds = 2, .n_stops = 2, .stops = {{0, false}, {1, false}}, .shares = {{5, 0, 0}, {5, 0, 0}}};
    kin_plan plan = good;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), 0);
    plan.shares[1].n_layer = 4;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "9 layers assigned, but the model has 10"));
    plan = good;
    plan.shares[0].n_layer = 9, plan.shares[1].n_layer = 1;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "1 layers for 2 rounds"));
    plan = good;
    plan.shares[0].n_layer_gpu = 1;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no GPU"));
    plan = good;
    plan.n_stops = 1;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "not in the ring"));
    plan = good;
    facts.links[1][0].bytes_s = 0;
    assert_int_equal(kin_timeline_closed(&facts, &plan, &p, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no link from"));
}

static void a_new_plan_must_win_by_a_margin(void **state) {
    (void)state;
    assert_false(kin_plan_is_worth_changing(0.100, 0.096));
    assert_true(kin_plan_is_worth_changing(0.100, 0.094));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_closed_form_is_close_to_the_timeline_played),
        cmocka_unit_test(layers_of_unlike_sizes_are_played_as_they_are),
        cmocka_unit_test(the_closed_form_of_a_prompt_is_close_to_its_chunks_played),
        cmocka_unit_test(a_prediction_that_is_shown_is_the_played_one),
        cmocka_unit_test(chunks_of_a_prompt_follow_each_other),
        cmocka_unit_test(a_prompt_is_cut_as_the_head_cuts_it),
        cmocka_unit_test(a_chunk_is_worth_reading_for_that_takes_as_long_to_compute),
        cmocka_unit_test(a_prompt_without_end_is_refused),
        cmocka_unit_test(in_memory_a_token_is_computing_only),
        cmocka_unit_test(streaming_alone_costs_the_disk_its_time),
        cmocka_unit_test(what_the_ring_cannot_take_while_a_block_is_computed_is_waited_for),
        cmocka_unit_test(a_block_that_is_larger_than_the_ring_takes_finite_time),
        cmocka_unit_test(more_rounds_hide_more_loading),
        cmocka_unit_test(a_gpu_has_its_own_memory_or_shares_it),
        cmocka_unit_test(experts_that_are_not_in_memory_wait_for_the_disk),
        cmocka_unit_test(attention_alone_on_the_gpu_leaves_the_experts_to_the_cpu),
        cmocka_unit_test(experts_that_are_used_often_are_in_memory),
        cmocka_unit_test(one_layer_finds_the_experts_that_it_missed),
        cmocka_unit_test(a_prompt_reads_each_missing_expert_once),
        cmocka_unit_test(a_layer_s_size_counts_where_it_lies),
        cmocka_unit_test(a_layer_s_part_of_the_context_counts_where_it_lies),
        cmocka_unit_test(a_gpu_with_all_layers_has_the_output_too),
        cmocka_unit_test(attention_of_a_prompt_has_its_own_rate),
        cmocka_unit_test(a_batch_takes_what_was_measured_of_so_many_rows),
        cmocka_unit_test(a_weight_type_has_a_factor_of_its_own),
        cmocka_unit_test(keys_and_values_are_read_once_for_a_group_s_heads_and_a_batch_s_rows),
        cmocka_unit_test(an_expert_s_products_are_slower_than_a_batch_s),
        cmocka_unit_test(better_facts_never_predict_a_longer_token),
        cmocka_unit_test(a_plan_that_is_none_is_refused),
        cmocka_unit_test(a_new_plan_must_win_by_a_margin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
