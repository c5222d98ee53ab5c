// A draft model (pipeline/draft_model.h): earlier requests do not affect it; a sequence's draft equals that of a fresh model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/vocab_load.h"
#include "pipeline/draft_model.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { N_VOCAB = 320, N_CTX = 512, N_BATCH = 64, MOST = 6, MAX_TOKENS = 400 };

static char path[] = "/tmp/kin-test-draft-XXXXXX", other_path[] = "/tmp/kin-test-draft-XXXXXX";
static kin_devices devices;
static kin_vocab *vocab;

static void make_file(char *name, int n_vocab) {
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.n_layer = 2;
    spec.n_embd = spec.n_ff = 256;
    spec.n_vocab = n_vocab;
    spec.mix = "q4_k_m";
    int fd = mkstemp(name);
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, name, &err) != 0) fail_msg("%s", err.text);
}
#define make_file(...) FROM_TEST(make_file(__VA_ARGS__))

static int begin(void **state) {
    (void)state;
    kin_device_options o = kin_device_options_defaults();
    kin_gguf *gguf = NULL;
    kin_err err;
    make_file(path, N_VOCAB);
    make_file(other_path, N_VOCAB + 1);
    o.n_threads = 1;
    if (kin_devices_open(&devices, &o, &err) != 0 || kin_gguf_open(&gguf, path, &err) != 0 ||
        kin_vocab_load(&vocab, gguf, &err) != 0)
        fail_msg("%s", err.text);
    kin_gguf_close(gguf);
    return 0;
}

static int end(void **state) {
    (void)state;
    kin_vocab_free(vocab);
    kin_devices_close(&devices);
    return unlink(path) | unlink(other_path);
}

static kin_draft_model *open_model(int n_ctx) {
    kin_draft_model_options o = {
        .path = path, .vocab = vocab, .devices = &devices, .n_ctx = n_ctx, .n_batch = N_BATCH, .kv_type = GGML_TYPE_F16};
    kin_draft_model *m;
    kin_err err;
    if (kin_draft_model_open(&m, &o, &err) != 0) fail_msg("%s", err.text);
    return m;
}
#define open_model(...) FROM_TEST(open_model(__VA_ARGS__))

static kin_draft_limits limits(int most) {
    kin_draft_limits l = {.most = most, .mean_chance = 0.5, .catch_up_s = INFINITY};
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) l.chances[i] = 0.5;
    return l;
}

static void make_tokens(int32_t *tokens, int n, int seed) {
    for (int i = 0; i < n; i++) tokens[i] = ((i + 7) * (37 + seed) + i / 3) % N_VOCAB;
}

// Asks until the model has read the sequence.
static kin_draft ask(kin_draft_model *m, uint64_t sequence, const int32_t *tokens, int n, int most) {
    kin_draft d = {0};
    kin_draft_limits l = limits(most);
    kin_draft_query w = {.sequence = sequence, .tokens = tokens, .n = n, .most = most, .out = &d};
    for (int i = 0; i <= n / N_BATCH && d.n == 0; i++) kin_draft_model_propose(m, &w, 1, &l);
    return d;
}

static kin_draft ask_fresh(const int32_t *tokens, int n, int most) {
    kin_draft_model *m = open_model(N_CTX);
    kin_draft d = ask(m, 1, tokens, n, most);
    kin_draft_model_close(m);
    assert_int_equal(d.n, most);
    assert_int_equal(d.kind, KIN_DRAFT_MODEL);
    return d;
}
#define ask_fresh(...) FROM_TEST(ask_fresh(__VA_ARGS__))

static void expect_same(const kin_draft *a, const kin_draft *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens);
    assert_memory_equal(a->grades, b->grades, (size_t)a->n);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

static void what_was_taken_is_followed_and_what_was_not_is_forgotten(void **state) {
    (void)state;
    int32_t tokens[MAX_TOKENS];
    kin_draft_model *m = open_model(N_CTX);
    make_tokens(tokens, 20, 1);
    for (int n = 20, n_taken = 0; n < 60; n_taken = (n_taken + 1) % (MOST + 1)) {
        kin_draft d = ask(m, 1, tokens, n, MOST), fresh = ask_fresh(tokens, n, MOST);
        expect_same(&d, &fresh);
        memcpy(tokens + n, d.tokens, (size_t)n_taken * sizeof *tokens);
        n += n_taken;
        tokens[n++] = (n_taken < MOST ? d.tokens[n_taken] + 1 : 5) % N_VOCAB; // the token that the sequence has instead
    }
    kin_draft_model_close(m);
}

// Even when the cache has room for only some sequences, every draft that is made is the right one.
static void texts_of_one_call_have_the_drafts_that_they_have_alone(void **state) {
    (void)state;
    enum { N = 5 };
    static int32_t tokens[N][MAX_TOKENS];
    static kin_draft alone[N];
    for (int i = 0; i < N; i++) {
        make_tokens(tokens[i], 3 + 12 * i, i);
        alone[i] = ask_fresh(tokens[i], 3 + 12 * i, MOST);
    }
    for (int n_ctx = 64; n_ctx <= N_CTX; n_ctx *= 2) {
        kin_draft_model *m = open_model(n_ctx);
        for (int turn = 0; turn < 6; turn++) {
            kin_draft d[N] = {{0}};
            kin_draft_query w[N];
            kin_draft_limits l = limits(MOST);
            int n_drafts = 0;
            for (int i = 0; i < N; i++)
                w[i] =
                    (kin_draft_query){.sequence = (uint64_t)i, .tokens = tokens[i], .n = 3 + 12 * i, .most = MOST, .out = &d[i]};
            kin_draft_model_propose(m, w, N, &l);
            for (int i = 0; i < N; i++) {
                if (d[i].n > 0) expect_same(&d[i], &alone[i]);
                n_drafts += d[i].n > 0;
            }
            assert_true(n_drafts > 0 || turn < 3);
            if (n_ctx == N_CTX && turn >= 3) assert_int_equal(n_drafts, N);
        }
        kin_draft_model_close(m);
    }
}

// Extends sequence i by the most likely drafted token, or by another one. Returns how many tokens the model computed.
static int go_on_alone(kin_draft_model *m, int32_t tokens[][MAX_TOKENS], int *n, int i, bool *has_drafts) {
    kin_draft d = {0};
    kin_draft_limits l = limits(MOST);
    kin_draft_query w = {.sequence = (uint64_t)i, .tokens = tokens[i], .n = n[i], .most = MOST, .out = &d};
    int n_computed = kin_draft_model_propose(m, &w, 1, &l).n_tokens;
    *has_drafts = d.n > 0;
    tokens[i][n[i]] = d.n > 0 ? d.tokens[0] : 5;
    n[i]++;
    return n_computed;
}

// Three sequences take turns; two of them fit.
static void a_text_without_room_waits_until_another_ends_or_is_idle(void **state) {
    (void)state;
    enum { N = 3, N_PROMPT = 100, N_TURNS = 10, N_IDLE = 130 };
    static int32_t tokens[N][MAX_TOKENS];
    for (int idle = 0; idle <= 1; idle++) {
        int n[N], n_computed = 0;
        bool has_drafts[N];
        kin_draft_model *m = open_model(5 * 64);
        for (int i = 0; i < N; i++) make_tokens(tokens[i], n[i] = N_PROMPT, i);
        for (int turn = 0; turn < N_TURNS; turn++) {
            for (int i = 0; i < N; i++) n_computed += go_on_alone(m, tokens, n, i, &has_drafts[i]);
        }
        assert_true(has_drafts[0] && has_drafts[1] && !has_drafts[2]);
        assert_true(n_computed <= 2 * (N_PROMPT + N_TURNS * (MOST + 1))); // each sequence is read once
        if (!idle) kin_draft_model_end(m, 0);
        for (int i = 0; i < N_IDLE && idle; i++) {
            n[1]--; // it generates the same token again
            go_on_alone(m, tokens, n, 1, &has_drafts[1]);
        }
        for (int i = 0; i < 2; i++) go_on_alone(m, tokens, n, 2, &has_drafts[2]); // first chunk of its prompt, then the rest
        assert_true(has_drafts[2]);
        if (idle) go_on_alone(m, tokens, n, 0, &has_drafts[0]);
        assert_true(!idle || !has_drafts[0]);
        kin_draft_model_close(m);
    }
}

// Two sequences fill the cache together. The one that finds no room for its next block yields its cells to the other and is not
// read again.
static void a_text_that_outgrows_its_room_leaves_it(void **state) {
    (void)state;
    enum { N = 2, N_PROMPT = 100, N_TURNS = 100 };
    static int32_t tokens[N][MAX_TOKENS];
    int n[N], n_computed = 0;
    bool has_drafts[N];
    kin_draft_model *m = open_model(5 * 64);
    for (int i = 0; i < N; i++) make_tokens(tokens[i], n[i] = N_PROMPT, i);
    for (int turn = 0; turn < N_TURNS; turn++) {
        for (int i = 0; i < N; i++) n_computed += go_on_alone(m, tokens, n, i, &has_drafts[i]);
    }
    assert_int_equal(has_drafts[0] + has_drafts[1], 1);
    assert_true(n_computed <= 2 * (N_PROMPT + N_TURNS * (MOST + 1)));
    kin_draft_model_close(m);
}

static void the_last_tokens_of_a_context_are_drafted(void **state) {
    (void)state;
    enum { CTX = 72, N = 67 }; // the last block of the cache is only partly within the context
    int32_t tokens[N];
    make_tokens(tokens, N, 3);
    kin_draft alone = ask_fresh(tokens, N, CTX - N), d = {0};
    kin_draft_model *m = open_model(CTX);
    kin_draft_limits l = limits(MOST);
    kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = N, .most = CTX - N, .out = &d};
    for (int turn = 0; turn < 4 && d.n == 0; turn++) kin_draft_model_propose(m, &w, 1, &l);
    assert_int_equal(d.n, CTX - N < MOST ? CTX - N : MOST);
    expect_same(&d, &alone);
    kin_draft_model_close(m);
}

static void a_long_prompt_is_read_in_pieces(void **state) {
    (void)state;
    static int32_t tokens[MAX_TOKENS];
    kin_draft_model *m = open_model(N_CTX);
    kin_draft d = {0}, fresh;
    kin_draft_limits l = limits(MOST);
    kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = 200, .most = MOST, .out = &d};
    int n_calls = 0;
    make_tokens(tokens, 200, 3);
    fresh = ask_fresh(tokens, 200, MOST);
    for (l.catch_up_s = 0; d.n == 0; n_calls++) kin_draft_model_propose(m, &w, 1, &l);
    assert_true(n_calls > 200 / N_BATCH && n_calls < 200);
    expect_same(&d, &fresh);
    kin_draft_model_close(m);
}

static void a_token_that_is_not_worth_its_time_is_not_computed(void **state) {
    (void)state;
    int32_t tokens[20];
    kin_draft_model *m = open_model(N_CTX);
    kin_draft d = {.n = 1, .tokens = {7}};
    kin_draft_limits l = limits(MOST); // chances 0.5, 0.25, ...
    kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = 20, .most = MOST, .out = &d};
    make_tokens(tokens, 20, 1);
    for (int i = 0; i < MOST; i++) l.least[i] = 0.6;
    kin_draft_model_propose(m, &w, 1, &l);
    assert_true(d.kind == KIN_DRAFT_NGRAM && d.n == 1 && d.tokens[0] == 7); // the earlier draft stays
    for (int i = 0; i < MOST; i++) l.least[i] = 0.2;
    kin_draft_spent spent = kin_draft_model_propose(m, &w, 1, &l);
    assert_true(d.kind == KIN_DRAFT_MODEL && d.n == 2);
    assert_true(spent.first.n == 0 &&
                spent.further.n == 1); // the first token is known; the third would be right with probability 0.125
    w.most = 1;                        // room left in the context
    kin_draft_model_propose(m, &w, 1, &l);
    assert_int_equal(d.n, 1);
    kin_draft_model_close(m);
}

static void the_next_turn_of_a_conversation_is_not_read_anew(void **state) {
    (void)state;
    int32_t tokens[MAX_TOKENS];
    kin_draft_model *m = open_model(N_CTX);
    kin_draft d;
    kin_draft_limits l = limits(1);
    make_tokens(tokens, 52, 1);
    ask(m, 1, tokens, 50, 1);
    kin_draft_query w = {.sequence = 2, .tokens = tokens, .n = 52, .most = 1, .out = &d};
    kin_draft_model_end(m, 1);
    assert_int_equal(kin_draft_model_propose(m, &w, 1, &l).first.n, 1); // one short pass
    w.sequence = 3;                                                     // competes with sequence 2, which is still alive
    assert_int_equal(kin_draft_model_propose(m, &w, 1, &l).first.n, 0);
    kin_draft_model_close(m);
}

// Second choices are what the model would have said in a token's place. The draft still continues from the most likely tokens
// and takes as many passes.
static void second_choices_take_no_pass(void **state) {
    (void)state;
    enum { N = 20 };
    int32_t tokens[N];
    kin_draft_model *m = open_model(N_CTX);
    make_tokens(tokens, N, 1);
    kin_draft d = {0}, chain = ask_fresh(tokens, N, MOST);
    kin_draft_limits l = limits(2 * MOST);
    kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = N, .most = 2 * MOST, .out = &d};
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) l.branches[i] = 0.5;
    kin_draft_spent spent = kin_draft_model_propose(m, &w, 1, &l);
    assert_int_equal(spent.n_passes, MOST);
    assert_int_equal(d.n, 2 * MOST);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(kin_draft_parent(&d, 2 * i), i == 0 ? -1 : 2 * i - 2);
        assert_int_equal(kin_draft_parent(&d, 2 * i + 1), i == 0 ? -1 : 2 * i - 2);
        assert_int_equal(d.tokens[2 * i], chain.tokens[i]);
        assert_int_not_equal(d.tokens[2 * i + 1], chain.tokens[i]);
    }
    for (int i = 0; i < 2 * MOST; i++) l.least_of_row[i] = 0.2; // 0.5 * 0.5 for the first, less for the others
    kin_draft_model_propose(m, &w, 1, &l);
    for (int i = 0; i < d.n; i++) assert_int_equal(kin_draft_is_branch(&d, i), i == 1);
    kin_draft_model_close(m);
}

static void draft_seven(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    (void)user, (void)tokens, (void)n;
    *out = (kin_draft){.n = most < 3 ? most : 3, .tokens = {7, 8, 9}};
}

static void a_prompted_model_says_what_it_is_told_as_far_as_it_is_told(void **state) {
    (void)state;
    const kin_draft_source source = {draft_seven, NULL};
    int32_t tokens[30];
    kin_draft_model *m = open_model(N_CTX);
    make_tokens(tokens, 20, 1);
    memcpy(tokens + 20, (const int32_t[]){7, 8, 9}, 3 * sizeof *tokens);
    kin_draft rest = ask_fresh(tokens, 23, MOST - 3);
    kin_draft_model_prompt(m, &source);
    kin_draft d = ask(m, 1, tokens, 20, MOST);
    assert_int_equal(d.n, MOST);
    assert_memory_equal(d.tokens, tokens + 20, 3 * sizeof *tokens);
    assert_memory_equal(d.tokens + 3, rest.tokens, (MOST - 3) * sizeof *tokens); // the draft continues from there
    kin_draft_model_close(m);
}

// Uses idle time as the head does while a step verifies a draft.
static int go_on(kin_draft_model *m, uint64_t sequence, const int32_t *tokens, int n, int n_passes) {
    kin_draft_limits l = limits(KIN_DRAFT_MAX);
    kin_draft_query w = {.sequence = sequence, .tokens = tokens, .n = n, .most = KIN_DRAFT_MAX};
    int n_made = 0;
    for (int i = 0; i < n_passes; i++) n_made += kin_draft_model_go_on(m, &w, 1, &l).n_passes;
    return n_made;
}

// The first 0 to MOST drafted tokens come true, followed by either the model's own guess or another token.
static void what_it_went_on_with_is_its_draft_where_it_comes_true(void **state) {
    (void)state;
    enum { N_AHEAD = 3 };
    int32_t tokens[MAX_TOKENS];
    kin_draft_model *m = open_model(N_CTX);
    kin_draft_limits l = limits(MOST);
    int n = 20, n_hits = 0;
    make_tokens(tokens, n, 1);
    for (int turn = 0; turn < 24; turn++) {
        int n_taken = turn % 4 ? MOST : turn % MOST;
        kin_draft d = ask(m, 1, tokens, n, MOST), longer = ask_fresh(tokens, n, MOST + 1);
        assert_int_equal(go_on(m, 1, tokens, n, N_AHEAD), N_AHEAD);
        memcpy(tokens + n, d.tokens, (size_t)n_taken * sizeof *tokens);
        n += n_taken;
        bool hit = n_taken == MOST && turn % 3 != 0;
        n_hits += hit;
        tokens[n++] = hit ? longer.tokens[MOST] : (longer.tokens[n_taken] + 1) % N_VOCAB;
        kin_draft next = {0}, fresh = ask_fresh(tokens, n, MOST);
        kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = n, .most = MOST, .out = &next};
        assert_int_equal(kin_draft_model_n_known(m, &w), hit ? N_AHEAD - 1 : 0); // the first pass produced the guess itself
        kin_draft_spent spent = kin_draft_model_propose(m, &w, 1, &l);
        expect_same(&next, &fresh);
        assert_int_equal(spent.n_passes, hit ? MOST - (N_AHEAD - 1) : MOST);
        assert_int_equal(spent.first.n, hit ? 0 : 1);
    }
    assert_true(n_hits >= 6);
    kin_draft_model_close(m);
}

static void it_goes_on_as_far_as_that_may_be_of_use(void **state) {
    (void)state;
    int32_t tokens[20];
    kin_draft_model *m = open_model(N_CTX);
    kin_draft_limits l = limits(KIN_DRAFT_MAX); // chances 0.5, 0.25, ...
    kin_draft_query w = {.sequence = 1, .tokens = tokens, .n = 20, .most = KIN_DRAFT_MAX};
    make_tokens(tokens, 20, 1);
    for (int i = 0; i < KIN_DRAFT_MAX; i++) l.least[i] = 0.1;
    assert_int_equal(kin_draft_model_n_known(m, &w), 0);
    ask(m, 1, tokens, 20, 1); // the model reads the sequence
    for (int i = 0; i < 3; i++) assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 1);
    assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 0); // after four tokens: a chance of 0.06
    assert_int_equal(kin_draft_model_n_known(m, &w), 4);
    w.most = 4;
    assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 0);
    l.most = 0;
    w.n = 19;
    assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 0); // no pass fits
    kin_draft_model_close(m);
}

static void it_reads_a_prompt_as_far_as_there_is_time(void **state) {
    (void)state;
    static int32_t tokens[2][MAX_TOKENS];
    kin_draft_model *m = open_model(2 * N_CTX);
    kin_draft_limits l = limits(0);
    kin_draft d = {0};
    kin_draft_query w = {.sequence = 2, .tokens = tokens[1], .n = 200, .most = MOST, .out = &d};
    for (int i = 0; i < 2; i++) make_tokens(tokens[i], 200, i);
    kin_draft_spent spent = kin_draft_model_go_on(m, &w, 1, &l);
    assert_int_equal(spent.n_passes, 0); // the time per token is not known yet
    ask(m, 1, tokens[0], 200, 1);
    l.catch_up_s = 1e-9;
    assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 0);
    l.catch_up_s = INFINITY;
    for (int i = 0; i < 4; i++) assert_int_equal(kin_draft_model_go_on(m, &w, 1, &l).n_passes, 1); // N_BATCH tokens each
    assert_int_equal(kin_draft_model_n_known(m, &w), 1);
    kin_draft_limits one = limits(1);
    assert_int_equal(kin_draft_model_propose(m, &w, 1, &one).n_passes, 0);
    kin_draft fresh = ask_fresh(tokens[1], 200, 1);
    expect_same(&d, &fresh);
    kin_draft_model_close(m);
}

static void another_vocabulary_is_refused(void **state) {
    (void)state;
    kin_draft_model_options o = {
        .path = other_path, .vocab = vocab, .devices = &devices, .n_ctx = N_CTX, .n_batch = N_BATCH, .kv_type = GGML_TYPE_F16};
    kin_draft_model *m;
    kin_err err;
    assert_int_equal(kin_draft_model_open(&m, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "its vocabulary differs (321 tokens, but the model has 320)"));
    assert_null(m);
    o.path = "/no/such/model.gguf";
    assert_int_equal(kin_draft_model_open(&m, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "/no/such/model.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_taken_is_followed_and_what_was_not_is_forgotten),
        cmocka_unit_test(texts_of_one_call_have_the_drafts_that_they_have_alone),
        cmocka_unit_test(a_text_without_room_waits_until_another_ends_or_is_idle),
        cmocka_unit_test(a_text_that_outgrows_its_room_leaves_it),
        cmocka_unit_test(the_last_tokens_of_a_context_are_drafted),
        cmocka_unit_test(a_long_prompt_is_read_in_pieces),
        cmocka_unit_test(a_token_that_is_not_worth_its_time_is_not_computed),
        cmocka_unit_test(the_next_turn_of_a_conversation_is_not_read_anew),
        cmocka_unit_test(second_choices_take_no_pass),
        cmocka_unit_test(a_prompted_model_says_what_it_is_told_as_far_as_it_is_told),
        cmocka_unit_test(what_it_went_on_with_is_its_draft_where_it_comes_true),
        cmocka_unit_test(it_goes_on_as_far_as_that_may_be_of_use),
        cmocka_unit_test(it_reads_a_prompt_as_far_as_there_is_time),
        cmocka_unit_test(another_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
