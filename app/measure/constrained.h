// The grammar that --grammar or --json-schema asks for, compiled for a model's vocabulary, with everything that it needs.
//
// Owner: the command. Zero-initialise it; release it with kin_constrained_close.
#pragma once

#include "pure/sampling/constraint.h"

typedef struct kin_constrained {
    kin_grammar *grammar;
    kin_token_trie *trie;
    kin_matcher *matcher;
    kin_constraint *constraint; // NULL: no grammar was requested
} kin_constrained;

// grammar: path of a GBNF file; schema: a path, or JSON text if it begins with '{'. At most one is not NULL; with both NULL it
// does nothing.
int kin_constrained_open(kin_constrained *c, const char *grammar, const char *schema, const kin_vocab *vocab, kin_err *err);
void kin_constrained_close(kin_constrained *c);
