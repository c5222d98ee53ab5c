#include "app/measure/oracle_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/measure/bench_text.h"
#include "base/median.h"

enum { MAX_REPS = 1000 };

typedef struct writing {
    kin_compute_loop *loop;
    const int32_t *prompt;
    int n_prompt, n_vocab;
    kin_oracle_options o;
    kin_draft_model *draft_model; // NULL: none
    double luck;                  // low-discrepancy variable for runs of right tokens, 0 to 1
    bool *right;                  // [n_gen]: the oracle's token is right
    double second_luck;           // the same for the second candidate
    bool *second_right;           // [n_gen]: the second candidate is right
    int32_t *known, *made;        // [n_gen]: tokens without drafts, and now
} writing;

static int32_t edited(const writing *w, int i) {
    enum { EVERY = 24 };
    int at = i % w->n_prompt;
    return at % EVERY == EVERY / 2 ? (w->prompt[at] + 1) % w->n_vocab : w->prompt[at];
}

static int32_t choose(void *user, const float *logits, int i) {
    writing *w = user;
    int32_t best = 0;
    for (int32_t id = 1; id < w->n_vocab; id++) best = logits[id] > logits[best] ? id : best;
    if (w->o.text == KIN_ORACLE_EDITS) best = edited(w, i); // after sampling, so that its time counts
    return w->made[i] = best;
}

// Draws where the oracle is right in a sequence, independently of the requests. Lengths of runs of right tokens follow the
// distribution of chance, but with evenly spread samples, because sequences are short (with 32 tokens and 70 % right the tokens
// per pass vary by 10 %, at random by 20).
static void draw_luck(writing *w) {
    static const double GOLDEN = 0.6180339887498949;
    for (int i = 0; i < w->o.n_gen; i++) {
        w->luck = fmod(w->luck + GOLDEN, 1);
        double n = w->o.chance >= 1 ? INFINITY : w->o.chance <= 0 ? 0 : floor(log(w->luck) / log(w->o.chance));
        for (; n > 0 && i < w->o.n_gen; n--) w->right[i++] = true;
        if (i == w->o.n_gen) return;
        w->right[i] = false;
        w->second_luck = fmod(w->second_luck + GOLDEN, 1);
        w->second_right[i] = w->second_luck < w->o.second_chance;
    }
}

// Returns the oracle's first or second candidate for a position.
static int32_t next_token(const writing *w, int at, bool second) {
    bool is_right = second ? !w->right[at] && w->second_right[at] : w->right[at];
    return (w->known[at] + (is_right ? 0 : second ? 2 : 1)) % w->n_vocab;
}

// A candidate to follow a token of the draft.
typedef struct choice {
    int parent, at;
    double chance; // probability that it and all tokens before it are right
    bool second;
} choice;

static void add_choices(const writing *w, choice *choices, int *n, int parent, int at, double chance) {
    if (at == w->o.n_gen) return;
    choices[(*n)++] = (choice){parent, at, chance * w->o.chance, false};
    if (w->o.second_chance > 0) choices[(*n)++] = (choice){parent, at, chance * (1 - w->o.chance) * w->o.second_chance, true};
}

// Proposes the likeliest tokens, by the oracle's own probabilities.
static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    const writing *w = user;
    choice choices[2 * KIN_DRAFT_MAX + 2];
    int n_choices = 0;
    (void)tokens;
    *out = (kin_draft){.kind = KIN_DRAFT_ORACLE};
    add_choices(w, choices, &n_choices, -1, n - w->n_prompt, 1);
    while (out->n < most && n_choices > 0) {
        int best = 0;
        for (int i = 1; i < n_choices; i++) best = choices[i].chance > choices[best].chance ? i : best;
        choice c = choices[best];
        memmove(&choices[best], &choices[best + 1], (size_t)(--n_choices - best) * sizeof *choices);
        kin_draft_add(out, c.parent, next_token(w, c.at, c.second), 0);
        add_choices(w, choices, &n_choices, out->n - 1, c.at + 1, c.chance);
    }
}

static void draft_nothing(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    (void)user, (void)tokens, (void)n, (void)most;
    out->n = 0;
}

// *ms: per token after the first one.
static int write_text(writing *w, const kin_draft_source *source, kin_draft_counts *drafts, double *ms, kin_err *err) {
    const kin_bench_text text = {.prompt = w->prompt,
                                 .n_prompt = w->n_prompt,
                                 .n_tokens = w->o.n_gen,
                                 .choose = choose,
                                 .user = w,
                                 .drafts = source,
                                 .draft_counts = drafts};
    double first_ms;
    if (kin_bench_write(w->loop, &text, &first_ms, ms, err) != 0) return KIN_FAIL;
    *ms /= w->o.n_gen - 1;
    return 0;
}

static int write_drafted(writing *w, kin_draft_counts *drafts, double *ms, kin_err *err) {
    const kin_draft_source oracle = {propose, w}, silent = {draft_nothing, NULL};
    kin_drafter *drafter;
    draw_luck(w);
    if (w->o.text == KIN_ORACLE_KNOWS && !w->draft_model) return write_text(w, &oracle, drafts, ms, err);
    if (w->o.text == KIN_ORACLE_KNOWS) {
        kin_draft_model_prompt(w->draft_model, &oracle);
        int rc = write_text(w, &silent, drafts, ms, err);
        kin_draft_model_prompt(w->draft_model, NULL);
        return rc;
    }
    if (kin_drafter_open(&drafter, NULL, err) != 0) return KIN_FAIL;
    int rc = write_text(w, kin_drafter_source(drafter), drafts, ms, err);
    kin_drafter_close(drafter);
    return rc;
}

static int write_pair(writing *w, kin_draft_counts *drafts, double *plain_ms, double *drafted_ms, kin_err *err) {
    if (write_text(w, NULL, NULL, plain_ms, err) != 0) return KIN_FAIL;
    memcpy(w->known, w->made, (size_t)w->o.n_gen * sizeof *w->known);
    if (write_drafted(w, drafts, drafted_ms, err) != 0) return KIN_FAIL;
    bool same = memcmp(w->known, w->made, (size_t)w->o.n_gen * sizeof *w->known) == 0;
    return same ? 0 : kin_err_set(err, "the output with drafts differs from the output without");
}

static int write_pairs(writing *w, int n_reps, kin_oracle_result *out, kin_err *err) {
    double plain_ms[MAX_REPS], drafted_ms[MAX_REPS];
    kin_draft_counts warm = {0};
    if (write_pair(w, &warm, plain_ms, drafted_ms, err) != 0) return KIN_FAIL; // warm-up, not counted, as in all of kin bench
    for (int i = 0; i < n_reps; i++) {
        if (write_pair(w, &out->drafts, &plain_ms[i], &drafted_ms[i], err) != 0) return KIN_FAIL;
        kin_app_progress(NULL, "measuring", (uint64_t)i + 1, (uint64_t)n_reps);
    }
    out->plain_ms = kin_median(plain_ms, n_reps);
    out->drafted_ms = kin_median(drafted_ms, n_reps);
    return 0;
}

int kin_oracle_bench(kin_session *s, const kin_oracle_options *o, const int32_t *prompt, int n_prompt, kin_oracle_result *out,
                     kin_err *err) {
    writing w = {.o = *o, .prompt = prompt, .n_prompt = n_prompt, .n_vocab = s->model.hp.n_vocab, .draft_model = s->draft_model};
    size_t n_gen = (size_t)o->n_gen;
    kin_assert(o->n_reps > 0 && o->n_reps <= MAX_REPS);
    *out = (kin_oracle_result){0};
    w.known = malloc(n_gen * sizeof *w.known);
    w.made = malloc(n_gen * sizeof *w.made);
    w.right = malloc(n_gen * sizeof *w.right);
    w.second_right = malloc(n_gen * sizeof *w.second_right);
    bool ok = w.known && w.made && w.right && w.second_right;
    int rc = ok ? kin_compute_loop_open(&w.loop, s, 1, false, err) : kin_err_set(err, "out of memory");
    if (rc == 0) rc = kin_compute_loop_enter(w.loop, err);
    if (rc == 0) rc = write_pairs(&w, o->n_reps, out, err);
    if (w.loop) kin_compute_loop_leave(w.loop);
    kin_compute_loop_close(w.loop);
    free(w.known);
    free(w.made);
    free(w.right);
    free(w.second_right);
    return rc;
}
