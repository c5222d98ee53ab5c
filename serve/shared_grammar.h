// A grammar that several jobs use. Any thread may share it and release it; the last owner frees the grammar.
#pragma once

#include "pure/grammar/grammar.h"

typedef struct kin_shared_grammar kin_shared_grammar;

// Takes the grammar over, also on failure. The caller is the first owner. Fails only without memory.
int kin_shared_grammar_new(kin_shared_grammar **out, kin_grammar *grammar, kin_err *err);
// Returns the same grammar, with one owner more.
kin_shared_grammar *kin_shared_grammar_share(kin_shared_grammar *shared);
// Ends the use of one owner. NULL is allowed.
void kin_shared_grammar_release(kin_shared_grammar *shared);

const kin_grammar *kin_shared_grammar_get(const kin_shared_grammar *shared);
