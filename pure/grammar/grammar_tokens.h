// Checks the control tokens that a GBNF grammar refers to by number (token_reference.h) against a vocabulary.
//
// A pure function, any thread.
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "pure/tokenizer/vocab.h"

// Fails unless every token reference in the grammar is to a control token of the vocabulary that does not end the generation;
// no other reference could match. The sentence names the first bad reference. Also fails if the grammar is malformed.
int kin_grammar_tokens_check(kin_str grammar, const kin_vocab *vocab, kin_err *err);
