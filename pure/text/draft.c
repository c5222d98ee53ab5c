#include "pure/text/draft.h"

const char *kin_draft_source_name(kin_draft_source_kind kind) {
    static const char *const names[KIN_DRAFT_N_SOURCES] = {"ngram", "model", "oracle", "earlier"};
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
