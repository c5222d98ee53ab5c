// The scheduler (pipeline/scheduler.h): each sequence has the same output as when it runs alone, whatever runs beside it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "model/vocab_load.h"
#include "pipeline/scheduler.h"
#include "pure/sampling/sampler.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

enum { N_VOCAB = 320, N_LAYER = 6, N_CTX = 1024, N_BATCH = 64, MAX_PROMPT = 2100, MAX_MADE = 40, MAX_REQUESTS = 64 };

static char model_path[] = "/tmp/kin-test-scheduler-XXXXXX";

static int make_model(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = 256;
    spec.n_vocab = N_VOCAB;
    spec.mix = "q4_k_m";
    int fd = mkstemp(model_path);
    return fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0 ? -1 : 0;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

// ---- sequences

typedef struct request {
    int32_t prompt[MAX_PROMPT], made[MAX_MADE];
    int n_prompt, n_made, n_most;
    uint64_t logits; // hash of all its logits
    int n_cached, n_ended, tag;
    kin_generation_end how;
    kin_err why;
    kin_generation *g;
    kin_sampler *sampler; // NULL: takes the likeliest token
    // Drafts: `known` is the sequence's final output; each token is drafted correctly with probability `chance`.
    const struct request *known;
    double chance;
    bool has_trees;
    kin_rng rng;
    kin_draft_source source;
    kin_draft_counts drafts;
} request;

static int32_t next(void *user, float *logits) {
    request *t = user;
    int32_t best = 0;
    t->logits = kin_hash64(logits, N_VOCAB * sizeof *logits, t->logits);
    if (t->n_made == t->n_most) return KIN_GENERATION_NO_TOKEN;
    for (int32_t i = 1; i < N_VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    if (t->sampler) kin_sampler_accept(t->sampler, best = kin_sampler_sample(t->sampler, logits));
    return t->made[t->n_made++] = best;
}

static void progress(void *user, int n_done, int n_cached) {
    request *t = user;
    assert_true(n_done <= t->n_prompt + t->n_made);
    t->n_cached = n_cached;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    request *t = user;
    t->n_ended++;
    t->how = how;
    t->g = NULL;
    if (why) t->why = *why;
}

static void make_request(request *t, int seed, int n_shared, int n_prompt, int n_made) {
    *t = (request){.n_prompt = n_prompt, .n_most = n_made};
    for (int i = 0; i < n_prompt; i++) t->prompt[i] = ((i < n_shared ? 1 : seed) * (i + 7) * 37 + i / 3) % N_VOCAB;
}

static bool with_trees; // drafts branch

// Drafts any number of tokens, also beyond the end of the known output; with trees they continue from any drafted token, so that
// several may be right.
static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    request *t = user;
    int at = n - t->n_prompt, depths[KIN_DRAFT_MAX];
    assert_int_equal(at, t->n_made);
    assert_memory_equal(tokens + t->n_prompt, t->made, (size_t)at * sizeof *tokens);
    *out = (kin_draft){.kind = KIN_DRAFT_ORACLE, .n = (int)(kin_rng_u64(&t->rng) % (uint64_t)(most + 1))};
    for (int i = 0; i < out->n; i++) {
        if (t->has_trees && kin_rng_u64(&t->rng) % 3 == 0) out->skipped[i] = (uint8_t)(kin_rng_u64(&t->rng) % (uint64_t)(i + 1));
        int before = kin_draft_parent(out, i), depth = before < 0 ? 0 : depths[before] + 1;
        bool is_right = at + depth < t->known->n_made && kin_rng_unit(&t->rng) < t->chance;
        out->tokens[i] = is_right ? t->known->made[at + depth] : (int32_t)(kin_rng_u64(&t->rng) % N_VOCAB);
        depths[i] = depth;
    }
}

static void draft(request *t, const request *known, double chance, uint64_t seed) {
    t->known = known;
    t->chance = chance;
    t->source = (kin_draft_source){propose, t};
    t->has_trees = with_trees;
    kin_rng_seed(&t->rng, seed);
}

typedef struct context {
    kin_thread_ring *ring;
    kin_scheduler *s;
} context;

static kin_draft_model *draft_model; // for open_context; NULL: none
static bool always_ahead;

static context open_context(int n_members, int n_ctx, int n_parallel) {
    kin_thread_ring_options o = {.n_members = n_members, .n_batch = N_BATCH, .n_ctx = n_ctx, .n_steps = n_members > 1 ? 8 : 1};
    for (int i = 0; i < n_members; i++) o.shares[i] = (kin_layer_share){N_LAYER / n_members, 0, 0};
    kin_scheduler_options so = {.n_ctx = n_ctx,
                                .n_vocab = N_VOCAB,
                                .n_embd = 256,
                                .n_parallel = n_parallel,
                                .keeps = true,
                                .draft_least = KIN_DRAFT_MAX,
                                .always_ahead = always_ahead,
                                .draft_model = draft_model};
    context w;
    kin_err err;
    if (kin_thread_ring_open(&w.ring, model_path, &o, &err) != 0 || kin_scheduler_open(&w.s, &so, &err) != 0 ||
        kin_scheduler_set_head(w.s, kin_thread_ring_head(w.ring), &err) != 0)
        fail_msg("%s", err.text);
    return w;
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_scheduler_close(w->s);
    kin_thread_ring_close(w->ring);
}

static void submit(context *w, request *t) {
    kin_generation_options o = {.prompt = t->prompt,
                                .n_prompt = t->n_prompt,
                                .tag = t->tag,
                                .next = next,
                                .progress = progress,
                                .drafts = t->known ? &t->source : NULL,
                                .draft_counts = &t->drafts,
                                .ended = ended,
                                .user = t};
    kin_err err;
    if (kin_scheduler_submit(w->s, &o, &t->g, &err) != 0) fail_msg("%s", err.text);
}
#define submit(...) FROM_TEST(submit(__VA_ARGS__))

static bool step(context *w) {
    bool busy;
    kin_err err;
    if (kin_scheduler_step(w->s, &busy, &err) != 0) fail_msg("%s", err.text);
    return busy;
}
#define step(...) FROM_TEST(step(__VA_ARGS__))

// Runs each sequence alone.
static void run_alone(const request *requests, request *alone, int n) {
    for (int i = 0; i < n; i++) {
        context w = open_context(1, N_CTX, 1);
        alone[i] = requests[i];
        submit(&w, &alone[i]);
        while (step(&w)) continue;
        assert_int_equal(alone[i].how, KIN_GENERATION_DONE);
        close_context(&w);
    }
}
#define run_alone(...) FROM_TEST(run_alone(__VA_ARGS__))

static void expect_same(const request *a, const request *b) {
    assert_int_equal(a->n_ended, 1);
    assert_int_equal(a->how, KIN_GENERATION_DONE);
    assert_int_equal(a->n_made, b->n_made);
    assert_memory_equal(a->made, b->made, (size_t)a->n_made * sizeof *a->made);
    assert_int_equal(a->logits, b->logits);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

static void expect_all_free(context *w) {
    kin_scheduler_stats t = kin_scheduler_get_stats(w->s);
    kin_err err = {""};
    assert_int_equal(t.n_running + t.n_waiting, 0);
    kin_scheduler_settle(w->s, &err);
    assert_int_equal(kin_scheduler_set_head(w->s, kin_thread_ring_head(w->ring), &err), 0);
    t = kin_scheduler_get_stats(w->s);
    assert_int_equal(t.n_free_blocks, t.n_blocks);
}
#define expect_all_free(...) FROM_TEST(expect_all_free(__VA_ARGS__))

// ---- claims

static double with_drafts = -1; // probability that a drafted token is right; negative: no drafts
static kin_draft_counts came;   // counts of the last context

// All sequences are submitted before the first step, and the head is not woken: no step depends on timing.
static bool at_once;

static void run_in_company(const request *requests, const request *alone, int n, int n_members, int n_ctx, int n_parallel,
                           uint64_t seed) {
    static request now[MAX_REQUESTS];
    context w = open_context(n_members, n_ctx, n_parallel);
    kin_rng rng;
    int n_in = 0;
    kin_rng_seed(&rng, seed);
    memcpy(now, requests, (size_t)n * sizeof *now);
    for (int i = 0; i < n && with_drafts >= 0; i++) draft(&now[i], &alone[i], with_drafts, seed + (uint64_t)i);
    for (bool busy = true; busy || n_in < n;) {
        while (n_in < n && (at_once || kin_rng_u64(&rng) % 3)) submit(&w, &now[n_in++]);
        if (!at_once && kin_rng_u64(&rng) % 2) kin_thread_ring_wake(w.ring);
        busy = step(&w);
    }
    for (int i = 0; i < n; i++) expect_same(&now[i], &alone[i]);
    came = kin_scheduler_get_stats(w.s).drafts;
    expect_all_free(&w);
    close_context(&w);
}
#define run_in_company(...) FROM_TEST(run_in_company(__VA_ARGS__))

static void in_any_company_a_sequence_is_what_it_is_alone(void **state) {
    (void)state;
    enum { N = 12 };
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, i % 3 ? 70 : 0, 1 + i * i % 150, 5 + 3 * i);
    run_alone(requests, alone, N);
    for (uint64_t seed = 0; seed < 3; seed++) {
        run_in_company(requests, alone, N, 1, N_CTX, 8, seed);
        run_in_company(requests, alone, N, 3, N_CTX, 8, seed);
        run_in_company(requests, alone, N, 2, 4 * 64, 8, seed); // so little room that some wait and are recomputed
    }
}

static void with_drafts_each_sequence_is_what_it_is_without(void **state) {
    (void)state;
    enum { N = 6 };
    static request requests[N], alone[N];
    uint64_t n_rows = 0; // of all sequences, without the prompts': the last one of each gives no token
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, i % 3 ? 70 : 0, 1 + i * i % 150, 5 + 3 * i);
    run_alone(requests, alone, N);
    for (int i = 0; i < N; i++) n_rows += (uint64_t)alone[i].n_made;
    for (int i = 0; i < 3; i++) {
        with_drafts = (const double[]){0, 0.7, 1}[i];
        run_in_company(requests, alone, N, 1, N_CTX, 8, 1);
        assert_true(came.drafted[KIN_DRAFT_ORACLE] > 0);
        assert_true(i == 0 || came.accepted[KIN_DRAFT_ORACLE] > 0);
        assert_true(came.accepted[KIN_DRAFT_ORACLE] <= came.drafted[KIN_DRAFT_ORACLE] && came.n_passes <= came.n_written);
        assert_int_equal(came.n_written, n_rows);
        run_in_company(requests, alone, N, 3, N_CTX, 8, 2);
        run_in_company(requests, alone, N, 2, 4 * 64, 8, 3); // so little room that some wait and are recomputed
        run_in_company(requests, alone, N, 1, N_CTX, 1, 4);
    }
    with_drafts = -1;
}

// The model is its own draft model here, so its drafts are mostly right. It drafts where the other source has no draft, or a less
// likely one.
static void with_a_draft_model_each_sequence_is_what_it_is_without(void **state) {
    (void)state;
    enum { N = 4 };
    static request requests[N], alone[N];
    kin_devices devices;
    kin_device_options dopts = kin_device_options_defaults();
    kin_gguf *gguf;
    kin_vocab *vocab;
    kin_err err;
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, i % 3 ? 70 : 0, 1 + i * i % 150, 5 + 3 * i);
    run_alone(requests, alone, N);
    assert_int_equal(kin_devices_open(&devices, &dopts, &err), 0);
    assert_int_equal(kin_gguf_open(&gguf, model_path, &err), 0);
    assert_int_equal(kin_vocab_load(&vocab, gguf, &err), 0);
    kin_draft_model_options o = {
        .path = model_path, .vocab = vocab, .devices = &devices, .n_ctx = 512, .n_batch = 64, .kv_type = GGML_TYPE_F16};
    assert_int_equal(kin_draft_model_open(&draft_model, &o, &err), 0);
    with_drafts = 0;
    for (int i = 0; i < 3; i++) {
        run_in_company(requests, alone, N, 1 + i % 3, i < 1 ? N_CTX : 4 * 64, i ? 8 : 1, (uint64_t)i);
        assert_true(came.drafted[KIN_DRAFT_MODEL] > 0);
        assert_true(i > 0 || came.accepted[KIN_DRAFT_MODEL] > came.drafted[KIN_DRAFT_MODEL] / 4);
    }
    with_drafts = -1;
    kin_draft_model_close(draft_model);
    draft_model = NULL;
    kin_vocab_free(vocab);
    kin_gguf_close(gguf);
    kin_devices_close(&devices);
}

static kin_sampler *open_sampler(const kin_sampler_options *o) {
    kin_sampler *sampler;
    kin_err err;
    if (kin_sampler_new(&sampler, N_VOCAB, o, &err) != 0) fail_msg("%s", err.text);
    return sampler;
}
#define open_sampler(...) FROM_TEST(open_sampler(__VA_ARGS__))

// With every stage of the sampler, a seed gives the same output as without drafts: rejected tokens use no random numbers.
static void a_seed_gives_the_sequence_that_it_gives_without_drafts(void **state) {
    (void)state;
    static request without, with;
    kin_sampler_options o = kin_sampler_options_defaults();
    for (int i = 0; i < 8; i++) {
        o.seed = (uint64_t)i;
        o.temperature = i % 4 == 0 ? 0 : 1.5f;
        o.top_p = i % 4 == 2 ? 0.7f : 1;
        o.penalty_repeat = i % 4 == 3 || i == 0 ? 1.3f : 1;
        make_request(&without, 3, 0, 20, MAX_MADE);
        with = without;
        for (int k = 0; k < 2; k++) {
            context w = open_context(1 + i % 3, N_CTX, 2);
            request *t = k ? &with : &without;
            t->sampler = open_sampler(&o);
            if (k) draft(t, &without, 0.8, 5);
            submit(&w, t);
            while (step(&w)) continue;
            kin_sampler_free(t->sampler);
            close_context(&w);
        }
        expect_same(&with, &without);
        assert_true(with.drafts.accepted[KIN_DRAFT_ORACLE] > 0 && with.drafts.n_passes < with.drafts.n_written);
    }
}

// Cancels in any step, at the context's end, and uses the output as a prefix of the next sequence.
static void rejected_tokens_leave_the_cache_however_a_sequence_ends(void **state) {
    (void)state;
    static request requests[2], alone[2], after, after_alone;
    for (int i = 0; i < 2; i++) make_request(&requests[i], i + 2, 0, 30, 20);
    run_alone(requests, alone, 2);
    for (int when = 0; when < 12; when++) {
        static request now[2];
        context w = open_context(1 + when % 3, N_CTX, 4);
        memcpy(now, requests, sizeof now);
        for (int i = 0; i < 2; i++) draft(&now[i], &alone[i], 0.7, (uint64_t)when);
        for (int i = 0; i < 2; i++) submit(&w, &now[i]);
        for (int i = 0; i < when; i++) step(&w);
        if (now[1].g) kin_scheduler_cancel(w.s, now[1].g);
        while (step(&w)) continue;
        expect_same(&now[0], &alone[0]);
        make_request(&after, 2, 0, 45, 10); // continues the first one
        memcpy(after.prompt + 30, alone[0].made, 10 * sizeof *after.prompt);
        if (when == 0) run_alone(&after, &after_alone, 1);
        submit(&w, &after);
        while (step(&w)) continue;
        assert_int_equal(after.n_cached, 40);
        expect_same(&after, &after_alone);
        expect_all_free(&w);
        close_context(&w);
    }
    context w = open_context(1, 64, 2);
    make_request(&requests[0], 2, 0, 60, 40);
    draft(&requests[0], &alone[0], 1, 1);
    submit(&w, &requests[0]);
    while (step(&w)) continue;
    assert_int_equal(requests[0].how, KIN_GENERATION_FULL);
    assert_int_equal(requests[0].n_made, 5);
    close_context(&w);
}

static void run_in_several_steps(void) {
    enum { N = 3 };
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, i % 3 ? 70 : 0, 1 + i * i % 150, 5 + 15 * i);
    run_alone(requests, alone, N);
    always_ahead = true;
    for (int i = 0; i < 4; i++) {
        with_drafts = (const double[]){0, 0.7, 1}[i % 3];
        run_in_company(requests, alone, N, 2 + i % 2, i < 2 ? N_CTX : 4 * 64, i % 2 ? 1 : 8, (uint64_t)i);
        assert_true(i % 3 == 0 || came.accepted[KIN_DRAFT_ORACLE] > 0);
    }
    with_drafts = -1;
    always_ahead = false;
}
#define run_in_several_steps(...) FROM_TEST(run_in_several_steps(__VA_ARGS__))

// Several steps of a sequence are in flight, each with one drafted token; they are dropped if it was wrong.
static void in_several_steps_at_once_a_sequence_is_what_it_is_in_one(void **state) {
    run_in_several_steps();
    always_ahead = true;
    a_seed_gives_the_sequence_that_it_gives_without_drafts(state);
    rejected_tokens_leave_the_cache_however_a_sequence_ends(state);
    always_ahead = false;
}

// Drafts branch at many tokens, and the right tokens are in any branch. All prompts are in the first step: while a prompt waits,
// which depends on the time of steps, sequences have no drafts.
static void branches_with_the_right_token_are_followed(void **state) {
    (void)state;
    enum { N = 6 };
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 0, 1 + i * i % 150, 20 + 3 * i);
    run_alone(requests, alone, N);
    with_trees = at_once = true;
    with_drafts = 0.5;
    run_in_company(requests, alone, N, 2, N_CTX, 8, 1);
    print_message("%d branches, %d of them followed\n", (int)came.branches, (int)came.accepted_branches);
    assert_true(came.accepted_branches > 5 && came.accepted_branches < came.branches);
    with_trees = at_once = false;
    with_drafts = -1;
}

// In several steps at once only the chain of each tree is used.
static void with_trees_each_sequence_is_what_it_is_without(void **state) {
    with_trees = true;
    with_drafts_each_sequence_is_what_it_is_without(state);
    a_seed_gives_the_sequence_that_it_gives_without_drafts(state);
    rejected_tokens_leave_the_cache_however_a_sequence_ends(state);
    run_in_several_steps();
    with_trees = false;
}

static void branches_leave_no_block_behind(void **state) {
    (void)state;
    static request one, alone;
    for (int i = 0; i < 2; i++) {
        make_request(&one, 2, 0, 30, MAX_MADE);
        run_alone(&one, &alone, 1);
        with_trees = true;
        draft(&one, &alone, i ? 0.6 : 0, 3);
        with_trees = false;
        context w = open_context(1, N_CTX, 1);
        submit(&w, &one);
        while (step(&w)) {
            kin_scheduler_stats t = kin_scheduler_get_stats(w.s);
            assert_int_equal(t.n_blocks - t.n_free_blocks, (t.n_running_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS);
        }
        expect_same(&one, &alone);
        assert_true(one.drafts.branches > 20);
        close_context(&w);
    }
}

// Four blocks, of which the sequence has one: at most three branches at once.
static void a_step_has_as_many_branches_as_there_is_room_for(void **state) {
    (void)state;
    static request one, alone;
    make_request(&one, 2, 0, 10, MAX_MADE);
    run_alone(&one, &alone, 1);
    with_trees = true;
    draft(&one, &alone, 0.6, 3);
    with_trees = false;
    context w = open_context(1, 4 * KIN_KV_CELLS, 1);
    submit(&w, &one);
    while (step(&w)) continue;
    expect_same(&one, &alone);
    assert_true(one.drafts.branches > 20 && one.drafts.branches <= 3 * kin_scheduler_get_stats(w.s).n_steps);
    close_context(&w);
}

// The sequences differ only in a secret of 8 tokens, behind one of six shared prefixes; the tokens after it are the same for all.
static void a_secret_per_stream_never_crosses(void **state) {
    (void)state;
    enum { N = 64, N_SECRET = 8, N_AFTER = 12, N_FAMILIES = 6 };
    static const int n_shared[N_FAMILIES] = {0, 9, 40, 64, 100, 128};
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) {
        int n = n_shared[i % N_FAMILIES];
        make_request(&requests[i], 1, 0, n + N_SECRET + N_AFTER, 6);
        for (int k = 0; k < N_SECRET; k++) requests[i].prompt[n + k] = (i * 5 + k * k * i + k) % N_VOCAB;
    }
    run_alone(requests, alone, N);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++) assert_int_not_equal(alone[i].logits, alone[j].logits);
    }
    run_in_company(requests, alone, N, 1, 8 * N_CTX, N, 1);
    run_in_company(requests, alone, N, 3, 8 * N_CTX, N, 2);
    run_in_company(requests, alone, N, 1, N_CTX / 2, N, 3); // prefixes are evicted; sequences wait and are recomputed
}

static void the_youngest_waits_when_the_context_is_full(void **state) {
    (void)state;
    enum { N = 3 };
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 0, 50, 40); // each needs two blocks in the end; there are four
    run_alone(requests, alone, N);
    context w = open_context(1, 4 * 64, 8);
    for (int i = 0; i < N; i++) submit(&w, &requests[i]);
    while (step(&w)) continue;
    for (int i = 0; i < N; i++) expect_same(&requests[i], &alone[i]);
    assert_true(kin_scheduler_get_stats(w.s).n_preempted > 0);
    close_context(&w);
}

static void of_16_users_a_common_prefix_of_2048_tokens_is_computed_once(void **state) {
    (void)state;
    enum { N = 16, N_SHARED = 2048 };
    static request requests[N];
    for (int members = 1; members <= 3; members += 2) {
        context w = open_context(members, N_CTX * 4, N);
        for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, N_SHARED, N_SHARED + 10, 3);
        for (int i = 0; i < N; i++) submit(&w, &requests[i]);
        while (step(&w)) continue;
        for (int i = 1; i < N; i++) assert_int_equal(requests[i].n_cached, N_SHARED);
        kin_scheduler_stats t = kin_scheduler_get_stats(w.s);
        assert_int_equal(t.n_prompt_tokens, N_SHARED + 10 * N);
        close_context(&w);
    }
}

// Each turn's prompt is the last prompt, the generated tokens, and new ones.
static void an_agent_of_20_turns_computes_only_what_is_new(void **state) {
    (void)state;
    enum { TURNS = 20, N_NEW = 15, N_WRITTEN = 8 };
    static request t;
    context w = open_context(1, N_CTX, 4);
    int32_t history[MAX_PROMPT];
    int n = 0, n_recomputed = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < N_NEW; i++) history[n++] = (turn * 31 + i * 7) % N_VOCAB;
        t = (request){.n_prompt = n, .n_most = N_WRITTEN};
        memcpy(t.prompt, history, (size_t)n * sizeof *history);
        submit(&w, &t);
        while (step(&w)) continue;
        if (turn > 0) n_recomputed += n - N_NEW - t.n_cached;
        memcpy(history + n, t.made, sizeof *history * N_WRITTEN);
        n += N_WRITTEN;
    }
    assert_int_equal(n_recomputed, 0);
    close_context(&w);
}

// Computes a prompt that nothing follows.
static void run_tagged(context *w, request *t, int tag, int seed, int n_prompt) {
    make_request(t, seed, 0, n_prompt, 0);
    t->tag = tag;
    submit(w, t);
    while (step(w)) continue;
    assert_int_equal(t->how, KIN_GENERATION_DONE);
}
#define run_tagged(...) FROM_TEST(run_tagged(__VA_ARGS__))

static void expect_kept(const context *w, int tag, const request *t) {
    int32_t *tokens;
    assert_int_equal(kin_scheduler_read_sequence(w->s, tag, &tokens), t ? t->n_prompt : 0);
    if (t) assert_memory_equal(tokens, t->prompt, (size_t)t->n_prompt * sizeof *tokens);
    free(tokens);
}
#define expect_kept(...) FROM_TEST(expect_kept(__VA_ARGS__))

// Each sequence has one block of four.
static void the_prefix_that_was_not_used_for_longest_makes_room(void **state) {
    (void)state;
    static request requests[7];
    context w = open_context(1, 4 * 64, 1);
    for (int tag = 1; tag <= 4; tag++) run_tagged(&w, &requests[tag], tag, tag + 1, 60);
    for (int tag = 1; tag <= 4; tag++) expect_kept(&w, tag, &requests[tag]);
    run_tagged(&w, &requests[1], 1, 2, 62); // goes on with the first one
    assert_int_equal(requests[1].n_cached, 60);
    run_tagged(&w, &requests[5], 5, 6, 60);
    expect_kept(&w, 1, &requests[1]);
    expect_kept(&w, 2, NULL);
    expect_kept(&w, 3, &requests[3]);
    run_tagged(&w, &requests[6], 5, 7, 60);
    expect_kept(&w, 3, NULL);
    expect_kept(&w, 4, &requests[4]);
    expect_kept(&w, 5, &requests[6]); // the later one of two
    close_context(&w);
}

// The second prompt begins like the first one, which is in the cache or in the same step.
static void a_prefix_of_8_tokens_is_reused_and_one_of_7_is_not(void **state) {
    (void)state;
    static request first, second;
    for (int at_once = 0; at_once <= 1; at_once++) {
        for (int n = 7; n <= 8; n++) {
            context w = open_context(1, N_CTX, 2);
            make_request(&first, 2, n, 20, 0);
            make_request(&second, 3, n, 20, 0);
            first.tag = 1;
            second.tag = 2;
            submit(&w, &first);
            while (!at_once && step(&w)) continue;
            submit(&w, &second);
            while (step(&w)) continue;
            assert_int_equal(second.n_cached, n == 8 ? 8 : 0);
            expect_kept(&w, 1, &first); // only its beginning was reused
            expect_kept(&w, 2, &second);
            close_context(&w);
        }
    }
}

static void a_cancelled_sequence_leaves_at_once_and_the_others_go_on(void **state) {
    (void)state;
    enum { N = 6 };
    static request requests[N], alone[N];
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 0, 30 + 60 * (i % 2), 20);
    run_alone(requests, alone, N);
    for (int members = 1; members <= 3; members += 2) {
        for (int when = 0; when < 12; when++) {
            static request now[N];
            context w = open_context(members, N_CTX, 4); // so two wait
            memcpy(now, requests, sizeof now);
            for (int i = 0; i < N; i++) submit(&w, &now[i]);
            for (int i = 0; i < when; i++) step(&w);
            for (int i = 1; i < N; i += 2) {
                if (now[i].g) kin_scheduler_cancel(w.s, now[i].g);
            }
            while (step(&w)) continue;
            for (int i = 0; i < N; i += 2) expect_same(&now[i], &alone[i]);
            for (int i = 1; i < N; i += 2) assert_int_equal(now[i].n_ended, 1);
            expect_all_free(&w);
            close_context(&w);
        }
    }
}

static void a_cancelled_prompt_is_not_sent_on(void **state) {
    (void)state;
    enum { N_LONG = 600 };
    static request t;
    context w = open_context(3, N_CTX, 2); // several pieces are in flight
    make_request(&t, 2, 0, N_LONG, 1);
    submit(&w, &t);
    step(&w);
    uint64_t n_before = kin_scheduler_get_stats(w.s).n_prompt_tokens;
    kin_scheduler_cancel(w.s, t.g);
    while (step(&w)) continue;
    uint64_t n_after = kin_scheduler_get_stats(w.s).n_prompt_tokens;
    assert_int_equal(t.how, KIN_GENERATION_CANCELLED);
    assert_true(n_before > 0 && n_after < N_LONG);
    expect_all_free(&w);
    close_context(&w);
}

static void on_hidden(void *user, int pos, const float *rows, int n) {
    request *t = user;
    (void)rows;
    t->n_made = pos == 0 ? n : t->n_made + n; // restarts from 0 after a preemption
}

static void submit_either(context *w, request *t, int i, bool wants_hidden) {
    make_request(t, i + 2, wants_hidden ? 0 : MAX_PROMPT, 10 + i * 13 % 200, 30);
    kin_generation_options o = {.prompt = t->prompt, .n_prompt = t->n_prompt, .next = next, .ended = ended, .user = t};
    kin_err err;
    o.no_cache = wants_hidden;
    if (wants_hidden) o.hidden = on_hidden;
    assert_int_equal(kin_scheduler_submit(w->s, &o, &t->g, &err), 0);
}
#define submit_either(...) FROM_TEST(submit_either(__VA_ARGS__))

static void sequences_of_both_kinds_share_a_context_that_is_full(void **state) {
    (void)state;
    enum { N = 24, ROUNDS = 6 };
    static request requests[N];
    int rounds[N] = {0};
    context w = open_context(1, 16 * 64, N);
    for (bool busy = true; busy;) {
        for (int i = 0; i < N; i++) {
            if (requests[i].g || rounds[i] == ROUNDS) continue;
            if (rounds[i] > 0) {
                assert_int_equal(requests[i].how, KIN_GENERATION_DONE);
                assert_int_equal(requests[i].n_made, (i + rounds[i]) % 2 ? 30 : requests[i].n_prompt);
            }
            submit_either(&w, &requests[i], i, (i + rounds[i]++) % 2);
        }
        busy = step(&w);
    }
    assert_true(kin_scheduler_get_stats(w.s).n_preempted < 4 * N * ROUNDS); // preemptions do not repeat endlessly
    expect_all_free(&w);
    close_context(&w);
}

static void a_sequence_ends_when_the_context_has_no_room_for_it(void **state) {
    (void)state;
    static request t;
    context w = open_context(1, 64, 2);
    make_request(&t, 2, 0, 60, 40);
    submit(&w, &t);
    while (step(&w)) continue;
    assert_int_equal(t.how, KIN_GENERATION_FULL);
    assert_int_equal(t.n_made, 5); // positions 60 to 63, and one token that needs none
    make_request(&t, 2, 0, 64, 40);
    submit(&w, &t);
    while (step(&w)) continue;
    assert_int_equal(t.n_made, 1);
    kin_generation *g;
    kin_err err;
    assert_int_equal(kin_scheduler_submit(w.s, &(kin_generation_options){.prompt = t.prompt, .n_prompt = 65}, &g, &err),
                     KIN_FAIL);
    assert_string_equal(err.text, "the prompt has 65 tokens, but the context is 64");
    assert_int_equal(kin_scheduler_submit(w.s, &(kin_generation_options){.prompt = t.prompt}, &g, &err), KIN_FAIL);
    close_context(&w);
}

static void a_sequence_is_cancelled_at_once_when_its_step_has_failed(void **state) {
    (void)state;
    static request requests[2];
    bool busy;
    kin_err err;
    context w = open_context(1, N_CTX, 2);
    for (int i = 0; i < 2; i++) make_request(&requests[i], i + 2, 0, 20, 20);
    requests[1].prompt[3] = N_VOCAB; // an invalid token
    for (int i = 0; i < 2; i++) submit(&w, &requests[i]);
    assert_int_equal(kin_scheduler_step(w.s, &busy, &err), KIN_FAIL);
    kin_scheduler_cancel(w.s, requests[1].g);
    assert_int_equal(requests[1].n_ended, 1);
    assert_int_equal(requests[1].how, KIN_GENERATION_CANCELLED);
    assert_int_equal(requests[0].n_ended, 0);
    assert_int_equal(kin_scheduler_set_head(w.s, kin_thread_ring_head(w.ring), &err), 0);
    while (step(&w)) continue;
    assert_int_equal(requests[0].n_made, 20);
    assert_int_equal(kin_scheduler_get_stats(w.s).n_done, 1);
    close_context(&w);
}

static void sequences_go_on_with_another_ring(void **state) {
    (void)state;
    enum { N = 4 };
    static request requests[N], alone[N];
    kin_err err;
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 20, 40, 20);
    run_alone(requests, alone, N);
    for (int i = 0; i < N; i += 2) draft(&requests[i], &alone[i], 0.3, 1);
    context w = open_context(3, N_CTX, 3), other = open_context(2, N_CTX, 3);
    for (int i = 0; i < N; i++) submit(&w, &requests[i]);
    for (int i = 0; i < 15; i++) step(&w);
    assert_int_equal(kin_scheduler_settle(w.s, &err), 0);
    assert_int_equal(kin_scheduler_set_head(w.s, kin_thread_ring_head(other.ring), &err), 0);
    while (step(&w)) continue;
    for (int i = 0; i < N; i++) expect_same(&requests[i], &alone[i]);
    close_context(&other);
    close_context(&w);
}

static void a_failure_ends_all_with_its_reason(void **state) {
    (void)state;
    enum { N = 3 };
    static request requests[N];
    static const kin_err why = {"device 3 is lost"};
    context w = open_context(1, N_CTX, 2);
    for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 0, 20, 20);
    for (int i = 0; i < N; i++) submit(&w, &requests[i]);
    for (int i = 0; i < 4; i++) step(&w);
    kin_scheduler_fail(w.s, &why);
    for (int i = 0; i < N; i++) {
        assert_int_equal(requests[i].how, KIN_GENERATION_FAILED);
        assert_string_equal(requests[i].why.text, "device 3 is lost");
    }
    assert_false(step(&w));
    close_context(&w);
}

static void a_prompt_beside_sequences_comes_in_pieces(void **state) {
    (void)state;
    static request requests[2];
    context w = open_context(1, N_CTX, 4);
    make_request(&requests[0], 2, 0, 10, 40);
    make_request(&requests[1], 3, 0, 300, 1);
    submit(&w, &requests[0]);
    while (requests[0].n_made == 0) step(&w);
    submit(&w, &requests[1]);
    int n_before = requests[0].n_made;
    while (step(&w)) {
        assert_true(requests[0].n_made - n_before <= 1);
        if (requests[0].n_ended == 0) assert_int_equal(requests[0].n_made, n_before + 1); // one token in every step
        n_before = requests[0].n_made;
    }
    close_context(&w);
}

// The sequence is in one step at a time; pieces of prompts follow it if more than one step suits the ring. How many they are
// depends on times (test_scheduler_time).
static void beside_few_sequences_prompts_may_have_their_own_steps(void **state) {
    (void)state;
    for (int streamed = 0; streamed <= 1; streamed++) {
        static request requests[2];
        int most = 0;
        context w = open_context(3, N_CTX, 4);
        for (int n = 1; n <= 4; n++) kin_scheduler_set_in_flight(w.s, n, streamed || n < 3 ? 1 : 3);
        make_request(&requests[0], 2, 0, 10, 40);
        make_request(&requests[1], 3, 0, 300, 1);
        submit(&w, &requests[0]);
        while (requests[0].n_made == 0) step(&w);
        submit(&w, &requests[1]);
        while (requests[0].n_ended == 0 && step(&w)) {
            int n = 1 + kin_head_n_in_flight(kin_thread_ring_head(w.ring)); // including the one that came back
            if (n > most) most = n;
        }
        assert_true(most <= (streamed ? 1 : 3));
        while (step(&w)) continue;
        assert_int_equal(requests[1].n_ended, 1);
        close_context(&w);
    }
}

// If weights are read for every step, one step has all sequences; else they are divided among the steps in flight.
static void with_one_step_in_flight_it_has_all_sequences(void **state) {
    (void)state;
    enum { N = 4, N_MADE = 20 };
    static request requests[N];
    for (int at_once = 0; at_once <= 1; at_once++) {
        context w = open_context(3, N_CTX, N);
        for (int n = 1; n <= N; n++) kin_scheduler_set_in_flight(w.s, n, at_once);
        for (int i = 0; i < N; i++) make_request(&requests[i], i + 2, 0, 8, N_MADE);
        for (int i = 0; i < N; i++) submit(&w, &requests[i]);
        while (step(&w)) continue;
        uint64_t n_steps = kin_scheduler_get_stats(w.s).n_steps;
        assert_true(at_once ? n_steps <= N_MADE + 5 : n_steps > 2 * N_MADE);
        if (at_once) assert_int_equal(kin_scheduler_get_stats(w.s).logits_bytes, N * N_VOCAB * sizeof(float)); // for one step
        close_context(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_company_a_sequence_is_what_it_is_alone),
        cmocka_unit_test(with_drafts_each_sequence_is_what_it_is_without),
        cmocka_unit_test(with_a_draft_model_each_sequence_is_what_it_is_without),
        cmocka_unit_test(a_seed_gives_the_sequence_that_it_gives_without_drafts),
        cmocka_unit_test(rejected_tokens_leave_the_cache_however_a_sequence_ends),
        cmocka_unit_test(in_several_steps_at_once_a_sequence_is_what_it_is_in_one),
        cmocka_unit_test(branches_with_the_right_token_are_followed),
        cmocka_unit_test(with_trees_each_sequence_is_what_it_is_without),
        cmocka_unit_test(branches_leave_no_block_behind),
        cmocka_unit_test(a_step_has_as_many_branches_as_there_is_room_for),
        cmocka_unit_test(a_secret_per_stream_never_crosses),
        cmocka_unit_test(the_youngest_waits_when_the_context_is_full),
        cmocka_unit_test(of_16_users_a_common_prefix_of_2048_tokens_is_computed_once),
        cmocka_unit_test(an_agent_of_20_turns_computes_only_what_is_new),
        cmocka_unit_test(the_prefix_that_was_not_used_for_longest_makes_room),
        cmocka_unit_test(a_prefix_of_8_tokens_is_reused_and_one_of_7_is_not),
        cmocka_unit_test(a_cancelled_sequence_leaves_at_once_and_the_others_go_on),
        cmocka_unit_test(a_cancelled_prompt_is_not_sent_on),
        cmocka_unit_test(a_sequence_is_cancelled_at_once_when_its_step_has_failed),
        cmocka_unit_test(sequences_of_both_kinds_share_a_context_that_is_full),
        cmocka_unit_test(a_sequence_ends_when_the_context_has_no_room_for_it),
        cmocka_unit_test(sequences_go_on_with_another_ring),
        cmocka_unit_test(a_failure_ends_all_with_its_reason),
        cmocka_unit_test(with_one_step_in_flight_it_has_all_sequences),
        cmocka_unit_test(a_prompt_beside_sequences_comes_in_pieces),
        cmocka_unit_test(beside_few_sequences_prompts_may_have_their_own_steps),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
