// The tokens that a GBNF grammar refers to by number (token_reference.h), checked against a vocabulary.
//
// A plain function, for any thread.
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "pure/text/vocab.h"

// Whether every reference of a GBNF grammar is to a control token of the vocabulary that does not end a text: nothing else
// matches one. Fails with a sentence that names the first that is not, and on what is no grammar.
int kin_grammar_tokens_check(kin_str grammar, const kin_vocab *vocab, kin_err *err);
