// The gain of a draft model (pure/plan/draft_gain.h) in cases whose answer is known.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "pure/plan/draft_gain.h"
#include "testkit/paper_clusters.h"
#include "tests/place.h"

static const double DISK = 1e9; // bytes per second

// The paper's head alone, without a GPU, and an 8B model; the draft model has two of its layers and no output matrix.
static void make_facts(kin_facts *facts, kin_model_facts *draft, double memory) {
    kin_paper_facts(facts, KIN_PAPER_TABLE_3, KIN_PAPER_8B, 1);
    facts->devices[0].has_gpu = false;
    facts->devices[0].memory_bytes = memory;
    facts->devices[0].disk_bytes_s = facts->devices[0].disk_random_bytes_s = DISK;
    *draft = facts->model;
    draft->n_layer = 2;
    draft->cpu_buffer_bytes = 0;
    memset(draft->output_bytes, 0, sizeof draft->output_bytes);
    memset(draft->output_flops, 0, sizeof draft->output_flops);
}

static kin_draft_gain gain_of(const kin_facts *facts, const kin_model_facts *draft) {
    kin_plan_options options = kin_plan_options_defaults();
    kin_draft_gain g;
    kin_err err = {""};
    if (kin_draft_gain_make(&g, facts, &options, &kin_plan_schedulers[0], draft, &err) != 0) fail_msg("%s", err.text);
    return g;
}
#define gain_of(...) FROM_TEST(gain_of(__VA_ARGS__))

static void in_plenty_of_memory_nothing_is_taken_from_the_model(void **state) {
    (void)state;
    kin_facts facts;
    kin_model_facts draft;
    make_facts(&facts, &draft, 64e9);
    kin_draft_gain g = gain_of(&facts, &draft);
    assert_true(fabs(g.rows_s[1] - g.plain_s) < 1e-12 && g.pass_s > 0 && g.pass_s < g.plain_s / 8);
    assert_true(g.second_token_s > 0 && g.second_token_s < g.pass_s);
    assert_true(fabs(kin_draft_gain_tpot(&g, 0.5, 0) - g.plain_s) < 1e-12);
    for (int k = 1; k <= KIN_DRAFT_MAX; k++) {
        // All drafts are accepted; the draft model reads the last one together with the next token.
        double tpot = (g.rows_s[k + 1] + k * g.pass_s + g.second_token_s) / (k + 1);
        assert_true(fabs(kin_draft_gain_tpot(&g, 1, k) - tpot) < 1e-12);
        assert_true(fabs(kin_draft_gain_tpot(&g, 0, k) - (g.rows_s[k + 1] + k * g.pass_s)) < 1e-12); // none is accepted
    }
    double before = g.rows_s[1];
    for (double a = 0; a <= 1; a += 0.1) {
        double best = kin_draft_gain_tpot(&g, a, kin_draft_gain_best(&g, a));
        assert_true(best <= before);
        for (int k = 0; k <= KIN_DRAFT_MAX; k++) assert_true(best <= kin_draft_gain_tpot(&g, a, k));
        before = best;
    }
}

// The draft model's first pass of a step follows a pass of the model, which evicts its weights; the others follow each other.
static void weights_that_stay_in_the_cache_between_two_passes_come_faster(void **state) {
    (void)state;
    kin_facts facts;
    kin_model_facts draft;
    make_facts(&facts, &draft, 64e9);
    double scale = 24 * 1048576.0 / (2 * kin_facts_layer_bytes(&draft));
    for (int q = 0; q < KIN_N_QUANT; q++) draft.layer_bytes[q] *= scale;
    draft.attn_bytes *= scale;
    kin_draft_gain plain = gain_of(&facts, &draft);
    assert_true(plain.first_s == plain.pass_s);
    facts.devices[0].cpu.cached_factor[0][KIN_QUANT_OTHER] = 0.4;
    facts.devices[0].cpu.cached_factor[1][KIN_QUANT_OTHER] = 0.6;
    kin_draft_gain g = gain_of(&facts, &draft);
    double factor = 0.4 + 0.2 * log2(24.0 / 16);
    assert_true(g.first_s == plain.first_s && g.rows_s[2] == plain.rows_s[2] && g.second_token_s == plain.second_token_s);
    assert_true(g.pass_s < plain.pass_s && g.pass_s > factor * plain.pass_s); // only reading weights becomes faster
    double fixed_s = (g.pass_s - factor * plain.pass_s) / (1 - factor);
    assert_true(fixed_s >= 0 && fixed_s < plain.pass_s);
    assert_true(fabs(kin_draft_gain_tpot(&g, 0, 3) - (g.rows_s[4] + g.first_s + 2 * g.pass_s)) < 1e-12);
    for (int q = 0; q < KIN_N_QUANT; q++) draft.layer_bytes[q] *= 11; // 264 MB
    g = gain_of(&facts, &draft);
    assert_true(g.first_s == g.pass_s);
}

static void from_a_streaming_device_its_bytes_are_read_in_every_pass(void **state) {
    (void)state;
    kin_facts facts;
    kin_model_facts draft;
    make_facts(&facts, &draft, 4e9);
    kin_draft_gain g = gain_of(&facts, &draft);
    double cost = g.rows_s[1] - g.plain_s, bytes = g.memory_bytes;
    assert_true(bytes > 2 * kin_facts_layer_bytes(&draft));
    // Tolerances: one resident weight block more or less, and the part of the reading that was already waited for.
    assert_true(fabs(cost - bytes / DISK) < 0.05 * bytes / DISK + facts.model.weight_block_bytes / DISK);
    assert_true(kin_draft_gain_best(&g, 0.9) > 5); // additional rows cost nothing
    assert_true(g.plain_s / kin_draft_gain_tpot(&g, 0.9, kin_draft_gain_best(&g, 0.9)) > 3);
}

static void advice_begins_where_tokens_come_5_percent_faster(void **state) {
    (void)state;
    kin_facts facts;
    kin_model_facts draft;
    for (double memory = 3e9; memory < 10e9; memory += 1e9) {
        make_facts(&facts, &draft, memory);
        kin_draft_gain g = gain_of(&facts, &draft);
        double from = kin_draft_gain_worth_from(&g), below = from - 0.011;
        assert_true(from > 0 && from <= 1);
        assert_true(kin_draft_gain_tpot(&g, from, kin_draft_gain_best(&g, from)) * 1.05 <= g.plain_s);
        if (below > 0) assert_true(kin_draft_gain_tpot(&g, below, kin_draft_gain_best(&g, below)) * 1.05 > g.plain_s);
    }
    make_facts(&facts, &draft, 64e9);
    draft.n_layer = facts.model.n_layer; // as large as the model
    kin_draft_gain g = gain_of(&facts, &draft);
    assert_true(kin_draft_gain_worth_from(&g) > 1);
}

static void a_draft_model_that_leaves_no_room_is_a_sentence(void **state) {
    (void)state;
    kin_facts facts;
    kin_model_facts draft;
    kin_plan_options options = kin_plan_options_defaults();
    kin_draft_gain g;
    kin_err err = {""};
    make_facts(&facts, &draft, 3e9);
    draft.n_layer = facts.model.n_layer;
    assert_int_equal(kin_draft_gain_make(&g, &facts, &options, &kin_plan_schedulers[0], &draft, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "beside the draft model"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_plenty_of_memory_nothing_is_taken_from_the_model),
        cmocka_unit_test(weights_that_stay_in_the_cache_between_two_passes_come_faster),
        cmocka_unit_test(from_a_streaming_device_its_bytes_are_read_in_every_pass),
        cmocka_unit_test(advice_begins_where_tokens_come_5_percent_faster),
        cmocka_unit_test(a_draft_model_that_leaves_no_room_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
