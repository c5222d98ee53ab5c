#include <string.h>

#include "pipeline/scheduler_drafts.h"

#include "pipeline/scheduler_branches.h"
#include "pipeline/scheduler_sequences.h"
#include "pipeline/scheduler_slots.h"

// ---- adding to a step

static bool may_draft(const kin_scheduler *s) {
    return s->o.inexact_drafts || kin_head_is_exact(s->head);
}

// Returns how many drafted tokens the sequence has room for.
static int most_drafted(const kin_scheduler *s, const kin_generation *g) {
    return kin_scheduler_min(s->speculation.most, s->o.n_ctx - g->n);
}

static void learn_passes(kin_scheduler *s, const kin_draft_spent *spent) {
    if (spent->first.n > 0) kin_speculation_learn_pass(&s->speculation, true, spent->first.n_sequences, spent->first.took_s);
    if (spent->further.n > 0)
        kin_speculation_learn_pass(&s->speculation, false, (double)spent->further.n_sequences / spent->further.n,
                                   spent->further.took_s / spent->further.n);
}

static kin_draft_spent compute(kin_scheduler *s, const kin_draft_query *queries, int n, const kin_draft_limits *limits) {
    if (s->o.mtp) return kin_mtp_drafter_propose(s->o.mtp, s->head, queries, n, limits);
    return kin_draft_model_propose(s->o.draft_model, queries, n, limits);
}

// Asks the draft model, or the draft block, for drafts where its tokens are likelier than the present ones. Returns the seconds
// that it took.
static double compute_drafts(kin_scheduler *s, kin_flight *f, int n_free) {
    kin_draft_query queries[KIN_DRAFT_MODEL_MAX_SEQUENCES];
    int n = 0, n_known = s->o.mtp ? 0 : KIN_DRAFT_MAX;
    for (int i = 0; i < f->n_parts && (s->o.draft_model || s->o.mtp); i++) {
        kin_generation *g = f->parts[i].g;
        int most = most_drafted(s, g);
        if (!g->o.drafts || most <= 0 || !kin_speculation_prefers_model(&s->speculation, &g->draft)) continue;
        queries[n] = (kin_draft_query){.sequence = g->number, .tokens = g->tokens, .n = g->n, .most = most, .out = &g->draft};
        if (!s->o.mtp) n_known = kin_scheduler_min(n_known, kin_draft_model_n_known(s->o.draft_model, &queries[n]));
        n++;
    }
    if (n == 0) return 0;
    kin_draft_limits limits = kin_speculation_limit_model(&s->speculation, f->n_parts, n_free, n, n_known);
    if (limits.most == 0) return 0;
    kin_draft_spent spent = compute(s, queries, n, &limits);
    learn_passes(s, &spent);
    return spent.all_s;
}

// True if the draft model can continue from the tokens that steps in flight have: no draft, or its own.
static bool may_go_on(const kin_generation *g) {
    return g->o.drafts && !g->o.hidden && !g->cancelled && g->n_ahead == 0 && g->n_steps_wanted <= 1 &&
           (g->draft.n == 0 || g->draft.kind == KIN_DRAFT_MODEL);
}

bool kin_scheduler_draft_ahead(void *user, double free_s) {
    kin_scheduler *s = user;
    kin_draft_query queries[KIN_DRAFT_MODEL_MAX_SEQUENCES];
    int n = 0;
    for (int i = 0; i < s->n_running && n < KIN_DRAFT_MODEL_MAX_SEQUENCES; i++) {
        kin_generation *g = s->running[i];
        int most = most_drafted(s, g);
        if (!may_go_on(g) || most <= 0) continue;
        queries[n++] = (kin_draft_query){.sequence = g->number, .tokens = g->tokens, .n = g->n, .most = most};
    }
    if (n == 0) return false;
    kin_draft_limits limits = kin_speculation_limit_ahead(&s->speculation, n, free_s);
    kin_draft_spent spent = kin_draft_model_go_on(s->o.draft_model, queries, n, &limits);
    learn_passes(s, &spent);
    return spent.n_passes > 0;
}

// Asks the sources that cost no time.
static void propose(const kin_scheduler *s, kin_generation *g) {
    int most = most_drafted(s, g);
    g->draft.n = 0;
    if (g->o.drafts && most > 0) g->o.drafts->propose(g->o.drafts->user, g->tokens, g->n, most, &g->draft);
    kin_assert(g->draft.n <= KIN_DRAFT_MAX);
}

static bool any_draft(const kin_flight *f) {
    for (int i = 0; i < f->n_parts; i++) {
        if (f->parts[i].g->draft.n > 0) return true;
    }
    return false;
}

// Adds a drafted token to the step.
static int add_token(kin_scheduler *s, kin_flight *f, int slot, int32_t token, int pos, kin_err *err) {
    int64_t cell;
    s->tokens[f->n_tokens] = token;
    s->seq[f->n_tokens] = slot;
    s->pos[f->n_tokens] = pos;
    s->out[f->n_out++] = f->n_tokens++;
    return kin_kv_blocks_append(s->blocks, slot, pos, &cell, err);
}

// Opens a branch: the sequence up to position `pos` in another slot, with the drafted tokens of slot `from`. The members copy
// these from the same step.
static int open_branch(kin_scheduler *s, const kin_generation *g, int slot, int from, int pos, kin_err *err) {
    s->slots[slot].branch_of = g;
    return kin_scheduler_change(s, (kin_kv_op){slot, from, pos}, err);
}

// Removes branches for which there is no room, and the tokens after them, from the draft.
static void fit_branches(kin_scheduler *s, kin_draft *d) {
    int n_branches = 0;
    uint32_t kept = 0;
    for (int i = 0; i < d->n; i++) n_branches += kin_draft_is_branch(d, i);
    if (n_branches == 0) return;
    int n_left = kin_scheduler_make_branches(s, n_branches);
    for (int i = 0; i < d->n; i++) {
        int before = kin_draft_parent(d, i);
        bool fits = (before < 0 || kept >> before & 1) && (!kin_draft_is_branch(d, i) || n_left-- > 0);
        kept |= (uint32_t)fits << i;
    }
    kin_draft_keep(d, kept);
}

// Adds the sequence's draft to the step, after the tokens of all sequences, as far as there is room: a branch and each 64th
// position need a block.
static int add_draft(kin_scheduler *s, kin_flight *f, kin_part *p, kin_err *err) {
    kin_generation *g = p->g;
    kin_draft *d = &g->draft;
    int pos[KIN_DRAFT_MAX];
    p->draft_row = f->n_out;
    p->draft_first = f->n_tokens;
    fit_branches(s, d);
    for (int i = 0; i < d->n; i++) {
        int before = kin_draft_parent(d, i), from = before < 0 ? g->slot : g->draft_slots[before];
        bool is_branch = kin_draft_is_branch(d, i);
        int slot = is_branch ? kin_scheduler_unused_slot(s) : from;
        pos[i] = before < 0 ? g->n : pos[before] + 1;
        if (slot < 0 || ((is_branch || pos[i] % KIN_KV_CELLS == 0) && !kin_scheduler_make_room(s, 1, KIN_SCHEDULER_NO_SLOT)))
            break;
        if (is_branch && open_branch(s, g, slot, from, pos[i], err) != 0) return KIN_FAIL;
        g->draft_slots[i] = (int16_t)slot;
        p->n_draft++;
        f->n_draft++;
        if (add_token(s, f, slot, d->tokens[i], pos[i], err) != 0) return KIN_FAIL;
    }
    d->n = p->n_draft;
    return 0;
}

// Returns in how many steps a sequence that decodes alone may be at once; 1: one step with the whole draft. Where every step
// reads streamed weights, one step at a time suits (kin_scheduler_set_in_flight), and this sequence obeys that, too.
static int count_steps(const kin_scheduler *s, const kin_draft *d, int n_free) {
    int n = kin_scheduler_min(kin_head_n_members(s->head), KIN_STEPS_IN_FLIGHT);
    if (s->n_running > 1 || d->n == 0 || n < 2 || s->o.n_states > 0) return 1; // a state goes back within one step only
    if (s->o.always_ahead) return n;
    if (s->n_in_flight[n] > 0) n = kin_scheduler_min(n, s->n_in_flight[n]);
    double head_s = (double)kin_head_token_times(kin_head_get_counts(s->head)).compute_ns / 1e9;
    return kin_speculation_prefers_ahead(&s->speculation, d, n_free, n, head_s) ? n : 1;
}

int kin_scheduler_add_ahead(kin_scheduler *s, kin_flight *f, kin_err *err) {
    kin_generation *g = s->n_running == 1 ? s->running[0] : NULL;
    if (!g || g->n_steps == 0 || g->n_steps >= g->n_steps_wanted || !kin_speculation_wants(&s->speculation, 1)) return 0;
    propose(s, g);
    kin_draft_keep(&g->draft, kin_draft_chain(&g->draft));
    const kin_draft *d = &g->draft;
    for (int i = 0; i < g->n_ahead; i++) {
        if (i >= d->n || d->tokens[i] != g->ahead[i].token) return 0;
    }
    int i = g->n_ahead;
    if (d->n <= i || kin_scheduler_fit(s, g, i + 1) <= i) return 0;
    g->ahead[i].token = d->tokens[i];
    g->ahead[i].kind = (uint8_t)d->kind;
    g->ahead[i].grade = d->grades[i];
    g->n_ahead++;
    g->n_steps++;
    f->in_chain = true;
    f->n_draft = 1;
    f->parts[f->n_parts++] = (kin_part){.g = g, .n = 1, .first = f->n_tokens, .row = f->n_out, .is_last = true, .is_ahead = true};
    return add_token(s, f, g->slot, d->tokens[i], g->n + i, err);
}

int kin_scheduler_add_drafts(kin_scheduler *s, kin_flight *f, kin_err *err) {
    const kin_draft *drafts[KIN_SPECULATION_MAX_SEQUENCES];
    uint32_t chosen[KIN_SPECULATION_MAX_SEQUENCES];
    int n_free = kin_head_n_batch(s->head) - f->n_tokens;
    if (!may_draft(s)) return 0;
    if (f->n_parts == 0 || kin_scheduler_has_prompts(s) || !kin_speculation_wants(&s->speculation, f->n_parts)) return 0;
    for (int i = 0; i < f->n_parts; i++) {
        propose(s, f->parts[i].g);
        drafts[i] = &f->parts[i].g->draft;
    }
    f->parts[0].g->n_steps_wanted = count_steps(s, drafts[0], n_free);
    f->in_chain = f->parts[0].g->n_steps_wanted > 1;
    if (f->in_chain) return 0;
    s->speculation.chains = s->o.n_states > 0 || !kin_head_is_exact(s->head); // states and ggml's kernels have no branches
    double took_s = compute_drafts(s, f, n_free);
    if (!any_draft(f)) return 0;
    kin_speculation_choose(&s->speculation, f->n_parts, n_free, drafts, f->n_parts, took_s, chosen);
    for (int i = 0; i < f->n_parts; i++) {
        kin_draft_keep(&f->parts[i].g->draft, chosen[i]);
        if (add_draft(s, f, &f->parts[i], err) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- hidden states

bool kin_scheduler_wants_hidden(const kin_scheduler *s, const kin_flight *f) {
    bool wants = false;
    for (int i = 0; i < f->n_parts; i++) wants = wants || f->parts[i].g->o.drafts;
    return wants && s->o.mtp && !f->hidden && may_draft(s);
}

void kin_scheduler_give_hidden(kin_scheduler *s, const kin_generation *g, int at, int pos, int n) {
    const float *states = s->o.mtp && g->o.drafts && !g->o.hidden && !g->cancelled ? kin_head_states(s->head) : NULL;
    if (!states) return;
    const kin_mtp_states of = {.sequence = g->number,
                               .tokens = g->tokens,
                               .n_tokens = g->n,
                               .pos = pos,
                               .n = n,
                               .rows = states + (size_t)at * kin_mtp_drafter_width(s->o.mtp)};
    kin_mtp_drafter_add_states(s->o.mtp, &of);
}

// ---- results of drafts

int kin_scheduler_find_drafted(kin_scheduler *s, const kin_draft *d, int i, int32_t id) {
    bool is_branch = false;
    for (int k = i + 1; k < d->n; k++) {
        if (kin_draft_parent(d, k) != i) continue;
        bool agrees = d->tokens[k] == id;
        kin_speculation_learn_token(&s->speculation, d->kind, d->grades[k], is_branch, agrees);
        if (agrees) return k;
        is_branch = true;
    }
    return -1;
}

void kin_scheduler_measure_chain(kin_scheduler *s, double took_s) {
    enum { N_STEPS = 16 };
    kin_speculation_learn_time(&s->speculation, 0, took_s); // a step, but of no particular number of rows
    s->chain.took_s += took_s;
    if (++s->chain.n_steps < N_STEPS) return;
    kin_speculation_learn_ahead(&s->speculation, s->chain.n_tokens, s->chain.took_s);
    s->chain.n_steps = s->chain.n_tokens = 0;
    s->chain.took_s = 0;
}

void kin_scheduler_count_drafts(kin_scheduler *s, const kin_generation *g, kin_draft_counts more) {
    kin_draft_counts_add(&s->stats.drafts, &more);
    if (g->o.draft_counts) kin_draft_counts_add(g->o.draft_counts, &more);
}

void kin_scheduler_follow_ahead(kin_scheduler *s, kin_generation *g, int32_t id) {
    bool agrees = g->ahead[0].token == id;
    kin_draft_counts counts = {0};
    counts.n_drafts = counts.drafted[g->ahead[0].kind] = 1;
    counts.accepted[g->ahead[0].kind] = agrees;
    kin_scheduler_count_drafts(s, g, counts);
    kin_speculation_learn_token(&s->speculation, (kin_draft_source_kind)g->ahead[0].kind, g->ahead[0].grade, false, agrees);
    if (agrees) {
        g->n_sent++;
        memmove(&g->ahead[0], &g->ahead[1], (size_t)--g->n_ahead * sizeof g->ahead[0]);
    } else {
        kin_scheduler_drop_ahead(s, g);
        kin_scheduler_forget_rejected(s, g);
    }
}
