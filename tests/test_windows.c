// Windowed layers that keep only the window: each sequence has the same logits as when it runs alone with the whole context in
// memory, whatever runs beside it, however its prompt is cut, whether its beginning is another's, and whether its drafts are
// right.
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
#include "base/log.h"
#include "base/rng.h"
#include "pipeline/scheduler.h"
#include "testkit/small_models.h"
#include "testkit/thread_ring.h"
#include "tests/block_table.h"
#include "tests/memory_dir.h"
#include "tests/place.h"
#include "tests/small_request.h"

// Three of four layers are windowed.
enum {
    N_VOCAB = KIN_SMALL_VOCAB,
    N_LAYER = 12,
    N_EMBD = 32,
    DIM = KIN_SMALL_DIM, // of both heads
    N_CTX = 3072,
    N_BATCH = 64,
    MAX_MADE = 200,
};

// ---- the model

static char model_path[] = "/tmp/kin-test-windows-XXXXXX", root[64];

static int make_model(kin_small_model kind) {
    kin_err err;
    strcpy(model_path, "/tmp/kin-test-windows-XXXXXX");
    return kin_small_model_make(kind, model_path, &err);
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s/kin-test-windows-disk-XXXXXX", memory_dir());
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

// ---- sequences

// The text once more, with n_more other tokens behind the prompt.
static request again(const request *t, int n_more) {
    request a = {.n_prompt = t->n_prompt + n_more, .n_most = t->n_most};
    memcpy(a.prompt, t->prompt, (size_t)t->n_prompt * sizeof *a.prompt);
    for (int i = 0; i < n_more; i++) a.prompt[t->n_prompt + i] = (i * 31 + 5) % N_VOCAB;
    return a;
}

typedef struct context {
    kin_thread_ring *ring;
    kin_scheduler *s;
    kin_prefix_pages *pages;
} context;

static bool has_pages, is_ahead;
static char dirs[KIN_THREAD_RING_MEMBERS][80];

// n_sequences: for whose windows there is room; 0: the whole context is kept.
static context open_context(int n_members, int n_rounds, int n_sequences, int n_parallel) {
    kin_thread_ring_options o = {
        .n_members = n_members, .n_batch = N_BATCH, .n_ctx = N_CTX, .n_steps = n_members > 1 ? 8 : 1, .n_sequences = n_sequences};
    context w = {0};
    char head[80];
    kin_err err;
    for (int i = 0; i < n_members; i++) {
        o.shares[i] = (kin_layer_share){N_LAYER / n_members / n_rounds, 0, 0};
        snprintf(dirs[i], sizeof dirs[i], "%s/%d", root, i);
        if (has_pages) o.kv_dirs[i] = dirs[i];
    }
    snprintf(head, sizeof head, "%s/head", root);
    const kin_prefix_pages_options po = {.disk = {.dir = head}, .context = "model", .n_context = 5};
    if (has_pages && kin_prefix_pages_open(&w.pages, &po, &err) != 0) fail_msg("%s", err.text);
    if (kin_thread_ring_open(&w.ring, model_path, &o, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_thread_ring_n_rounds(w.ring), n_rounds);
    const kin_hparams *hp = &kin_thread_ring_model(w.ring)->hp;
    kin_scheduler_options so = {.n_ctx = N_CTX,
                                .n_vocab = N_VOCAB,
                                .n_embd = N_EMBD,
                                .n_parallel = n_parallel,
                                .keeps = true,
                                .pages = w.pages,
                                .always_ahead = is_ahead,
                                .window = kin_kv_window_of(hp, N_CTX, N_BATCH, n_sequences),
                                .draft_least = KIN_DRAFT_MAX};
    assert_true((so.window.n_blocks > 0) == (n_sequences > 0));
    if (kin_scheduler_open(&w.s, &so, &err) != 0 || kin_scheduler_set_head(w.s, kin_thread_ring_head(w.ring), &err) != 0)
        fail_msg("%s", err.text);
    return w;
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_err err;
    if (kin_scheduler_settle(w->s, &err) != 0) fail_msg("%s", err.text);
    kin_scheduler_close(w->s);
    kin_prefix_pages_close(w->pages);
    kin_thread_ring_close(w->ring);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

#define submit(w, t) request_submit((w)->s, t)
#define run(w) request_run_all((w)->s)

static void run_alone(const request *t, request *alone) {
    const bool had_pages = has_pages;
    has_pages = false;
    context w = open_context(1, 1, 0, 1);
    has_pages = had_pages;
    *alone = *t;
    submit(&w, alone);
    run(&w);
    close_context(&w);
}
#define run_alone(...) FROM_TEST(run_alone(__VA_ARGS__))

// ---- tests

enum { N_REQUESTS = 6 };

static request requests[N_REQUESTS], alone[N_REQUESTS];

static int make_requests(void **state) {
    (void)state;
    for (int i = 0; i < N_REQUESTS; i++) {
        request_make(&requests[i], 3 + i, i % 2 ? 300 : 0, i == 4 ? 50 : 430 + 37 * i, MAX_MADE - 20 * i);
        run_alone(&requests[i], &alone[i]);
    }
    return 0;
}

static void check_beside_each_other(int n_members, int n_rounds, int n_sequences, int n_parallel) {
    static request now[N_REQUESTS];
    memcpy(now, requests, sizeof now);
    context w = open_context(n_members, n_rounds, n_sequences, n_parallel);
    for (int i = 0; i < N_REQUESTS; i++) submit(&w, &now[i]);
    run(&w);
    for (int i = 0; i < N_REQUESTS; i++) request_expect_same(&now[i], &alone[i]);
    close_context(&w);
}
#define check_beside_each_other(...) FROM_TEST(check_beside_each_other(__VA_ARGS__))

static void sequences_beside_each_other_are_those_alone(void **state) {
    (void)state;
    check_beside_each_other(1, 1, 4, 4);
    check_beside_each_other(1, 1, 1, 1);
}

static void a_ring_in_two_rounds_gives_the_sequences_of_one_machine(void **state) {
    (void)state;
    check_beside_each_other(3, 1, 4, 4);
    check_beside_each_other(3, 2, 4, 4);
}

// There is room for the windows of three sequences, and two steps.
static void sequences_that_wait_for_blocks_are_the_same(void **state) {
    (void)state;
    check_beside_each_other(1, 1, 1, N_REQUESTS);
    check_beside_each_other(3, 2, 1, N_REQUESTS);
}

static void check_drafts(int n_members, int n_rounds) {
    static request with;
    with = requests[1];
    context w = open_context(n_members, n_rounds, 1, 1);
    with.known = &alone[1];
    submit(&w, &with);
    run(&w);
    request_expect_same(&with, &alone[1]);
    const uint64_t n = with.drafts.drafted[KIN_DRAFT_ORACLE], n_right = with.drafts.accepted[KIN_DRAFT_ORACLE];
    assert_true(n_right > 5 && n > n_right);
    assert_true(is_ahead || with.drafts.branches > 0);
    close_context(&w);
}
#define check_drafts(...) FROM_TEST(check_drafts(__VA_ARGS__))

static void drafts_change_no_sequence(void **state) {
    (void)state;
    check_drafts(1, 1);
    check_drafts(3, 1);
    check_drafts(3, 2);
}

static void drafts_in_several_steps_at_once_change_no_sequence(void **state) {
    (void)state;
    is_ahead = true;
    check_drafts(3, 1);
    check_drafts(3, 2);
    is_ahead = false;
}

// The next turn of a conversation has another text behind the prompt: all of the prompt but its end is reused, though the window
// has left it.
static void a_next_turn_begins_near_the_end_of_the_prompt(void **state) {
    static request first, second, third, fresh;
    (void)state;
    request_make(&first, 7, 0, 400, MAX_MADE);
    context w = open_context(1, 1, 2, 2);
    second = again(&first, 150);
    third = second;
    submit(&w, &first);
    run(&w);
    run_alone(&second, &fresh);
    submit(&w, &second);
    run(&w);
    assert_int_equal(second.n_cached, 384);
    request_expect_same(&second, &fresh);
    submit(&w, &third); // the same once more, from the mark near its own end
    run(&w);
    assert_int_equal(third.n_cached, 512);
    request_expect_same(&third, &fresh);
    close_context(&w);
}

// Where two prompts have parted, a third one begins.
static void a_third_prompt_begins_where_two_parted(void **state) {
    static request parted[3], fresh;
    (void)state;
    context w = open_context(1, 1, 2, 1);
    for (int i = 0; i < 3; i++) {
        request_make(&parted[i], 11 + i, 300, 700, 4);
        run_alone(&parted[i], &fresh);
        submit(&w, &parted[i]);
        run(&w);
        request_expect_same(&parted[i], &fresh);
    }
    assert_int_equal(parted[1].n_cached, 0);
    assert_int_equal(parted[2].n_cached, 256);
    close_context(&w);
}

// The second prompt ends to be like the first one within the block before its mark, and begins while that is in flight, or later.
static void a_prompt_begins_with_a_part_of_one_in_flight(void **state) {
    static request parted[2], fresh[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        request_make(&parted[i], 21 + i, 440, 470 + 20 * i, 30);
        run_alone(&parted[i], &fresh[i]);
    }
    bool was_reused = false;
    for (int n_steps = 1; n_steps <= 12; n_steps++) {
        request now[2] = {parted[0], parted[1]};
        kin_err err;
        bool busy;
        context w = open_context(3, 1, 2, 2);
        submit(&w, &now[0]);
        for (int i = 0; i < n_steps; i++) assert_int_equal(kin_scheduler_step(w.s, &busy, &err), 0);
        submit(&w, &now[1]);
        run(&w);
        close_context(&w);
        for (int i = 0; i < 2; i++) request_expect_same(&now[i], &fresh[i]);
        was_reused = was_reused || now[1].n_cached == 384;
    }
    assert_true(was_reused);
}

// A text that is whole within the window is reused at any position.
static void a_short_sequence_is_reused_anywhere(void **state) {
    static request first, second, fresh;
    (void)state;
    request_make(&first, 5, 40, 60, 20);
    request_make(&second, 6, 40, 60, 20);
    context w = open_context(1, 1, 1, 1);
    submit(&w, &first);
    run(&w);
    run_alone(&second, &fresh);
    submit(&w, &second);
    run(&w);
    assert_int_equal(second.n_cached, 40);
    request_expect_same(&second, &fresh);
    close_context(&w);
}

static void check_restart(int n_members, int n_rounds) {
    static request first, second;
    const int at_disk = requests[5].n_prompt / KIN_KV_CELLS * KIN_KV_CELLS;
    assert_int_equal(make_root(NULL), 0);
    has_pages = true;
    first = second = requests[5];
    context w = open_context(n_members, n_rounds, 1, 1);
    submit(&w, &first);
    run(&w);
    close_context(&w);
    request_expect_same(&first, &alone[5]);
    w = open_context(n_members, n_rounds, 1, 1);
    submit(&w, &second);
    run(&w);
    close_context(&w);
    has_pages = false;
    remove_root(NULL);
    print_message("             %d members, %d rounds: %d tokens loaded\n", n_members, n_rounds, second.n_cached);
    request_expect_same(&second, &alone[5]);
    if (n_rounds == 1) assert_int_equal(second.n_cached, at_disk);
}
#define check_restart(...) FROM_TEST(check_restart(__VA_ARGS__))

static void a_sequence_is_found_after_a_restart(void **state) {
    (void)state;
    check_restart(1, 1);
    check_restart(3, 1);
    check_restart(3, 2);
}

// Texts are loaded while others run.
static void a_sequence_is_loaded_beside_others(void **state) {
    static request now[N_REQUESTS];
    (void)state;
    for (int n_rounds = 1; n_rounds <= 2; n_rounds++) {
        assert_int_equal(make_root(NULL), 0);
        has_pages = true;
        for (int turn = 0; turn < 2; turn++) {
            memcpy(now, requests, sizeof now);
            context w = open_context(3, n_rounds, 4, 4);
            for (int i = 0; i < N_REQUESTS; i++) submit(&w, &now[i]);
            run(&w);
            close_context(&w);
            for (int i = 0; i < N_REQUESTS; i++) request_expect_same(&now[i], &alone[i]);
        }
        has_pages = false;
        remove_root(NULL);
    }
}

static void windowed_layers_take_the_window_s_memory(void **state) {
    (void)state;
    const uint64_t cell = 2 * DIM * 2; // keys and values in F16
    context whole = open_context(1, 1, 0, 1), window = open_context(1, 1, 1, 1);
    // Three windows of 2 blocks and 3 more, and the pages that a request loads, which are more than two steps of a block
    const uint64_t n_cells = (3 * (2 + 3) + KIN_PAGES_MAX) * KIN_KV_CELLS;
    assert_int_equal(kin_thread_ring_stats(whole.ring, 0).kv_bytes, N_LAYER * N_CTX * cell);
    assert_int_equal(kin_thread_ring_stats(window.ring, 0).kv_bytes,
                     N_LAYER / 4 * N_CTX * cell + N_LAYER / 4 * 3 * n_cells * cell);
    close_context(&whole);
    close_context(&window);
}

// ---- the table

static void a_sequence_keeps_its_last_positions(void **state) {
    const kin_kv_window window = {.size = 100, .n_blocks = 20, .n_most = 12};
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 6400, 0, &window, &err), 0);
    append(b, 0, 300);
    assert_int_equal(kin_kv_blocks_nearest(b, 0, 200), 200);
    for (int i = 0; i < 10; i++) append(b, 0, 300);
    assert_int_equal(kin_kv_blocks_n_tokens(b, 0), 3300);
    assert_int_equal(kin_kv_blocks_n_gone(b, 0), (2700 - 99 - 64) / 64); // as of the step before the last one
    append(b, 0, 1);
    assert_int_equal(kin_kv_blocks_n_gone(b, 0), (3000 - 99 - 64) / 64);
    assert_int_equal(kin_kv_blocks_nearest(b, 0, 3000), 3000);
    assert_int_equal(kin_kv_blocks_nearest(b, 0, 2900), 0);
    assert_int_not_equal(apply(b, 0, 0, 2900), 0);
    assert_int_not_equal(apply(b, 1, 0, 2900), 0);
    assert_int_equal(apply(b, 1, 0, 3210), 0); // with a block of its own
    append(b, 1, 150);
    append(b, 0, 64);
    append(b, 0, 1);
    append(b, 0, 1);
    assert_int_equal(apply(b, 0, 0, 3302), 0);
    assert_int_equal(apply(b, 0, 0, 0), 0);
    assert_int_equal(kin_kv_blocks_n_gone(b, 0), 0);
    append(b, 0, 10);
    assert_int_equal(apply(b, -1, 0, 0), 0);
    assert_true(kin_kv_blocks_fit(b, 100)); // n_most of them in windowed layers
    assert_int_equal(kin_kv_blocks_n_free(b), kin_kv_blocks_n(b));
    kin_kv_blocks_close(b);
}

static int set_up(void **state) {
    return make_model(KIN_SMALL_WINDOWED) == 0 ? make_requests(state) : -1;
}

static int set_up_shared(void **state) {
    return make_model(KIN_SMALL_SHARED) == 0 ? make_requests(state) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_keeps_its_last_positions),
        cmocka_unit_test(windowed_layers_take_the_window_s_memory),
        cmocka_unit_test(sequences_beside_each_other_are_those_alone),
        cmocka_unit_test(a_ring_in_two_rounds_gives_the_sequences_of_one_machine),
        cmocka_unit_test(sequences_that_wait_for_blocks_are_the_same),
        cmocka_unit_test(drafts_change_no_sequence),
        cmocka_unit_test(drafts_in_several_steps_at_once_change_no_sequence),
        cmocka_unit_test(a_next_turn_begins_near_the_end_of_the_prompt),
        cmocka_unit_test(a_third_prompt_begins_where_two_parted),
        cmocka_unit_test(a_prompt_begins_with_a_part_of_one_in_flight),
        cmocka_unit_test(a_short_sequence_is_reused_anywhere),
        cmocka_unit_test(a_sequence_is_found_after_a_restart),
        cmocka_unit_test(a_sequence_is_loaded_beside_others),
    };
    // Layers that read keys and values of others, on devices that have these, or copies of theirs.
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(sequences_beside_each_other_are_those_alone),
        cmocka_unit_test(a_ring_in_two_rounds_gives_the_sequences_of_one_machine),
        cmocka_unit_test(sequences_that_wait_for_blocks_are_the_same),
        cmocka_unit_test(drafts_change_no_sequence),
        cmocka_unit_test(drafts_in_several_steps_at_once_change_no_sequence),
        cmocka_unit_test(a_prompt_begins_with_a_part_of_one_in_flight),
        cmocka_unit_test(a_sequence_is_found_after_a_restart),
        cmocka_unit_test(a_sequence_is_loaded_beside_others),
    };
    int n_failed = cmocka_run_group_tests(tests, set_up, remove_model);
    return n_failed + cmocka_run_group_tests(shared, set_up_shared, remove_model);
}
