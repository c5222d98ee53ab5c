#include "pure/sampling/draft.h"

#include <math.h>

#include "base/err.h"

bool kin_draft_is_branch(const kin_draft *d, int i) {
    int parent = kin_draft_parent(d, i);
    for (int k = parent + 1; k < i; k++) {
        if (kin_draft_parent(d, k) == parent) return true;
    }
    return false;
}

void kin_draft_add(kin_draft *d, int parent, int32_t token, uint8_t grade) {
    kin_assert(d->n < KIN_DRAFT_MAX && parent >= -1 && parent < d->n);
    d->tokens[d->n] = token;
    d->grades[d->n] = grade;
    d->skipped[d->n] = (uint8_t)(d->n - 1 - parent);
    d->n++;
}

uint32_t kin_draft_chain(const kin_draft *d) {
    uint32_t chain = 0;
    int last = -1;
    for (int i = 0; i < d->n; i++) {
        if (kin_draft_parent(d, i) != last || kin_draft_is_branch(d, i)) continue;
        chain |= UINT32_C(1) << i;
        last = i;
    }
    return chain;
}

void kin_draft_keep(kin_draft *d, uint32_t tokens) {
    kin_draft kept = {.kind = d->kind};
    int at[KIN_DRAFT_MAX + 1] = {-1}; // [i + 1]: index of token i in `kept`
    for (int i = 0; i < d->n; i++) {
        if (!(tokens >> i & 1)) continue;
        at[i + 1] = kept.n;
        kin_draft_add(&kept, at[kin_draft_parent(d, i) + 1], d->tokens[i], d->grades[i]);
    }
    *d = kept;
}

static uint8_t grade_of(double probability) {
    static const double above[KIN_DRAFT_GRADES - 1] = {0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99};
    uint8_t grade = 0;
    while (grade < KIN_DRAFT_GRADES - 1 && probability >= above[grade]) grade++;
    return grade;
}

kin_draft_choice kin_draft_choose(const float *logits, int n) {
    kin_draft_choice c = {.second = -1};
    double sum = 0;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[c.token]) {
            c.second = c.token;
            c.token = i;
        } else if (c.second < 0 || logits[i] > logits[c.second]) {
            c.second = i;
        }
    }
    for (int32_t i = 0; i < n; i++) sum += (double)expf(logits[i] - logits[c.token]);
    c.grade = grade_of(1 / sum);
    if (c.second >= 0) c.second_grade = grade_of((double)expf(logits[c.second] - logits[c.token]) / (sum - 1));
    return c;
}

const char *kin_draft_source_name(kin_draft_source_kind kind) {
    static const char *const names[KIN_DRAFT_N_SOURCES] = {"ngram", "model", "oracle", "earlier", "mtp"};
    return names[kind];
}

void kin_draft_counts_add(kin_draft_counts *c, const kin_draft_counts *more) {
    c->n_passes += more->n_passes;
    c->n_written += more->n_written;
    c->n_drafts += more->n_drafts;
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        c->drafted[i] += more->drafted[i];
        c->accepted[i] += more->accepted[i];
    }
    c->branches += more->branches;
    c->accepted_branches += more->accepted_branches;
}

static uint64_t sum(const uint64_t counts[KIN_DRAFT_N_SOURCES]) {
    uint64_t n = 0;
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) n += counts[i];
    return n;
}

uint64_t kin_draft_counts_drafted(const kin_draft_counts *c) {
    return sum(c->drafted);
}

uint64_t kin_draft_counts_accepted(const kin_draft_counts *c) {
    return sum(c->accepted);
}
