// Requests of tests with small models (testkit/small_models.h): greedy texts with a hash of all their logits, for a scheduler.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "pipeline/scheduler.h"
#include "testkit/small_models.h"
#include "tests/place.h"

enum { SMALL_REQUEST_PROMPT = 15000, SMALL_REQUEST_MADE = 700 };

typedef struct request {
    int32_t prompt[SMALL_REQUEST_PROMPT], made[SMALL_REQUEST_MADE];
    int n_prompt, n_made, n_most, n_cached, n_ended;
    uint64_t logits;             // hash of all its logits
    const struct request *known; // its final output, from which drafts are made; NULL: no drafts
    kin_rng rng;
    kin_draft_source source;
    kin_draft_counts drafts;
    kin_generation_end how;
    kin_generation *g;
} request;

// Callbacks of a generation; user: the request.
static inline int32_t request_next(void *user, float *logits) {
    request *t = user;
    int32_t best = 0;
    t->logits = kin_hash64(logits, KIN_SMALL_VOCAB * sizeof *logits, t->logits);
    if (t->n_made == t->n_most) return KIN_GENERATION_NO_TOKEN;
    for (int32_t i = 1; i < KIN_SMALL_VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    return t->made[t->n_made++] = best;
}

static inline void request_progress(void *user, int n_done, int n_cached) {
    (void)n_done;
    ((request *)user)->n_cached = n_cached;
}

static inline void request_ended(void *user, kin_generation_end how, const kin_err *why) {
    request *t = user;
    if (why) print_message("%s\n", why->text);
    t->n_ended++;
    t->how = how;
}

// Drafts as many tokens as allowed, each right in two of three cases, with branches.
static inline void request_propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    request *t = user;
    const int at = n - t->n_prompt;
    (void)tokens;
    *out = (kin_draft){.kind = KIN_DRAFT_ORACLE, .n = most};
    for (int i = 0; i < out->n; i++) {
        bool is_right = at + i < t->known->n_made && kin_rng_unit(&t->rng) < 0.67;
        if (i > 1 && kin_rng_unit(&t->rng) < 0.1) out->skipped[i] = 1;
        out->tokens[i] = is_right ? t->known->made[at + i] : (int32_t)(kin_rng_u64(&t->rng) % KIN_SMALL_VOCAB);
    }
}

// Appends n tokens to the prompt, by their positions and the seed.
static inline void request_add_tokens(request *t, int seed, int n) {
    for (int i = 0; i < n; i++, t->n_prompt++)
        t->prompt[t->n_prompt] = (seed * (t->n_prompt + 7) * 37 + t->n_prompt / 3) % KIN_SMALL_VOCAB;
}

// The first n_shared tokens are the same for all seeds.
static inline void request_make(request *t, int seed, int n_shared, int n_prompt, int n_made) {
    *t = (request){.n_most = n_made};
    request_add_tokens(t, 1, n_shared < n_prompt ? n_shared : n_prompt);
    request_add_tokens(t, seed, n_prompt - t->n_prompt);
}

static inline void request_submit(kin_scheduler *s, request *t) {
    kin_generation_options o = {.prompt = t->prompt,
                                .n_prompt = t->n_prompt,
                                .next = request_next,
                                .progress = request_progress,
                                .drafts = t->known ? &t->source : NULL,
                                .draft_counts = &t->drafts,
                                .ended = request_ended,
                                .user = t};
    kin_err err;
    t->source = (kin_draft_source){request_propose, t};
    kin_rng_seed(&t->rng, 3);
    if (kin_scheduler_submit(s, &o, &t->g, &err) != 0) fail_msg("%s", err.text);
}
#define request_submit(...) FROM_TEST(request_submit(__VA_ARGS__))

static inline void request_run_all(kin_scheduler *s) {
    kin_err err;
    for (bool busy = true; busy;)
        if (kin_scheduler_step(s, &busy, &err) != 0) fail_msg("%s", err.text);
}
#define request_run_all(...) FROM_TEST(request_run_all(__VA_ARGS__))

// Expects that `a` has ended with the tokens and logits of `b`.
static inline void request_expect_same(const request *a, const request *b) {
    assert_int_equal(a->n_ended, 1);
    assert_int_equal(a->how, KIN_GENERATION_DONE);
    assert_int_equal(a->n_made, b->n_made);
    assert_memory_equal(a->made, b->made, (size_t)a->n_made * sizeof *a->made);
    assert_true(a->logits == b->logits);
}
#define request_expect_same(...) FROM_TEST(request_expect_same(__VA_ARGS__))
