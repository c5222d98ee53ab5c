// Grammar: the set of allowed texts, as automata on bytes. grammar_compile.h compiles it from GBNF (gbnf.h); schema.h converts a
// JSON schema to GBNF.
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/string_table.h"

enum {
    KIN_GRAMMAR_MAX_STATES = UINT16_MAX, // total over all machines
    KIN_GRAMMAR_MAX_CELLS = 1 << 23,     // states times byte classes: 16 MiB of transitions
    KIN_GRAMMAR_MAX_MACHINES = 1 << 15,
    KIN_GRAMMAR_MAX_STEPS = 1 << 25, // of all that is compiled for one text: 5 to 10 ns each on one core of an AMD EPYC (2026)
};

typedef struct kin_grammar kin_grammar;

// Steps that compiling may still take. One budget serves everything that is compiled for one request, so that many expensive
// parts cost no more than one.
typedef struct kin_grammar_budget {
    uint64_t steps;              // left
    uint64_t trial_steps;        // of these, the ones for expressions that are compiled to see whether they are small enough
    bool (*stopped)(void *user); // asked every few thousand steps; true ends the compilation. NULL: never stopped
    void *user;
    bool is_spent; // the steps did not suffice, or the compilation was stopped
} kin_grammar_budget;

// Keeps a quarter of the steps for the whole grammar.
kin_grammar_budget kin_grammar_budget_of(uint64_t steps);
// Fails with a sentence if fewer steps are left.
int kin_grammar_spend(kin_grammar_budget *budget, uint64_t steps, kin_err *err);

// Rules that were compiled on their own, by name. A grammar with such a rule copies its automaton. The text of the rule, and of
// all rules that it uses, must be the same there.
typedef struct kin_grammar_parts {
    kin_string_table names;
    kin_grammar **grammars; // [names.n]
    uint32_t cap;
} kin_grammar_parts;

// Takes the grammar over, also on failure, and replaces a part of the same name. Fails only without memory.
int kin_grammar_parts_add(kin_grammar_parts *parts, const char *name, kin_grammar *grammar);
void kin_grammar_parts_fini(kin_grammar_parts *parts);

void kin_grammar_free(kin_grammar *grammar);

// Size, for tests and for memory accounting.
typedef struct kin_grammar_size {
    uint32_t n_machines, n_states, n_classes;
    size_t bytes;
} kin_grammar_size;

kin_grammar_size kin_grammar_get_size(const kin_grammar *grammar);
