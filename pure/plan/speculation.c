#include "pure/plan/speculation.h"

#include <math.h>
#include <string.h>

#include "base/median.h"

static const double WORTH = 1.05;              // a smaller gain counts as none
static const double FIRST_CHANCE = 0.6;        // of a grade without observations
static const double FIRST_BRANCH_CHANCE = 0.3; // the same for a token that begins a branch
static const double CATCH_UP_SHARE = 0.7; // fraction of a step by which the sequences' next tokens may be delayed, as for prompts
static const double LEAST_USE = 0.1;      // least chance that a pass made while others compute is useful: it takes power

enum {
    N_FIRST = 6, // number of tokens that the first chance counts as; with 3 (at 0.5) one wrong token ended drafts for 48 steps
    N_REMEMBERED = 64, // number of tokens that a chance is learned from
    COMPARE = 128,     // steps after which the times of steps without drafts are measured anew
    N_COMPARED = 3,    // times in a row
    FORGET = 512,      // steps after which a time is no longer known
    FIRST_GAP = 16,    // steps between two probes, doubled by each probe that fails
    LONGEST_GAP = 1024,
};

void kin_speculation_init(kin_speculation *s) {
    *s = (kin_speculation){.probe_gap = FIRST_GAP, .most = KIN_DRAFT_MAX, .computed = KIN_DRAFT_MODEL};
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        s->mean[i].chance = FIRST_CHANCE;
        s->mean[i].n = N_FIRST;
        for (int k = 0; k < KIN_DRAFT_GRADES; k++) {
            s->grades[i][k].chance = FIRST_CHANCE;
            s->grades[i][k].n = N_FIRST;
            s->branches[i][k].chance = FIRST_BRANCH_CHANCE;
            s->branches[i][k].n = N_FIRST;
        }
    }
}

// ---- times

// Time of n rows with kin's kernels and AVX-512, relative to one row: 1.4 for 8, 2.4 for 16 (docs/KERNELS.md).
static double shape(double n_rows) {
    return n_rows <= 8 ? 1 + 0.05 * (n_rows - 1) : 1.35 + 0.125 * (n_rows - 8);
}

static bool is_known(const kin_speculation *s, int n_rows) {
    return s->times[n_rows].n > 0 && s->step - s->times[n_rows].step < FORGET;
}

static double median_of(const kin_speculation *s, int n_rows) {
    double values[KIN_SPECULATION_SAMPLES];
    int n = s->times[n_rows].n < KIN_SPECULATION_SAMPLES ? s->times[n_rows].n : KIN_SPECULATION_SAMPLES;
    memcpy(values, s->times[n_rows].took_s, sizeof values);
    return kin_median(values, n);
}

// Extrapolates beyond the largest known number of rows: with the slope of the known ones; with a single one, as on a CPU.
static double extrapolate(const kin_speculation *s, int n_rows, int below) {
    int least = 1;
    while (!is_known(s, least)) least++;
    double took = median_of(s, below), each = took / shape(below);
    if (least < below) each = (took - median_of(s, least)) / (shape(below) - shape(least));
    return took + (each > 0 ? each : 0) * (shape(n_rows) - shape(below));
}

// Returns the time of a step. At least one time must be known.
static double time_of(const kin_speculation *s, int n_rows) {
    int below = n_rows, above = n_rows;
    while (below > 0 && !is_known(s, below)) below--;
    while (above <= KIN_SPECULATION_MAX_ROWS && !is_known(s, above)) above++;
    if (below == n_rows) return median_of(s, n_rows);
    if (above > KIN_SPECULATION_MAX_ROWS) return extrapolate(s, n_rows, below);
    if (below == 0) return median_of(s, above) * shape(n_rows) / shape(above);
    double share = (double)(n_rows - below) / (above - below);
    return (1 - share) * median_of(s, below) + share * median_of(s, above);
}

void kin_speculation_learn_time(kin_speculation *s, int n_rows, double took_s) {
    s->step++;
    if (n_rows < 1 || n_rows > KIN_SPECULATION_MAX_ROWS || took_s <= 0) return;
    if (s->step - s->times[n_rows].step > COMPARE) s->times[n_rows].n = 0;
    s->times[n_rows].took_s[s->times[n_rows].n++ % KIN_SPECULATION_SAMPLES] = took_s;
    s->times[n_rows].step = s->step;
}

void kin_speculation_forget_times(kin_speculation *s) {
    s->ahead_s = 0;
    memset(s->times, 0, sizeof s->times);
}

// ---- chances

static void learn(double *chance, int *n, bool accepted) {
    if (*n < N_REMEMBERED) ++*n;
    *chance += (accepted - *chance) / *n;
}

void kin_speculation_learn_token(kin_speculation *s, kin_draft_source_kind kind, int grade, bool is_branch, bool accepted) {
    if (is_branch) {
        learn(&s->branches[kind][grade].chance, &s->branches[kind][grade].n, accepted);
    } else {
        learn(&s->grades[kind][grade].chance, &s->grades[kind][grade].n, accepted);
        learn(&s->mean[kind].chance, &s->mean[kind].n, accepted);
    }
    if (s->is_probe && accepted) s->probe_gap = FIRST_GAP;
    s->is_probe = false;
}

static double chance_of(const kin_speculation *s, const kin_draft *d, int i) {
    return s->grades[d->kind][d->grades[i]].chance;
}

// ---- choosing

static bool has_times(const kin_speculation *s, int n_rows) {
    return s->times[n_rows].n >= N_COMPARED && s->step - s->times[n_rows].step < COMPARE;
}

bool kin_speculation_wants(const kin_speculation *s, int n_rows) {
    return n_rows < KIN_SPECULATION_MAX_ROWS && s->most > 0 && (s->least > 0 || has_times(s, n_rows));
}

static void begin_probe(kin_speculation *s) {
    s->next_probe = s->step + s->probe_gap;
    s->probe_gap = s->probe_gap < LONGEST_GAP ? 2 * s->probe_gap : LONGEST_GAP;
}

typedef struct candidates {
    const kin_draft *const *drafts;
    int n;
    uint32_t chosen[KIN_SPECULATION_MAX_SEQUENCES];
    double chances[KIN_SPECULATION_MAX_SEQUENCES][KIN_DRAFT_MAX]; // chance that a token and all before it are right
    uint32_t branches[KIN_SPECULATION_MAX_SEQUENCES];             // tokens that begin a branch
    int n_branches_left;
    int n_chosen;
    double expected; // expected tokens among these
} candidates;

static void find_chances(const kin_speculation *s, const kin_draft *d, double *chances, uint32_t *branches) {
    // [i + 1]: chance that token i is right and none of its successors so far; [0]: of the sequence's last token
    double left[KIN_DRAFT_MAX + 1] = {1};
    uint32_t has_next = 0; // the same indices: tokens with a successor
    *branches = 0;
    for (int i = 0; i < d->n; i++) {
        int before = kin_draft_parent(d, i) + 1;
        bool is_branch = has_next >> before & 1;
        has_next |= UINT32_C(1) << before;
        *branches |= (uint32_t)is_branch << i;
        left[i + 1] = chances[i] = left[before] * (is_branch ? s->branches[d->kind][d->grades[i]].chance : chance_of(s, d, i));
        left[before] -= chances[i];
    }
}

// A token may be taken if its predecessor is, and a branch only if its earlier siblings are.
static bool may_choose(const candidates *c, int i, int token) {
    const kin_draft *d = c->drafts[i];
    int parent = kin_draft_parent(d, token);
    if (c->chosen[i] >> token & 1 || (parent >= 0 && !(c->chosen[i] >> parent & 1))) return false;
    if (!(c->branches[i] >> token & 1)) return true;
    for (int k = parent + 1; k < token; k++) {
        if (kin_draft_parent(d, k) == parent && !(c->chosen[i] >> k & 1)) return false;
    }
    return c->n_branches_left > 0;
}

static void choose_token(candidates *c, int i, int token) {
    c->n_chosen++;
    c->expected += c->chances[i][token];
    c->chosen[i] |= UINT32_C(1) << token;
    if (c->branches[i] >> token & 1) c->n_branches_left--;
}

// Takes the likeliest token. False if there is none.
static bool choose_next(candidates *c) {
    int sequence = -1, token = 0;
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->drafts[i]->n; k++) {
            if (sequence >= 0 && c->chances[i][k] <= c->chances[sequence][token]) continue;
            if (!may_choose(c, i, k)) continue;
            sequence = i;
            token = k;
        }
    }
    if (sequence >= 0) choose_token(c, sequence, token);
    return sequence >= 0;
}

// Starts with the tokens that are always verified: the first `least` of each sequence.
static void begin(candidates *c, const kin_speculation *s, int n_free, const kin_draft *const *drafts, int n) {
    c->drafts = drafts;
    c->n = n;
    c->n_branches_left = s->chains ? 0 : KIN_DRAFT_MAX_BRANCHES;
    c->n_chosen = 0;
    c->expected = 0;
    for (int i = 0; i < n; i++) {
        c->chosen[i] = 0;
        find_chances(s, drafts[i], c->chances[i], &c->branches[i]);
    }
    for (int k = 0; k < s->least; k++) {
        for (int i = 0; i < n && c->n_chosen < n_free; i++) {
            if (k < drafts[i]->n && may_choose(c, i, k)) choose_token(c, i, k);
        }
    }
}

// Returns the number of tokens with the largest E / (T + drafting_s). More rows never count as faster, whatever was measured.
static int count_best(const kin_speculation *s, int n_rows, int n_free, double drafting_s, candidates *c, double *rate) {
    int best = c->n_chosen;
    double took = time_of(s, n_rows + best) + drafting_s, best_rate = (best ? 1 : WORTH) * (n_rows + c->expected) / took;
    while (c->n_chosen < n_free && choose_next(c)) {
        double longer = time_of(s, n_rows + c->n_chosen) + drafting_s;
        if (longer > took) took = longer;
        if ((n_rows + c->expected) / took <= best_rate) continue;
        best_rate = (n_rows + c->expected) / took;
        best = c->n_chosen;
    }
    *rate = best_rate;
    return best;
}

void kin_speculation_choose(kin_speculation *s, int n_rows, int n_free, const kin_draft *const *drafts, int n, double drafting_s,
                            uint32_t *chosen) {
    candidates c;
    double rate;
    kin_assert(n <= KIN_SPECULATION_MAX_SEQUENCES && kin_speculation_wants(s, n_rows));
    if (n_free > KIN_SPECULATION_MAX_ROWS - n_rows) n_free = KIN_SPECULATION_MAX_ROWS - n_rows;
    begin(&c, s, n_free, drafts, n);
    int best = has_times(s, n_rows) ? count_best(s, n_rows, n_free, drafting_s, &c, &rate) : c.n_chosen;
    s->is_probe = best == 0 && n_free > 0 && (s->model_probes || s->step >= s->next_probe);
    if (s->is_probe && !s->model_probes) begin_probe(s);
    if (s->is_probe) best = 1;
    if (best > 0 && !s->is_probe) s->next_probe = s->step + s->probe_gap;
    s->model_probes = false;
    begin(&c, s, n_free, drafts, n);
    while (c.n_chosen < best && choose_next(&c)) continue;
    for (int i = 0; i < n; i++) chosen[i] = c.chosen[i];
}

// ---- several steps at once

bool kin_speculation_prefers_ahead(const kin_speculation *s, const kin_draft *d, int n_free, int n_steps, double head_s) {
    candidates c;
    if (n_steps < 2 || s->least > 0 || !has_times(s, 1)) return false;
    double rate, length = 1 / (1 - fmin(chance_of(s, d, 0), 0.99));
    double alone_s = time_of(s, 1), ahead_s = (alone_s + (length - 1) * fmax(alone_s / n_steps, head_s)) / length;
    if (s->ahead_s > 0 && s->step - s->ahead_step < FORGET) ahead_s = s->ahead_s;
    begin(&c, s, n_free, &d, 1);
    count_best(s, 1, n_free, 0, &c, &rate);
    return 1 / ahead_s > WORTH * rate;
}

void kin_speculation_learn_ahead(kin_speculation *s, int n_tokens, double took_s) {
    double each = took_s / (n_tokens > 0 ? n_tokens : 1);
    bool known = s->ahead_s > 0 && s->step - s->ahead_step < FORGET;
    s->ahead_s = known ? (s->ahead_s + each) / 2 : each;
    s->ahead_step = s->step;
}

// ---- a draft model

bool kin_speculation_prefers_model(const kin_speculation *s, const kin_draft *d) {
    return d->n == 0 || chance_of(s, d, 0) < s->mean[s->computed].chance;
}

void kin_speculation_learn_pass(kin_speculation *s, bool is_first, double n, double took_s) {
    double *times = is_first ? s->first_pass.took_s : s->further_pass.took_s;
    int *n_known = is_first ? &s->first_pass.n : &s->further_pass.n;
    times[(*n_known)++ % KIN_SPECULATION_SAMPLES] = took_s / shape(n);
}

// Returns the time for n sequences. If one kind of pass is not known, it counts as the other; 0 if neither is known.
static double pass_time(const kin_speculation *s, bool is_first, int n) {
    double values[KIN_SPECULATION_SAMPLES];
    bool is_first_pass = s->further_pass.n == 0 || (is_first && s->first_pass.n > 0);
    int n_known = is_first_pass ? s->first_pass.n : s->further_pass.n;
    if (n_known > KIN_SPECULATION_SAMPLES) n_known = KIN_SPECULATION_SAMPLES;
    memcpy(values, is_first_pass ? s->first_pass.took_s : s->further_pass.took_s, sizeof values);
    return n_known > 0 ? kin_median(values, n_known) * shape(n) : 0;
}

// Returns the time of k tokens for each of n sequences, n_known of which need no pass.
static double drafting_time(const kin_speculation *s, int n, int k, int n_known) {
    double further = pass_time(s, false, n);
    if (k <= n_known) return 0;
    return n_known > 0 ? (k - n_known) * further : pass_time(s, true, n) + (k - 1) * further;
}

// One more token for each of n sequences pays while its chance exceeds its cost at the best rate. Up to the number of tokens of
// that rate, rows cost their average; beyond it, what the next ones cost.
static void limit_by_rate(const kin_speculation *s, int n_rows, int n, int n_known, kin_draft_limits *l) {
    double drafting[KIN_DRAFT_MAX + 1];
    for (int k = 0; k <= l->most; k++) drafting[k] = drafting_time(s, n, k, n_known);
    double chance = s->mean[s->computed].chance, alone = time_of(s, n_rows), all = 1;
    double expected = n_rows, best_rate = WORTH * n_rows / alone, times[KIN_DRAFT_MAX + 1];
    int best = 0;
    times[0] = alone;
    for (int k = 1; k <= l->most; k++) {
        times[k] = fmax(times[k - 1], time_of(s, n_rows + n * k));
        expected += n * (all *= chance);
        double rate = expected / (times[k] + drafting[k]);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = k;
    }
    for (int k = 0; k < l->most; k++) {
        double row = k < best ? (times[best] - alone) / (n * best) : (times[k + 1] - times[k]) / n;
        l->least[k] = best_rate * ((drafting[k + 1] - drafting[k]) / n + row);
        l->least_of_row[k] = best_rate * row;
    }
    if (best == 0) l->most = 0;
}

kin_draft_limits kin_speculation_limit_model(kin_speculation *s, int n_rows, int n_free, int n, int n_known) {
    kin_draft_limits l = {.most = KIN_DRAFT_MAX};
    if (n_free > KIN_SPECULATION_MAX_ROWS - n_rows) n_free = KIN_SPECULATION_MAX_ROWS - n_rows;
    if (l.most > s->most) l.most = s->most;
    if (l.most > n_free / n) l.most = n_free / n;
    l.mean_chance = s->mean[s->computed].chance;
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) {
        l.chances[i] = s->grades[s->computed][i].chance;
        l.branches[i] = s->chains ? 0 : s->branches[s->computed][i].chance;
    }
    l.catch_up_s = has_times(s, n_rows) ? CATCH_UP_SHARE * time_of(s, n_rows) : INFINITY;
    int most = l.most, least = s->least < most ? s->least : most;
    if (has_times(s, n_rows))
        limit_by_rate(s, n_rows, n, n_known, &l);
    else
        l.most = least;
    s->model_probes = l.most == 0 && least == 0 && most > 0 && s->step >= s->next_probe;
    if (s->model_probes) begin_probe(s);
    if (s->model_probes) least = 1;
    if (l.most < least) l.most = least;
    for (int k = 0; k < least; k++) l.least[k] = 0;
    return l;
}

kin_draft_limits kin_speculation_limit_ahead(const kin_speculation *s, int n, double free_s) {
    kin_draft_limits l = {.most = KIN_DRAFT_MAX, .mean_chance = s->mean[s->computed].chance, .catch_up_s = free_s};
    double pass_s = fmax(pass_time(s, true, n), pass_time(s, false, n));
    if (pass_s <= 0 || pass_s > free_s) l.most = 0;
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) l.chances[i] = s->grades[s->computed][i].chance;
    for (int i = 0; i < KIN_DRAFT_MAX; i++) l.least[i] = LEAST_USE;
    return l;
}
