// Models with recurrent layers: each sequence has the same logits as when it runs alone, whatever runs beside it, however its
// prompt is cut, whether its beginning is another's, and whether its drafts are right.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "pipeline/scheduler.h"
#include "testkit/small_models.h"
#include "testkit/thread_ring.h"
#include "tests/block_table.h"
#include "tests/place.h"
#include "tests/small_request.h"

// Two of three layers are recurrent: delta nets, or short convolutions.
enum {
    N_VOCAB = KIN_SMALL_VOCAB,
    N_LAYER = 6,
    N_EMBD = 64,
    N_CTX = 2048,
    N_BATCH = 64,
    MAX_MADE = 24,
};

// ---- the model

static char model_path[64];

static int make(kin_small_model kind) {
    kin_err err;
    snprintf(model_path, sizeof model_path, "/tmp/kin-test-states-XXXXXX");
    return kin_small_model_make(kind, model_path, &err);
}

static int make_model(void **state) {
    (void)state;
    return make(KIN_SMALL_DELTA);
}

static int make_short_model(void **state) {
    (void)state;
    return make(KIN_SMALL_CONV);
}

static int make_state_model(void **state) {
    (void)state;
    return make(KIN_SMALL_STATE);
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

// ---- sequences

typedef struct context {
    kin_thread_ring *ring;
    kin_scheduler *s;
} context;

static context open_context(int n_members, int n_rounds, int n_ctx, int n_parallel) {
    kin_thread_ring_options o = {.n_members = n_members, .n_batch = N_BATCH, .n_ctx = n_ctx, .n_steps = n_members > 1 ? 8 : 1};
    for (int i = 0; i < n_members; i++) o.shares[i] = (kin_layer_share){N_LAYER / n_members / n_rounds, 0, 0};
    kin_scheduler_options so = {.n_ctx = n_ctx,
                                .n_vocab = N_VOCAB,
                                .n_embd = N_EMBD,
                                .n_parallel = n_parallel,
                                .keeps = true,
                                .draft_least = KIN_DRAFT_MAX};
    context w;
    kin_err err;
    if (kin_thread_ring_open(&w.ring, model_path, &o, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_thread_ring_n_rounds(w.ring), n_rounds);
    so.n_states = kin_kv_n_states(&kin_thread_ring_model(w.ring)->hp, n_ctx);
    if (kin_scheduler_open(&w.s, &so, &err) != 0 || kin_scheduler_set_head(w.s, kin_thread_ring_head(w.ring), &err) != 0)
        fail_msg("%s", err.text);
    return w;
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_scheduler_close(w->s);
    kin_thread_ring_close(w->ring);
}

#define submit(w, t) request_submit((w)->s, t)
#define run(w) request_run_all((w)->s)

static void run_alone(const request *t, request *alone) {
    context w = open_context(1, 1, N_CTX, 1);
    *alone = *t;
    submit(&w, alone);
    run(&w);
    close_context(&w);
}
#define run_alone(...) FROM_TEST(run_alone(__VA_ARGS__))

// ---- tests

enum { N_REQUESTS = 5 };

static void check_beside_each_other(int n_members, int n_rounds, int n_ctx) {
    static request requests[N_REQUESTS], alone[N_REQUESTS];
    for (int i = 0; i < N_REQUESTS; i++) {
        request_make(&requests[i], 3 + i, i % 2 ? 200 : 0, 210 + 3 * i, MAX_MADE - i);
        run_alone(&requests[i], &alone[i]);
    }
    context w = open_context(n_members, n_rounds, n_ctx, 4);
    for (int i = 0; i < N_REQUESTS; i++) submit(&w, &requests[i]);
    run(&w);
    for (int i = 0; i < N_REQUESTS; i++) request_expect_same(&requests[i], &alone[i]);
    close_context(&w);
}
#define check_beside_each_other(...) FROM_TEST(check_beside_each_other(__VA_ARGS__))

static void sequences_beside_each_other_are_those_alone(void **state) {
    (void)state;
    check_beside_each_other(1, 1, N_CTX);
}

static void a_ring_in_two_rounds_gives_the_sequences_of_one_machine(void **state) {
    (void)state;
    check_beside_each_other(3, 1, N_CTX);
    check_beside_each_other(3, 2, N_CTX);
}

static void sequences_that_were_preempted_are_the_same(void **state) {
    (void)state;
    check_beside_each_other(1, 1, 640);
}

static void drafts_change_no_sequence(void **state) {
    static request t, alone;
    (void)state;
    request_make(&t, 5, 0, 100, MAX_MADE);
    run_alone(&t, &alone);
    for (int n_members = 1; n_members <= 3; n_members += 2) {
        request with = t;
        context w = open_context(n_members, 1, N_CTX, 1);
        with.known = &alone;
        submit(&w, &with);
        run(&w);
        request_expect_same(&with, &alone);
        const uint64_t n = with.drafts.drafted[KIN_DRAFT_ORACLE], n_right = with.drafts.accepted[KIN_DRAFT_ORACLE];
        assert_true(n_right > 5 && n > n_right);
        assert_int_equal(with.drafts.branches, 0);
        close_context(&w);
    }
}

// The next turn of a conversation has another text behind the prompt: all of the prompt but its end is reused.
static void a_next_turn_begins_near_the_end_of_the_prompt(void **state) {
    static request first, second, third, alone;
    (void)state;
    request_make(&first, 7, 0, 400, MAX_MADE);
    context w = open_context(1, 1, N_CTX, 2);
    submit(&w, &first);
    run(&w);
    second = first;
    second.n_ended = second.n_made = 0;
    second.logits = 0;
    for (int i = 0; i < 150; i++) second.prompt[second.n_prompt++] = (i * 31 + 5) % N_VOCAB;
    third = second;
    run_alone(&second, &alone);
    submit(&w, &second);
    run(&w);
    assert_int_equal(second.n_cached, 384);
    request_expect_same(&second, &alone);
    submit(&w, &third); // the same once more, from the mark near its own end
    run(&w);
    assert_int_equal(third.n_cached, 512);
    request_expect_same(&third, &alone);
    close_context(&w);
}

// Where two prompts have parted, a third one begins.
static void a_third_prompt_begins_where_two_parted(void **state) {
    static request requests[3], alone;
    (void)state;
    context w = open_context(1, 1, N_CTX, 1);
    for (int i = 0; i < 3; i++) {
        request_make(&requests[i], 11 + i, 300, 500, 4);
        run_alone(&requests[i], &alone);
        submit(&w, &requests[i]);
        run(&w);
        request_expect_same(&requests[i], &alone);
    }
    assert_int_equal(requests[1].n_cached, 0);
    assert_int_equal(requests[2].n_cached, 256);
    close_context(&w);
}

// ---- the table

static void a_state_goes_back_only_within_its_log(void **state) {
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 640, 3, NULL, &err), 0);
    append(b, 0, 100);
    append(b, 0, 5);
    assert_int_equal(kin_kv_blocks_run(b, 0).n, 5);
    assert_int_equal(kin_kv_blocks_run(b, 0).n_logged, 0);
    assert_int_equal(kin_kv_blocks_nearest(b, 0, 99), 0);
    assert_int_equal(kin_kv_blocks_nearest(b, 0, 102), 102);
    assert_int_not_equal(apply(b, 0, 0, 99), 0);
    assert_int_equal(apply(b, 0, 0, 103), 0);
    append(b, 0, 1);
    assert_int_equal(kin_kv_blocks_run(b, 0).n_logged, 3);
    assert_int_not_equal(apply(b, 0, 0, 102), 0);
    assert_int_equal(apply(b, 1, 0, 103), 0);
    append(b, 0, KIN_STATE_LOG + 1); // too many for the log
    assert_int_not_equal(apply(b, 2, 0, 104), 0);
    assert_int_equal(apply(b, 2, 0, 113), 0);
    assert_int_equal(kin_kv_blocks_n_free_states(b), 0);
    assert_int_not_equal(apply(b, 3, 0, 113), 0);
    assert_int_equal(apply(b, 1, 1, 0), 0);
    assert_int_equal(kin_kv_blocks_n_free_states(b), 1);
    kin_kv_blocks_close(b);
}

static void a_state_that_is_given_back_is_taken_again(void **state) {
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 640, 2, NULL, &err), 0);
    for (int i = 0; i < 3; i++) {
        append(b, 0, 1);
        assert_int_equal(kin_kv_blocks_n_free_states(b), 1);
        assert_int_equal(apply(b, 2, 0, 0), 0); // shares no token, so it has and needs no state
        assert_int_equal(kin_kv_blocks_n_free_states(b), 1);
        append(b, 1, 1);
        assert_int_equal(kin_kv_blocks_state(b, 0) + kin_kv_blocks_state(b, 1), 1);
        for (int seq = 0; seq < 2; seq++) assert_int_equal(apply(b, seq, seq, 0), 0);
        assert_int_equal(kin_kv_blocks_n_free_states(b), 2);
    }
    assert_int_equal(kin_kv_blocks_nearest(b, 100, 10), 0); // there never was such a sequence
    kin_kv_blocks_close(b);
}

static void a_step_that_fits_the_log_stores_no_state(void **state) {
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 640, 1, NULL, &err), 0);
    append(b, 0, KIN_STATE_LOG);
    assert_false(kin_kv_blocks_run(b, 0).stores);
    append(b, 0, KIN_STATE_LOG + 1);
    assert_true(kin_kv_blocks_run(b, 0).stores);
    kin_kv_blocks_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_goes_back_only_within_its_log),
        cmocka_unit_test(a_state_that_is_given_back_is_taken_again),
        cmocka_unit_test(a_step_that_fits_the_log_stores_no_state),
        cmocka_unit_test(sequences_beside_each_other_are_those_alone),
        cmocka_unit_test(a_ring_in_two_rounds_gives_the_sequences_of_one_machine),
        cmocka_unit_test(sequences_that_were_preempted_are_the_same),
        cmocka_unit_test(drafts_change_no_sequence),
        cmocka_unit_test(a_next_turn_begins_near_the_end_of_the_prompt),
        cmocka_unit_test(a_third_prompt_begins_where_two_parted),
    };
    const struct CMUnitTest of_others[] = {
        cmocka_unit_test(sequences_beside_each_other_are_those_alone),
        cmocka_unit_test(a_ring_in_two_rounds_gives_the_sequences_of_one_machine),
        cmocka_unit_test(sequences_that_were_preempted_are_the_same),
        cmocka_unit_test(drafts_change_no_sequence),
        cmocka_unit_test(a_next_turn_begins_near_the_end_of_the_prompt),
        cmocka_unit_test(a_third_prompt_begins_where_two_parted),
    };
    int n_failed = cmocka_run_group_tests(tests, make_model, remove_model);
    n_failed += cmocka_run_group_tests(of_others, make_short_model, remove_model);
    return n_failed + cmocka_run_group_tests(of_others, make_state_model, remove_model);
}
