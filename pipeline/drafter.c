#include "pipeline/drafter.h"

#include <stdlib.h>
#include <string.h>

#include "pure/sampling/ngram_draft.h"

struct kin_drafter {
    kin_draft_source source;
    kin_ngram_draft *ngram;
    kin_prefix_pages *pages; // NULL: none
    int n_blocks;            // full blocks of the sequence
    bool has_next;
    int32_t next[KIN_KV_CELLS]; // tokens that followed these blocks in an earlier sequence
};

// Proposes the rest of the current block, as an earlier sequence had it.
static bool propose_earlier(kin_drafter *d, const int32_t *tokens, int n, int most, kin_draft *out) {
    int n_blocks = n / KIN_KV_CELLS, n_in = n % KIN_KV_CELLS, n_drafted = KIN_KV_CELLS - n_in;
    if (!d->pages || n_blocks == 0) return false;
    if (n_blocks != d->n_blocks) d->has_next = kin_prefix_pages_next(d->pages, tokens, n_blocks, d->next);
    d->n_blocks = n_blocks;
    if (!d->has_next || memcmp(tokens + n - n_in, d->next, (size_t)n_in * sizeof *tokens) != 0) return false;
    *out = (kin_draft){.kind = KIN_DRAFT_EARLIER, .n = n_drafted < most ? n_drafted : most};
    memcpy(out->tokens, d->next + n_in, (size_t)out->n * sizeof *out->tokens);
    return true;
}

static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    kin_drafter *d = user;
    if (propose_earlier(d, tokens, n, most, out)) return;
    kin_ngram_draft_propose(d->ngram, tokens, n, most, out);
}

int kin_drafter_open(kin_drafter **out, kin_prefix_pages *pages, kin_err *err) {
    kin_drafter *d = *out = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    d->source = (kin_draft_source){propose, d};
    d->pages = pages;
    if (kin_ngram_draft_open(&d->ngram, err) == 0) return 0;
    kin_drafter_close(d);
    *out = NULL;
    return KIN_FAIL;
}

void kin_drafter_close(kin_drafter *d) {
    if (!d) return;
    kin_ngram_draft_close(d->ngram);
    free(d);
}

void kin_drafter_reset(kin_drafter *d) {
    if (!d) return;
    kin_ngram_draft_reset(d->ngram);
    d->n_blocks = 0;
    d->has_next = false;
}

const kin_draft_source *kin_drafter_source(const kin_drafter *d) {
    return d ? &d->source : NULL;
}
