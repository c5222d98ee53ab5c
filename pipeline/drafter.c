#include "pipeline/drafter.h"

#include <stdlib.h>

#include "pure/text/ngram_draft.h"

struct kin_drafter {
    kin_draft_source source;
    kin_ngram_draft *ngram;
};

static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    kin_drafter *d = user;
    kin_ngram_draft_propose(d->ngram, tokens, n, most, out);
}

int kin_drafter_open(kin_drafter **out, kin_err *err) {
    kin_drafter *d = *out = calloc(1, sizeof *d);
    if (!d) return kin_err_set(err, "out of memory");
    d->source = (kin_draft_source){propose, d};
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

const kin_draft_source *kin_drafter_source(const kin_drafter *d) {
    return d ? &d->source : NULL;
}
