// Grammar: the set of allowed texts, as automata on bytes. It is compiled from GBNF (gbnf.h); schema.h converts a JSON schema
// to GBNF.
//
// A rule, or a repetition with large bounds, becomes a **machine**: a deterministic automaton whose edges are bytes (UTF-8
// compiled to byte ranges) and calls of other machines. Small non-recursive rules are inlined. The matcher (matcher.h) matches
// a text with stacks of calls.
//
// Left recursion is rejected: write `e ::= e "+" t | t` as `e ::= t ("+" t)*`. Parts that cannot match any finite text (x ::=
// "a" x) are removed; if nothing is left, compilation fails.
//
// Immutable after compile: any thread may read it. Everything is bounded: KIN_GBNF_MAX_*, and the limits below.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    KIN_GRAMMAR_MAX_STATES = UINT16_MAX, // total over all machines
    KIN_GRAMMAR_MAX_CELLS = 1 << 23,     // states times byte classes: 16 MiB of transitions
    KIN_GRAMMAR_MAX_MACHINES = 1 << 15,
};

typedef struct kin_grammar kin_grammar;

// Fails with a sentence on everything that kin_gbnf_parse rejects, on left recursion, on a grammar that matches no text, and if
// the automata would exceed the limits (the sentence names the rule).
int kin_grammar_compile(kin_grammar **out, const char *gbnf, size_t len, kin_err *err);
void kin_grammar_free(kin_grammar *grammar);

// Size, for tests and for memory accounting.
typedef struct kin_grammar_size {
    uint32_t n_machines, n_states, n_classes;
    size_t bytes;
} kin_grammar_size;

kin_grammar_size kin_grammar_get_size(const kin_grammar *grammar);
