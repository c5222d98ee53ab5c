// What --grammar and --json-schema ask for: a grammar over a model's vocabulary, and all that belongs to it.
//
// Owner: the command. Zero-initialised, closed by close.
#pragma once

#include "pure/text/constraint.h"

typedef struct kin_constrained {
    kin_grammar *grammar;
    kin_token_trie *trie;
    kin_matcher *matcher;
    kin_constraint *constraint; // NULL: nothing was asked for
} kin_constrained;

// grammar: a file of GBNF; schema: a file, or JSON itself if it begins with '{'. At most one is not NULL; both NULL: nothing is
// done.
int kin_constrained_open(kin_constrained *c, const char *grammar, const char *schema, const kin_vocab *vocab, kin_err *err);
void kin_constrained_close(kin_constrained *c);
