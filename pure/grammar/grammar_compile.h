// Compiles a grammar (grammar.h) from GBNF. Plain functions; thread: any.
#pragma once

#include "pure/grammar/grammar.h"

typedef struct kin_grammar_options {
    const kin_grammar_parts *parts; // NULL: none
    kin_grammar_budget *budget;     // NULL: one of KIN_GRAMMAR_MAX_STEPS
} kin_grammar_options;

// The innermost rule because of which a grammar matches no text.
typedef struct kin_grammar_never {
    char rule[48]; // cut if longer; "": the grammar matches some text
    bool goes_on;  // the rule never ends; otherwise it contradicts itself
} kin_grammar_never;

// Fails with a sentence on everything that kin_gbnf_parse rejects, on left recursion, on a grammar that matches no text, and if
// the automata would exceed the limits (the sentence names the rule).
int kin_grammar_compile(kin_grammar **out, const char *gbnf, size_t len, kin_err *err);
// never: may be NULL.
int kin_grammar_compile_with(kin_grammar **out, const char *gbnf, size_t len, const kin_grammar_options *options,
                             kin_grammar_never *never, kin_err *err);
