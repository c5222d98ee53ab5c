#include "serve/shared_grammar.h"

#include <stdatomic.h>
#include <stdlib.h>

struct kin_shared_grammar {
    kin_grammar *grammar;
    atomic_int n_owners;
};

int kin_shared_grammar_new(kin_shared_grammar **out, kin_grammar *grammar, kin_err *err) {
    kin_shared_grammar *s = *out = calloc(1, sizeof *s);
    if (!s) {
        kin_grammar_free(grammar);
        return kin_err_set(err, "out of memory");
    }
    s->grammar = grammar;
    atomic_init(&s->n_owners, 1);
    return 0;
}

kin_shared_grammar *kin_shared_grammar_share(kin_shared_grammar *s) {
    atomic_fetch_add(&s->n_owners, 1);
    return s;
}

void kin_shared_grammar_release(kin_shared_grammar *s) {
    if (!s || atomic_fetch_sub(&s->n_owners, 1) > 1) return;
    kin_grammar_free(s->grammar);
    free(s);
}

const kin_grammar *kin_shared_grammar_get(const kin_shared_grammar *s) {
    return s->grammar;
}
