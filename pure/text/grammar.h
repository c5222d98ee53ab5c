// Grammar: which texts are allowed, as automata on bytes. Compiled from GBNF (gbnf.h); a JSON schema becomes GBNF first
// (schema.h).
//
// A rule, or a repetition with large bounds, is a **machine**: a deterministic automaton whose edges are bytes (UTF-8 compiled to
// ranges of bytes) and calls of other machines. Small rules that do not recur are copied into those that use them. A text is
// matched by stacks of calls (matcher.h).
//
// Left recursion is refused: `e ::= e "+" t | t` is written `e ::= t ("+" t)*`.
// Parts that no text can ever end with (x ::= "a" x) are cut off; if nothing is left, that is an error.
//
// Immutable after compile: any thread may read it. All of it is bounded: KIN_GBNF_MAX_*, and the limits below.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_GRAMMAR_MAX_STATES = UINT16_MAX, // of all machines together
    KIN_GRAMMAR_MAX_CELLS = 1 << 23,     // states times classes of bytes: 16 MiB of transitions
    KIN_GRAMMAR_MAX_MACHINES = 1 << 15,
};

typedef struct kin_grammar kin_grammar;

// Fails with a sentence: what kin_gbnf_parse refuses, left recursion, a grammar that no text matches, and one whose automata
// would exceed the limits (the sentence names the rule).
int kin_grammar_compile(kin_grammar **out, const char *gbnf, size_t len, kin_err *err);
void kin_grammar_free(kin_grammar *grammar);

// Size, for tests and for whoever must account for it.
typedef struct kin_grammar_size {
    uint32_t n_machines, n_states, n_classes;
    size_t bytes;
} kin_grammar_size;

kin_grammar_size kin_grammar_get_size(const kin_grammar *grammar);
