#include "pure/plan/speculation.h"

#include <string.h>

#include "base/median.h"

static const double WORTH = 1.05;       // a smaller gain is none
static const double FIRST_CHANCE = 0.5; // of a grade that nothing is known of

enum {
    N_FIRST = 3,       // tokens that the first chance counts as
    N_REMEMBERED = 64, // tokens that a chance is learnt from
    COMPARE = 128,     // steps after which times are measured anew, those without drafts
    N_COMPARED = 3,    // times in a row
    FORGET = 512,      // steps after which a time is not known any more
    FIRST_GAP = 16,    // steps between two probes, doubled by each that fails
    LONGEST_GAP = 1024,
};

void kin_speculation_init(kin_speculation *s) {
    *s = (kin_speculation){.probe_gap = FIRST_GAP};
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        for (int k = 0; k < KIN_DRAFT_GRADES; k++) {
            s->grades[i][k].chance = FIRST_CHANCE;
            s->grades[i][k].n = N_FIRST;
        }
    }
}

// ---- times

// Rows of kin's kernels with AVX-512 beside one row: 1.4 for 8, 2.4 for 16 (docs/KERNELS.md).
static double shape(int n_rows) {
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

// Beyond the largest known number of rows: as the known ones rise; a single one as on a CPU.
static double extrapolate(const kin_speculation *s, int n_rows, int below) {
    int least = 1;
    while (!is_known(s, least)) least++;
    double took = median_of(s, below), each = took / shape(below);
    if (least < below) each = (took - median_of(s, least)) / (shape(below) - shape(least));
    return took + (each > 0 ? each : 0) * (shape(n_rows) - shape(below));
}

// Of a step; there is a known one.
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
    memset(s->times, 0, sizeof s->times);
}

// ---- chances

void kin_speculation_learn_token(kin_speculation *s, kin_draft_source_kind kind, int grade, bool accepted) {
    double *chance = &s->grades[kind][grade].chance;
    int *n = &s->grades[kind][grade].n;
    if (*n < N_REMEMBERED) ++*n;
    *chance += (accepted - *chance) / *n;
    if (!s->is_probe) return;
    s->is_probe = false;
    s->probe_gap = accepted ? FIRST_GAP : s->probe_gap < LONGEST_GAP ? 2 * s->probe_gap : LONGEST_GAP;
}

static double chance_of(const kin_speculation *s, const kin_draft *d, int i) {
    return s->grades[d->kind][d->grades[i]].chance;
}

// ---- choosing

bool kin_speculation_wants(const kin_speculation *s, int n_rows) {
    if (n_rows >= KIN_SPECULATION_MAX_ROWS) return false;
    if (s->always) return true;
    return s->times[n_rows].n >= N_COMPARED && s->step - s->times[n_rows].step < COMPARE;
}

typedef struct candidates {
    const kin_draft *const *drafts;
    int n;
    int taken[KIN_SPECULATION_MAX_TEXTS];
    double chances[KIN_SPECULATION_MAX_TEXTS]; // that all tokens that were taken and the next one are right
} candidates;

// The text with the likeliest next token; -1: there is none.
static int likeliest(const candidates *c) {
    int best = -1;
    for (int i = 0; i < c->n; i++) {
        if (c->taken[i] < c->drafts[i]->n && (best < 0 || c->chances[i] > c->chances[best])) best = i;
    }
    return best;
}

static void begin(candidates *c, const kin_speculation *s, const kin_draft *const *drafts, int n) {
    *c = (candidates){.drafts = drafts, .n = n};
    for (int i = 0; i < n; i++) c->chances[i] = drafts[i]->n > 0 ? chance_of(s, drafts[i], 0) : 0;
}

// Takes the likeliest token. Returns its chance; below 0: there is none.
static double take(candidates *c, const kin_speculation *s) {
    int i = likeliest(c);
    if (i < 0) return -1;
    double chance = c->chances[i];
    if (++c->taken[i] < c->drafts[i]->n) c->chances[i] *= chance_of(s, c->drafts[i], c->taken[i]);
    return chance;
}

// Number of tokens with the largest E / T. A row more never takes less time, whatever was measured.
static int count_best(const kin_speculation *s, int n_rows, int n_free, candidates *c) {
    double expected = n_rows, took = time_of(s, n_rows), best_rate = WORTH * n_rows / took, chance;
    int best = 0;
    for (int k = 1; k <= n_free && (chance = take(c, s)) >= 0; k++) {
        double longer = time_of(s, n_rows + k);
        if (longer > took) took = longer;
        expected += chance;
        if (expected / took <= best_rate) continue;
        best_rate = expected / took;
        best = k;
    }
    return best;
}

void kin_speculation_choose(kin_speculation *s, int n_rows, int n_free, const kin_draft *const *drafts, int n, int *taken) {
    candidates c;
    kin_assert(n <= KIN_SPECULATION_MAX_TEXTS && kin_speculation_wants(s, n_rows));
    if (n_free > KIN_SPECULATION_MAX_ROWS - n_rows) n_free = KIN_SPECULATION_MAX_ROWS - n_rows;
    begin(&c, s, drafts, n);
    int best = s->always ? n_free : count_best(s, n_rows, n_free, &c);
    s->is_probe = best == 0 && n_free > 0 && s->step >= s->next_probe;
    if (best == 0 && s->is_probe) best = 1;
    if (best > 0) s->next_probe = s->step + s->probe_gap;
    begin(&c, s, drafts, n);
    for (int k = 0; k < best; k++) take(&c, s);
    for (int i = 0; i < n; i++) taken[i] = c.taken[i];
}
