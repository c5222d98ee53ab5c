// The scheduler's timing (pipeline/scheduler.h): what it sends when, in a ring whose devices only take time.
//
// This file replaces pipeline/head.h (a pipeline of members, each of which does one step at a time), pipeline/draft_model.h
// (which drafts all tokens but each WRONG_EVERY-th one correctly), pipeline/prefix_pages.h (all pages are stored) and
// base/clock.h (simulated time), under the same names. A step
// takes STEP_MS and ROW_MS for each token, divided by the members; a slow member takes a multiple of its share. A pass of the
// draft model takes PASS_MS.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/scheduler.h"
#include "pipeline/steps.h"
#include "tests/place.h"

enum { N_VOCAB = 2, N_CTX = 16384, N_BATCH = 512, MAX_MEMBERS = 8, MAX_PROMPT = 8192, MAX_MADE = 4000, MAX_REQUESTS = 32 };
enum { WRONG_EVERY = 11, N_DRAFTED = 400 };
static const double STEP_MS = 30, ROW_MS = 4, CHEAP_ROW_MS = 0.7, PASS_MS = 3;

struct kin_head {
    int n_members, chunk_worth;
    int n_wakes; // times it is woken before a step is back
    uint64_t next, done;
    uint64_t n_slow;                     // the first steps take four times as long
    double slowness[MAX_MEMBERS];        // of each member; 1: takes its share of a step's time
    double free_ms[MAX_MEMBERS];         // when each member becomes idle
    double back_ms[KIN_STEPS_IN_FLIGHT]; // when each step in flight comes back
    int n_good[KIN_STEPS_IN_FLIGHT];     // pages that were loaded
    double page_ms, load_ms;             // time to load a page, and of each request in addition
    double compute_ms;                   // of the head for each step, as it reports it; 0: not known
    int timeout_ms;                      // of the first request to load pages
    int n_stored;                        // pages that were stored
    int n_most;                          // most steps in flight since it was set to 0
};

// Knows the tokens before `end`, behind the first `base` tokens of its only sequence.
struct kin_draft_model {
    int base, end, n_passes, n_meanwhile;
};

static struct {
    kin_head head;
    kin_draft_model drafts;
    double row_ms; // ROW_MS or CHEAP_ROW_MS
    bool works_meanwhile;
    double late_ms; // time that steps waited for a pass to end
    double now_ms;
} t;

kin_time kin_clock_now(void) {
    return (kin_time)(t.now_ms * 1e6);
}

// ---- the head

int kin_head_n_batch(const kin_head *h) {
    (void)h;
    return N_BATCH;
}

int kin_head_n_members(const kin_head *h) {
    return h->n_members;
}

kin_border_set kin_head_borders(const kin_head *h) {
    (void)h;
    return (kin_border_set){0};
}

int kin_head_n_chunk(const kin_head *h, int n) {
    return kin_prompt_chunk_tokens(n, h->n_members, N_BATCH, h->chunk_worth);
}

int kin_head_chunk_worth(const kin_head *h) {
    return h->chunk_worth;
}

bool kin_head_is_exact(const kin_head *h) {
    (void)h;
    return true;
}

bool kin_head_pages_stay_behind(const kin_head *h) {
    (void)h;
    return true;
}

bool kin_head_has_room(const kin_head *h) {
    return h->next - h->done < (uint64_t)(h->n_members > 1 ? KIN_STEPS_IN_FLIGHT : 1);
}

int kin_head_change(kin_head *h, kin_kv_op op, kin_err *err) {
    (void)h, (void)op, (void)err;
    return 0;
}

void kin_head_clear(kin_head *h) {
    (void)h;
}

int kin_head_send(kin_head *h, const kin_head_step *step, uint64_t *number, kin_err *err) {
    (void)err;
    double at_ms = t.now_ms, took_ms = (STEP_MS + t.row_ms * step->n) * (h->next < h->n_slow ? 4 : 1);
    for (int i = 0; i < h->n_members; i++) {
        if (h->free_ms[i] > at_ms) at_ms = h->free_ms[i];
        h->free_ms[i] = at_ms += took_ms * h->slowness[i] / h->n_members;
    }
    h->back_ms[h->next % KIN_STEPS_IN_FLIGHT] = at_ms;
    if (step->n_out > 0) memset(step->logits, 0, (size_t)step->n_out * N_VOCAB * sizeof *step->logits);
    *number = h->next++;
    if ((int)(h->next - h->done) > h->n_most) h->n_most = (int)(h->next - h->done);
    return 0;
}

int kin_head_send_pages(kin_head *h, const kin_page_request *request, const int32_t *tokens, uint64_t *number, kin_err *err) {
    (void)tokens, (void)err;
    if (request->loads && h->timeout_ms == 0) h->timeout_ms = request->timeout_ms;
    if (!request->loads && !request->drops) h->n_stored += request->n;
    double took_ms = request->loads ? h->load_ms + h->page_ms * request->n : 0;
    h->n_good[h->next % KIN_STEPS_IN_FLIGHT] = request->loads ? request->n : 0;
    h->back_ms[h->next % KIN_STEPS_IN_FLIGHT] = t.now_ms + took_ms;
    *number = h->next++;
    return 0;
}

int kin_head_n_good(const kin_head *h, uint64_t number) {
    return h->n_good[number % KIN_STEPS_IN_FLIGHT];
}

const float *kin_head_states(const kin_head *h) {
    (void)h;
    return NULL;
}

int kin_head_project(kin_head *h, int n, const float *hidden, float *logits, kin_err *err) {
    (void)h, (void)n, (void)hidden, (void)logits;
    return kin_err_set(err, "not here");
}

int kin_head_end(kin_head *h, int n, const float *x, float *hidden, kin_err *err) {
    (void)h, (void)n, (void)x, (void)hidden;
    return kin_err_set(err, "not here");
}

int kin_head_receive(kin_head *h, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err) {
    (void)err;
    *number = 0;
    if (h->n_wakes > 0) return h->n_wakes--, 0;
    *number = h->done++;
    double back_ms = h->back_ms[*number % KIN_STEPS_IN_FLIGHT];
    while (meanwhile && t.works_meanwhile && t.now_ms < back_ms) {
        if (!meanwhile->work(meanwhile->user, (back_ms - t.now_ms) / 1e3)) break;
    }
    if (back_ms > t.now_ms)
        t.now_ms = back_ms;
    else
        t.late_ms += t.now_ms - back_ms;
    return 0;
}

// ---- the pages

bool kin_prefix_pages_name(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, kin_page_key *keys) {
    (void)pages, (void)tokens, (void)first, (void)n, (void)keys;
    return true;
}

int kin_prefix_pages_find(kin_prefix_pages *pages, const int32_t *tokens, int first, int n_blocks) {
    (void)pages, (void)tokens, (void)first;
    return n_blocks;
}

void kin_prefix_pages_forget(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks) {
    (void)pages, (void)tokens, (void)n_blocks;
}

void kin_prefix_pages_checkpoints(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, uint8_t *kinds) {
    (void)pages, (void)tokens;
    memset(kinds, KIN_STATES_NONE, (size_t)n_blocks);
}

void kin_prefix_pages_set_checkpoint(kin_prefix_pages *pages, const int32_t *tokens, int n_blocks, kin_states_kind kind) {
    (void)pages, (void)tokens, (void)n_blocks, (void)kind;
}

void kin_prefix_pages_keep(kin_prefix_pages *pages, const int32_t *tokens, int first, int n, const kin_page_key *keys,
                           const kin_border_set *borders) {
    (void)pages, (void)tokens, (void)first, (void)n, (void)keys, (void)borders;
}

int kin_prefix_pages_borders(kin_prefix_pages *pages, const kin_page_key *keys, int n, kin_border_set *borders) {
    (void)pages, (void)keys, (void)n, (void)borders;
    fail_msg("no layer is recomputed alone: no sequence was in a ring that was lost");
    return 0;
}

// ---- the draft model

void kin_head_count_sequences(kin_head *h, uint64_t n_begun, int n_running) {
    (void)h, (void)n_begun, (void)n_running;
}

const kin_head_counts *kin_head_get_counts(const kin_head *h) {
    (void)h;
    return NULL;
}

kin_token_times kin_head_token_times(const kin_head_counts *counts) {
    (void)counts;
    return (kin_token_times){.compute_ns = (uint64_t)(t.head.compute_ms * 1e6)};
}

void kin_draft_model_end(kin_draft_model *m, uint64_t request) {
    (void)m, (void)request;
}

static int32_t guess(int pos) {
    return pos % WRONG_EVERY != 0;
}

int kin_draft_model_n_known(const kin_draft_model *m, const kin_draft_query *w) {
    for (int pos = m->base; pos < w->n; pos++) {
        if (w->tokens[pos] != guess(pos)) return 0;
    }
    return m->base > 0 && m->base <= w->n && m->end > w->n ? m->end - w->n : 0;
}

static void pass(kin_draft_model *m, const kin_draft_query *w, kin_draft_spent *spent) {
    bool is_first = kin_draft_model_n_known(m, w) == 0;
    if (is_first) m->base = m->end = w->n;
    m->end++;
    m->n_passes++;
    t.now_ms += PASS_MS;
    spent->all_s += PASS_MS / 1e3;
    spent->n_passes++;
    if (is_first) {
        spent->first.took_s = PASS_MS / 1e3;
        spent->first.n = spent->first.n_sequences = 1;
    } else {
        spent->further.took_s += PASS_MS / 1e3;
        spent->further.n++;
        spent->further.n_sequences++;
    }
}

kin_draft_spent kin_draft_model_propose(kin_draft_model *m, const kin_draft_query *w, int n, const kin_draft_limits *l) {
    kin_draft_spent spent = {0};
    double chance = l->chances[0];
    assert_int_equal(n, 1);
    for (int i = 0; i < l->most && i < w->most && chance >= l->least[i]; i++, chance *= l->chances[0]) {
        if (kin_draft_model_n_known(m, w) <= i) pass(m, w, &spent);
        if (i == 0) *w->out = (kin_draft){.kind = KIN_DRAFT_MODEL};
        w->out->tokens[w->out->n++] = guess(w->n + i);
    }
    return spent;
}

kin_draft_spent kin_draft_model_go_on(kin_draft_model *m, const kin_draft_query *w, int n, const kin_draft_limits *l) {
    kin_draft_spent spent = {0};
    assert_int_equal(n, 1);
    int n_known = kin_draft_model_n_known(m, w);
    double chance = 1;
    for (int i = 0; i < n_known; i++) chance *= l->chances[0];
    if (n_known < l->most && n_known < w->most && chance >= l->least[n_known]) pass(m, w, &spent);
    m->n_meanwhile += spent.n_passes;
    return spent;
}

// ---- sequences

typedef struct request {
    int32_t prompt[MAX_PROMPT];
    int n_prompt, n_made, n_most;
    int n_read; // of the prompt
    double made_ms[MAX_MADE];
    bool has_ended;
} request;

static request requests[MAX_REQUESTS];

static int32_t next(void *user, float *logits) {
    request *x = user;
    (void)logits;
    if (x->n_made == x->n_most) return KIN_GENERATION_NO_TOKEN;
    x->made_ms[x->n_made++] = t.now_ms;
    return 1;
}

static void progress(void *user, int n_done, int n_cached) {
    (void)n_cached;
    ((request *)user)->n_read = n_done;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    (void)why;
    assert_int_equal(how, KIN_GENERATION_DONE);
    ((request *)user)->has_ended = true;
}

static kin_prefix_pages *all_pages; // for kin_scheduler_options; not NULL: sequences are stored
static int draft_least;             // for kin_scheduler_options; if not 0, all sequences have drafts
static int n_ctx = N_CTX;           // for kin_scheduler_options

static kin_scheduler *open_scheduler(int n_members, bool has_drafts) {
    kin_scheduler_options o = {.n_ctx = n_ctx,
                               .n_vocab = N_VOCAB,
                               .n_embd = N_VOCAB,
                               .n_parallel = MAX_REQUESTS,
                               .keeps = all_pages != NULL,
                               .pages = all_pages,
                               .draft_model = has_drafts ? &t.drafts : NULL,
                               .draft_least = draft_least};
    kin_scheduler *s;
    kin_err err;
    memset(&t, 0, sizeof t);
    memset(requests, 0, sizeof requests);
    t.head = (kin_head){.n_members = n_members, .next = 1, .done = 1};
    for (int i = 0; i < n_members; i++) t.head.slowness[i] = 1;
    t.now_ms = 1000;
    t.row_ms = ROW_MS;
    if (kin_scheduler_open(&s, &o, &err) != 0 || kin_scheduler_set_head(s, &t.head, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_scheduler(...) FROM_TEST(open_scheduler(__VA_ARGS__))

static void draft_nothing(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    (void)user, (void)tokens, (void)n, (void)most;
    out->n = 0;
}

static void draft_one(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    (void)user, (void)tokens, (void)n;
    *out = (kin_draft){.n = most > 0, .tokens = {1}};
}

static void draft_three(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    (void)user, (void)tokens, (void)n;
    *out = (kin_draft){.n = most < 3 ? most : 3, .tokens = {1, 1, 1}};
}

static void submit(kin_scheduler *s, int i, int n_prompt, int n_most) {
    static const kin_draft_source silent = {draft_nothing, NULL}, loud = {draft_one, NULL};
    request *x = &requests[i];
    kin_generation *g;
    kin_err err;
    x->n_prompt = n_prompt;
    x->n_most = n_most;
    for (int k = 0; k < n_prompt; k++) x->prompt[k] = (k * 7 + i) % N_VOCAB;
    kin_generation_options o = {.prompt = x->prompt,
                                .n_prompt = n_prompt,
                                .no_cache = all_pages == NULL,
                                .next = next,
                                .progress = progress,
                                .ended = ended,
                                .drafts = draft_least > 0 ? &loud : &silent,
                                .user = x};
    if (kin_scheduler_submit(s, &o, &g, &err) != 0) fail_msg("%s", err.text);
}
#define submit(...) FROM_TEST(submit(__VA_ARGS__))

static bool step(kin_scheduler *s) {
    bool busy;
    kin_err err;
    if (kin_scheduler_step(s, &busy, &err) != 0) fail_msg("%s", err.text);
    return busy;
}
#define step(...) FROM_TEST(step(__VA_ARGS__))

// ---- claims

// The next token follows the last piece of the other prompt round the ring, and does not wait until that piece is back.
static void a_sequence_that_is_ready_follows_the_prompts_of_others(void **state) {
    (void)state;
    enum { N_MEMBERS = 4 };
    for (int before = 0; before <= 1; before++) { // the sequence decodes before the prompt comes, or both come at once
        kin_scheduler *s = open_scheduler(N_MEMBERS, false);
        for (int n = 1; n <= N_MEMBERS; n++) kin_scheduler_set_in_flight(s, n, n);
        submit(s, 0, 40, MAX_MADE);
        while (before && requests[0].n_made < 20) step(s);
        submit(s, 1, 900, MAX_MADE);
        while (requests[1].n_made == 0) step(s);
        int n = 0; // tokens of the sequence before the prompt was computed
        while (n < requests[0].n_made && requests[0].made_ms[n] < requests[1].made_ms[0]) n++;
        while (requests[0].n_made <= n) step(s);
        double until_ms = requests[1].made_ms[0] - requests[0].made_ms[n - 1],
               gap_ms = requests[0].made_ms[n] - requests[0].made_ms[n - 1];
        double most_ms = fmax(STEP_MS + ROW_MS, until_ms + (STEP_MS + ROW_MS) / 2);
        if (gap_ms > most_ms) fail_msg("the prompt is there after %.0f ms, the text went on after %.0f", until_ms, gap_ms);
        kin_scheduler_close(s);
    }
}

// One step at a time suits the ring, as with streamed weights: sequences whose prompts are done first get no step of their own.
static void sequences_whose_prompts_end_one_after_another_go_on_together(void **state) {
    (void)state;
    enum { N_MEMBERS = 4, N_REQUESTS = 8, N_MADE = 10 };
    kin_scheduler *s = open_scheduler(N_MEMBERS, false);
    for (int n = 1; n <= N_REQUESTS; n++) kin_scheduler_set_in_flight(s, n, 1);
    for (int i = 0; i < N_REQUESTS; i++) submit(s, i, 10 + 8 * i, N_MADE);
    while (step(s)) continue;
    double first_ms = 0, last_ms = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        if (i == 0 || requests[i].made_ms[0] < first_ms) first_ms = requests[i].made_ms[0];
        last_ms = fmax(last_ms, requests[i].made_ms[0]);
    }
    assert_true(last_ms > first_ms); // several steps had their prompts
    for (int i = 0; i < N_REQUESTS; i++) {
        for (int k = 1; k < N_MADE; k++) {
            double due_ms = last_ms + k * (STEP_MS + ROW_MS * N_REQUESTS);
            if (fabs(requests[i].made_ms[k] - due_ms) > 0.1)
                fail_msg("token %d of text %d came after %.1f ms, not %.1f", k, i, requests[i].made_ms[k] - last_ms,
                         due_ms - last_ms);
        }
    }
    kin_scheduler_close(s);
}

// Devices read their weights for each step: prompts that come while the first step is in flight share the next one.
static void prompts_that_come_one_by_one_share_a_step_behind_the_first(void **state) {
    (void)state;
    enum { N_REQUESTS = 7, N_PROMPT = 10, WORTH = 60 };
    static const struct {
        int worth;
        uint64_t n_steps;
    } cases[] = {{0, N_REQUESTS}, {WORTH, 3}}; // 10; then 30 and 30, half of what is worth a step
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kin_scheduler *s = open_scheduler(4, false);
        t.head.chunk_worth = cases[k].worth;
        for (int n = 1; n <= N_REQUESTS; n++) kin_scheduler_set_in_flight(s, n, 1);
        t.head.n_wakes = N_REQUESTS;
        for (int i = 0; i < N_REQUESTS; i++) {
            submit(s, i, N_PROMPT, 2);
            step(s);
        }
        for (bool any = true; any;) {
            any = false;
            for (int i = 0; i < N_REQUESTS; i++) any = any || requests[i].n_made == 0;
            if (any) step(s);
        }
        assert_int_equal(t.head.done - 1, cases[k].n_steps);
        while (step(s)) continue;
        kin_scheduler_close(s);
    }
}

static double longest_gap_ms(const request *x, int first) {
    double longest = 0;
    for (int i = first > 0 ? first : 1; i < x->n_made; i++) longest = fmax(longest, x->made_ms[i] - x->made_ms[i - 1]);
    return longest;
}

// Each row makes a step longer by a tenth, as on two cores.
static void a_prompt_makes_steps_longer_by_less_than_half(void **state) {
    (void)state;
    enum { N_REQUESTS = 2 };
    kin_scheduler *s = open_scheduler(1, false);
    for (int i = 0; i < N_REQUESTS; i++) submit(s, i, 20, 300);
    while (requests[N_REQUESTS - 1].n_made < 20) step(s);
    double steady_ms = requests[0].made_ms[requests[0].n_made - 1] - requests[0].made_ms[requests[0].n_made - 2];
    int n = requests[0].n_made;
    submit(s, N_REQUESTS, 400, 2);
    while (requests[N_REQUESTS].n_made == 0) step(s);
    double longest_ms = longest_gap_ms(&requests[0], n);
    if (longest_ms > 1.41 * steady_ms) fail_msg("%.1f ms where %.1f are usual", longest_ms, steady_ms);
    assert_true(requests[0].n_made - n < 400 / 2); // at least two prompt tokens in each step
    kin_scheduler_close(s);
}

// The first steps of a server are slow, since weights are being loaded.
static void after_slow_steps_pieces_are_those_of_quick_ones(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(1, false);
    t.head.n_slow = 5;
    submit(s, 0, 20, 100);
    while (requests[0].n_made < 4) step(s);
    submit(s, 1, 400, 2);
    while (requests[0].n_made < 80) step(s);
    double longest_ms = longest_gap_ms(&requests[0], 5), alone_ms = STEP_MS + ROW_MS;
    if (longest_ms > 2 * alone_ms) fail_msg("%.1f ms where %.1f are usual", longest_ms, alone_ms);
    kin_scheduler_close(s);
}

// ---- against the best sizes of pieces

// Returns the time from a sequence's token to its next, with n_steps in flight of n_rows rows each.
static double cycle_ms(int n_steps, int n_rows) {
    double sum = 0, most = 0;
    for (int i = 0; i < t.head.n_members; i++) {
        sum += t.head.slowness[i] / t.head.n_members;
        most = fmax(most, t.head.slowness[i] / t.head.n_members);
    }
    return fmax(sum, n_steps * most) * (STEP_MS + t.row_ms * n_rows);
}

// Returns the best rate of prompt tokens per ms beside n_sequences sequences, if a cycle may take 1.4 times as long.
static double best_rate(int n_sequences) {
    double best = 0;
    for (int n_steps = 1; n_steps <= t.head.n_members; n_steps++) {
        int n_rows = (n_sequences + n_steps - 1) / n_steps;
        for (int n = 1; cycle_ms(n_steps, n_rows + n) <= 1.4 * cycle_ms(1, n_rows); n++)
            best = fmax(best, n_steps * n / cycle_ms(n_steps, n_rows + n));
    }
    return best;
}

static double plain_ms(int n_sequences) {
    int n_steps = n_sequences < t.head.n_members ? n_sequences : t.head.n_members;
    return cycle_ms(n_steps, (n_sequences + n_steps - 1) / n_steps);
}

// A prompt of n tokens was read beside n_sequences sequences from `begun_ms` on, when sequence 0 had n_made tokens.
static void expect_good_pieces(const char *what, const request *prompt, int n, int n_sequences, double begun_ms, int n_made) {
    double took_ms = prompt->made_ms[0] - begun_ms, best_ms = n / best_rate(n_sequences);
    double longest_ms = longest_gap_ms(&requests[0], n_made), alone_ms = plain_ms(n_sequences);
    print_message("%s: %.2f of the shortest time; longest gap %.2f of the usual one\n", what, took_ms / best_ms,
                  longest_ms / alone_ms);
    if (took_ms > 1.5 * best_ms) fail_msg("%s: %.0f ms where %.0f are possible", what, took_ms, best_ms);
    if (longest_ms > 2 * alone_ms) fail_msg("%s: %.1f ms where %.1f are usual", what, longest_ms, alone_ms);
}
#define expect_good_pieces(...) FROM_TEST(expect_good_pieces(__VA_ARGS__))

enum { LONG_PROMPT = 3000 };

static void write_text_0(kin_scheduler *s) {
    submit(s, 0, 20, MAX_MADE);
    while (requests[0].n_made < 20) step(s);
}
#define write_text_0(...) FROM_TEST(write_text_0(__VA_ARGS__))

// The scheduler was not told how many steps suit the ring.
static void pieces_of_a_prompt_suit_an_uneven_ring(void **state) {
    (void)state;
    static const double slowness[] = {1, 1.5, 2, 3, 8};
    for (size_t k = 0; k < sizeof slowness / sizeof *slowness; k++) {
        for (int slow = 0; slow < 4; slow += 3) {
            kin_scheduler *s = open_scheduler(4, false);
            char what[64];
            snprintf(what, sizeof what, "member %d takes %.1f times as long", slow, slowness[k]);
            t.head.slowness[slow] = slowness[k];
            write_text_0(s);
            double begun_ms = t.now_ms;
            int n_made = requests[0].n_made;
            submit(s, 1, LONG_PROMPT, 2);
            while (requests[1].n_made == 0) step(s);
            expect_good_pieces(what, &requests[1], LONG_PROMPT, 1, begun_ms, n_made);
            kin_scheduler_close(s);
        }
    }
}

static void pieces_of_a_prompt_suit_sequences_that_begin_meanwhile(void **state) {
    (void)state;
    enum { N_SHORT = 8 };
    for (int n_members = 1; n_members <= 4; n_members += 3) {
        kin_scheduler *s = open_scheduler(n_members, false);
        char what[64];
        snprintf(what, sizeof what, "%d texts begin, %d members", N_SHORT, n_members);
        write_text_0(s);
        submit(s, 1, LONG_PROMPT, 2);
        for (int i = 0; i < 20; i++) step(s);
        for (int i = 0; i < N_SHORT; i++) submit(s, 2 + i, 5, MAX_MADE);
        while (requests[1 + N_SHORT].n_made == 0) step(s);
        double begun_ms = t.now_ms;
        int n_made = requests[0].n_made, n_left = LONG_PROMPT - requests[1].n_read;
        while (requests[1].n_made == 0) step(s);
        expect_good_pieces(what, &requests[1], n_left, 1 + N_SHORT, begun_ms, n_made);
        kin_scheduler_close(s);
    }
}

static void pieces_of_a_prompt_suit_the_sequences_that_are_left(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(1, false);
    submit(s, 0, 20, MAX_MADE);
    for (int i = 2; i < MAX_REQUESTS; i++) submit(s, i, 20, 100); // all of them end in the same step
    while (requests[0].n_made < 20) step(s);
    submit(s, 1, LONG_PROMPT, 2);
    while (!requests[2].has_ended) step(s);
    double begun_ms = t.now_ms;
    int n_made = requests[0].n_made, n_left = LONG_PROMPT - requests[1].n_read;
    while (requests[1].n_made == 0) step(s);
    expect_good_pieces("texts have ended", &requests[1], n_left, 1, begun_ms, n_made);
    kin_scheduler_close(s);
}

static void pieces_of_a_prompt_suit_a_member_that_gets_slower(void **state) {
    (void)state;
    for (int n_members = 1; n_members <= 4; n_members += 3) {
        kin_scheduler *s = open_scheduler(n_members, false);
        char what[64];
        snprintf(what, sizeof what, "one of %d members gets slower", n_members);
        write_text_0(s);
        submit(s, 1, LONG_PROMPT, 2);
        for (int i = 0; i < 40; i++) step(s);
        t.head.slowness[n_members / 2] = 3;
        double begun_ms = t.now_ms;
        int n_made = requests[0].n_made + 3, n_left = LONG_PROMPT - requests[1].n_read; // behind the steps in flight, and these
        while (requests[1].n_made == 0) step(s);
        expect_good_pieces(what, &requests[1], n_left, 1, begun_ms, n_made);
        kin_scheduler_close(s);
    }
}

// While no sequence decodes, pieces are large, and a sequence's first tokens follow them.
static void what_followed_prompts_is_no_usual_step(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(4, false);
    for (int n = 1; n <= 4; n++) kin_scheduler_set_in_flight(s, n, n);
    submit(s, 0, 40, MAX_MADE);
    submit(s, 1, 4000, MAX_MADE);
    while (requests[0].n_made < 3) step(s);
    double begun_ms = t.now_ms;
    submit(s, 2, LONG_PROMPT, 2);
    while (requests[2].n_made == 0) step(s);
    expect_good_pieces("behind large pieces", &requests[2], LONG_PROMPT, 2, begun_ms, 4);
    kin_scheduler_close(s);
}

static void on_hidden(void *user, int pos, const float *rows, int n) {
    (void)rows;
    ((request *)user)->n_read = pos + n;
}

// Steps with drafts never show the time of a step without them.
static void hidden_states_are_computed_beside_sequences_with_drafts(void **state) {
    (void)state;
    enum { N_TOKENS = 20, MOST_MADE = 100 };
    draft_least = 1;
    for (int n_members = 1; n_members <= 4; n_members += 3) {
        kin_scheduler *s = open_scheduler(n_members, false);
        request *x = &requests[2];
        kin_generation *g;
        kin_err err;
        for (int i = 0; i < 2; i++) submit(s, i, 40, MAX_MADE);
        while (requests[0].n_made < 100) step(s);
        kin_generation_options o = {
            .prompt = x->prompt, .n_prompt = N_TOKENS, .no_cache = true, .hidden = on_hidden, .ended = ended, .user = x};
        assert_int_equal(kin_scheduler_submit(s, &o, &g, &err), 0);
        while (!x->has_ended && requests[0].n_made < 100 + MOST_MADE) step(s);
        assert_true(x->has_ended);
        kin_scheduler_close(s);
    }
    draft_least = 0;
}

// Returns the time for N_DRAFTED tokens in ms; ten of eleven drafts are right.
static double draft_text(int n_members, bool works_meanwhile) {
    kin_scheduler *s = open_scheduler(n_members, true);
    t.works_meanwhile = works_meanwhile;
    t.row_ms = CHEAP_ROW_MS;
    submit(s, 0, 40, N_DRAFTED);
    while (step(s)) continue;
    kin_scheduler_close(s);
    assert_int_equal(requests[0].n_made, N_DRAFTED);
    return requests[0].made_ms[N_DRAFTED - 1] - requests[0].made_ms[0];
}
#define draft_text(...) FROM_TEST(draft_text(__VA_ARGS__))

// With three drafted tokens, for example, and the guess behind them, the next drafts are known in seven of eleven steps.
static void a_draft_model_goes_on_while_the_ring_computes(void **state) {
    (void)state;
    double before_ms = draft_text(4, false);
    assert_true(t.drafts.n_passes > 0 && t.drafts.n_meanwhile == 0);
    double ms = draft_text(4, true);
    print_message("%.0f and %.0f ms, %d of %d passes meanwhile\n", before_ms, ms, t.drafts.n_meanwhile, t.drafts.n_passes);
    assert_true(ms < 0.9 * before_ms);
    assert_true(2 * t.drafts.n_meanwhile > t.drafts.n_passes);
    assert_true(t.late_ms == 0); // no pass began that did not fit
}

// A sequence decodes alone in a ring of four, and its drafts, three tokens, are always right. Returns the most steps in flight.
static int n_steps_of_drafts(double row_ms, double compute_ms, int n_allowed) {
    static const kin_draft_source three = {draft_three, NULL};
    kin_scheduler *s = open_scheduler(4, false);
    kin_generation *g;
    kin_err err;
    request *x = &requests[0];
    t.row_ms = row_ms;
    t.head.compute_ms = compute_ms;
    x->n_most = 400;
    if (n_allowed > 0) kin_scheduler_set_in_flight(s, 4, n_allowed);
    kin_generation_options o = {
        .prompt = x->prompt, .n_prompt = 40, .no_cache = true, .next = next, .drafts = &three, .ended = ended, .user = x};
    assert_int_equal(kin_scheduler_submit(s, &o, &g, &err), 0);
    while (x->n_made < 200) step(s);
    t.head.n_most = 0;
    while (step(s)) continue;
    kin_scheduler_close(s);
    return t.head.n_most;
}
#define n_steps_of_drafts(...) FROM_TEST(n_steps_of_drafts(__VA_ARGS__))

// One token per step takes 34 ms, and 8.5 with four steps in flight. One step with three drafted tokens takes 46 ms, so 11.5 for
// each. Where a row takes no time both take 7.5 ms.
static void several_steps_at_once_have_a_draft_where_that_is_faster(void **state) {
    (void)state;
    assert_int_equal(n_steps_of_drafts(4, 0, 0), 4);
    assert_int_equal(n_steps_of_drafts(4, 8, 0), 4);
    assert_int_equal(n_steps_of_drafts(0, 0, 0), 1);
    assert_int_equal(n_steps_of_drafts(4, 14, 0), 1); // the head is in every step
    assert_int_equal(n_steps_of_drafts(8, 0, 3), 3);  // 12.7 ms against 15.5
    assert_int_equal(n_steps_of_drafts(8, 0, 1), 1);
}

// Three prompts begin, for two of which there is room.
static void of_prompts_that_block_each_other_the_youngest_waits(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(1, false);
    for (int i = 0; i < 3; i++) submit(s, i, MAX_PROMPT, 0);
    while (!requests[0].has_ended || !requests[1].has_ended) {
        assert_false(requests[2].has_ended);
        step(s);
    }
    assert_int_equal(kin_scheduler_get_stats(s).n_preempted, 1);
    while (step(s)) continue;
    assert_true(requests[2].has_ended);
    kin_scheduler_close(s);
}

// A sequence for hidden states is the oldest, and in no step when a text needs its last block: it waits, and the text goes on.
static void the_oldest_waits_where_only_it_can(void **state) {
    (void)state;
    n_ctx = 4 * KIN_KV_CELLS;
    kin_scheduler *s = open_scheduler(1, false);
    request *x = &requests[1];
    kin_generation *g;
    kin_err err;
    const kin_generation_options o = {
        .prompt = x->prompt, .n_prompt = 200, .no_cache = true, .hidden = on_hidden, .ended = ended, .user = x};
    assert_int_equal(kin_scheduler_submit(s, &o, &g, &err), 0);
    submit(s, 0, 60, 190); // needs all four blocks in the end
    while (!requests[0].has_ended) {
        step(s);
        assert_false(x->has_ended);
    }
    assert_true(kin_scheduler_get_stats(s).n_preempted > 0);
    while (step(s)) continue;
    assert_true(x->has_ended);
    kin_scheduler_close(s);
    n_ctx = N_CTX;
}

// Sequences of one step stay together when a prompt beside them, which had steps of its own, has ended.
static void after_a_prompt_as_many_steps_are_in_flight_as_before(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(4, false);
    for (int n = 1; n <= 4; n++) kin_scheduler_set_in_flight(s, n, n < 4 ? 1 : 4);
    for (int i = 0; i < 2; i++) submit(s, i, 40, MAX_MADE);
    while (requests[0].n_made < 20 || requests[1].n_made < 20) step(s);
    t.head.n_most = 0;
    submit(s, 2, LONG_PROMPT, 1);
    while (!requests[2].has_ended) step(s);
    assert_true(t.head.n_most > 1);
    for (int i = 0; i < 20; i++) step(s);
    t.head.n_most = 0;
    for (int i = 0; i < 20; i++) step(s);
    assert_int_equal(t.head.n_most, 1);
    kin_scheduler_close(s);
}

// With a sequence for each member, prompts beside them take as many steps as suit the sequences, not fewer at first.
static void beside_a_sequence_for_each_member_prompts_have_no_steps_of_their_own(void **state) {
    (void)state;
    kin_scheduler *s = open_scheduler(2, false);
    for (int n = 1; n <= 2; n++) kin_scheduler_set_in_flight(s, n, 2 * n);
    for (int i = 0; i < 2; i++) submit(s, i, 40, MAX_MADE);
    while (requests[0].n_made < 20 || requests[1].n_made < 20) step(s);
    t.head.n_most = 0;
    submit(s, 2, LONG_PROMPT, 1);
    for (int i = 0; i < 4; i++) step(s);
    assert_int_equal(t.head.n_most, 4);
    kin_scheduler_close(s);
}

// Returns how many of a prompt's pages are loaded if each request takes `late_ms` longer than computing their tokens.
static int n_loaded(double late_ms) {
    enum { N_PAGES = 20, N_PROMPT = N_PAGES * KIN_KV_CELLS + 1, N_ALONE = KIN_KV_CELLS - 4 };
    kin_scheduler *s = open_scheduler(1, false);
    submit(s, 0, N_ALONE, 1); // less than a page: is computed, and shows how long a token takes
    double begun_ms = t.now_ms;
    while (step(s)) continue;
    t.head.page_ms = (requests[0].made_ms[0] - begun_ms) / N_ALONE * KIN_KV_CELLS;
    t.head.load_ms = late_ms;
    t.now_ms += 10000; // nothing runs
    submit(s, 1, N_PROMPT, 1);
    while (step(s)) continue;
    assert_int_equal(requests[1].n_made, 1);
    assert_true(fabs(t.head.timeout_ms - (1000 + 2 * t.head.page_ms)) <= 1); // for two pages
    kin_scheduler_stats stats = kin_scheduler_get_stats(s);
    assert_int_equal(stats.n_loaded_tokens / KIN_KV_CELLS + (uint64_t)t.head.n_stored, N_PAGES); // loaded ones stay stored
    assert_int_equal(stats.n_loaded_tokens + stats.n_prompt_tokens, N_PROMPT + N_ALONE);
    kin_scheduler_close(s);
    return (int)(stats.n_loaded_tokens / KIN_KV_CELLS);
}
#define n_loaded(...) FROM_TEST(n_loaded(__VA_ARGS__))

// The first request asks for two pages.
static void pages_may_take_a_quarter_of_a_second_longer_than_computing(void **state) {
    (void)state;
    static char any;
    all_pages = (kin_prefix_pages *)&any; // never dereferenced
    assert_int_equal(n_loaded(-50), 20);
    assert_int_equal(n_loaded(240), 20);
    assert_int_equal(n_loaded(260), 2);
    all_pages = NULL;
}

static void a_member_waits_ten_seconds_for_pages_while_the_time_of_tokens_is_not_known(void **state) {
    (void)state;
    static char any;
    all_pages = (kin_prefix_pages *)&any;
    kin_scheduler *s = open_scheduler(1, false);
    submit(s, 0, 2 * KIN_KV_CELLS + 1, 1);
    step(s);
    assert_int_equal(t.head.timeout_ms, 10000);
    kin_scheduler_close(s);
    all_pages = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_model_goes_on_while_the_ring_computes),
        cmocka_unit_test(a_sequence_that_is_ready_follows_the_prompts_of_others),
        cmocka_unit_test(sequences_whose_prompts_end_one_after_another_go_on_together),
        cmocka_unit_test(prompts_that_come_one_by_one_share_a_step_behind_the_first),
        cmocka_unit_test(a_prompt_makes_steps_longer_by_less_than_half),
        cmocka_unit_test(after_slow_steps_pieces_are_those_of_quick_ones),
        cmocka_unit_test(what_followed_prompts_is_no_usual_step),
        cmocka_unit_test(hidden_states_are_computed_beside_sequences_with_drafts),
        cmocka_unit_test(several_steps_at_once_have_a_draft_where_that_is_faster),
        cmocka_unit_test(of_prompts_that_block_each_other_the_youngest_waits),
        cmocka_unit_test(the_oldest_waits_where_only_it_can),
        cmocka_unit_test(after_a_prompt_as_many_steps_are_in_flight_as_before),
        cmocka_unit_test(beside_a_sequence_for_each_member_prompts_have_no_steps_of_their_own),
        cmocka_unit_test(a_member_waits_ten_seconds_for_pages_while_the_time_of_tokens_is_not_known),
        cmocka_unit_test(pages_may_take_a_quarter_of_a_second_longer_than_computing),
        cmocka_unit_test(pieces_of_a_prompt_suit_an_uneven_ring),
        cmocka_unit_test(pieces_of_a_prompt_suit_sequences_that_begin_meanwhile),
        cmocka_unit_test(pieces_of_a_prompt_suit_the_sequences_that_are_left),
        cmocka_unit_test(pieces_of_a_prompt_suit_a_member_that_gets_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
