// The compiler of grammars, between its files: grammar.c asks what rules can do and gives out the machines, grammar_nfa.c makes
// the nondeterministic automaton of one machine, grammar_dfa.c the deterministic one; grammar_ahead.c does that for rules with
// look-ahead.
#pragma once

#include "pure/text/grammar_impl.h"

enum {
    KIN_BUILD_MAX_NFA = 1 << 18,     // states of one nondeterministic automaton
    KIN_BUILD_MAX_SUBSETS = 1 << 22, // members of all subsets of one machine
    KIN_BUILD_MAX_WORK = 1 << 25,    // steps of one compilation
    KIN_BUILD_MAX_INLINE = 128,      // automaton states of a rule that is copied into those that use it
    KIN_BUILD_MAX_INLINE_HEIGHT = 8, // copies within copies
    KIN_BUILD_MAX_UNROLL = 64,       // automaton states of a repetition that is written out
    KIN_BUILD_MAX_AHEADS = 64,       // look-aheads of one rule
    KIN_BUILD_MAX_NUMBER = 10000,    // N of %N, without the zeros at its end
    KIN_BUILD_MAX_RULE_DEPTH = 64,   // rules in rules, in one with look-ahead
};

typedef enum kin_nfa_kind {
    KIN_NFA_RANGE, // a byte in [lo, hi], then out
    KIN_NFA_CALL,  // a machine, then out
    KIN_NFA_SPLIT, // out or other, without a byte
    KIN_NFA_END,
    KIN_NFA_FAIL,  // nothing matches from here
    KIN_NFA_AHEAD, // look-ahead number `other`, then out
    KIN_NFA_ANY,   // the end of a look-ahead: anything may follow
} kin_nfa_kind;

typedef struct kin_nfa_state {
    uint8_t kind, lo, hi;
    uint32_t out;
    uint32_t other; // SPLIT: the other state; CALL: the machine
} kin_nfa_state;

typedef struct kin_rule_facts {
    bool nullable;   // matches the empty text
    bool productive; // matches any text
    bool inlined;    // copied into those that use it
    bool looks;      // has look-ahead: its machine is built first, and tells whether it is nullable and productive
    uint8_t height;  // copies within it
    uint32_t cost;   // automaton states, about
    uint32_t machine_plus_1;
} kin_rule_facts;

typedef struct kin_grammar_build {
    kin_grammar *grammar;
    const kin_gbnf *gbnf;
    kin_err *err;
    uint32_t work;          // done so far
    kin_rule_facts *rules;  // [gbnf->n_rules]
    uint32_t *node_machine; // [gbnf->n_nodes] of a counted repetition: its machine plus 1
    uint32_t *machine_node; // [grammar->n_machines] what a machine matches (once, if it is counted)
    uint32_t cap_machine_node;

    kin_nfa_state *nfa; // of the machine being built
    uint32_t n_nfa, cap_nfa;
    uint32_t *children; // stack of nodes
    uint32_t n_children, cap_children;

    bool is_regular; // the machine is that of a rule with look-ahead: all is written out in it
    uint32_t depth;  // rules within it
    struct {
        uint32_t entry;
        bool negated;
    } aheads[KIN_BUILD_MAX_AHEADS]; // of the machine, those within others first
    uint32_t n_aheads;
} kin_grammar_build;

// Counts steps; fails when they become too many.
int kin_build_work(kin_grammar_build *b, uint64_t steps);
int kin_build_out_of_memory(kin_grammar_build *b);

// About how many automaton states the node needs, as it would be built; at most UINT32_MAX.
uint32_t kin_build_cost(const kin_grammar_build *b, uint32_t node);
bool kin_build_is_nullable(const kin_grammar_build *b, uint32_t node);   // matches the empty text
bool kin_build_is_productive(const kin_grammar_build *b, uint32_t node); // matches any text
bool kin_build_is_counted(const kin_grammar_build *b, const kin_gbnf_node *repeat);

// The machine of a rule or of a counted repetition (a node), which is built later.
int kin_build_machine_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *machine);
int kin_build_machine_of_repeat(kin_grammar_build *b, uint32_t node, uint32_t rule, uint32_t *machine);

// The nondeterministic automaton of the machine, in b->nfa; *entry: where it begins.
int kin_build_nfa(kin_grammar_build *b, uint32_t machine, uint32_t *entry);
// That of a rule with look-ahead: all is written out in it, and nothing is called.
int kin_build_nfa_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *entry);

// Classes of bytes, from all literals and character classes of the tree.
void kin_build_classes(kin_grammar_build *b);

// The deterministic automaton of b->nfa as states of the machine.
int kin_build_dfa(kin_grammar_build *b, uint32_t machine, uint32_t entry);

// The machines of all rules with look-ahead, and what such rules can do.
int kin_build_aheads(kin_grammar_build *b);

// Marks states with KIN_STATE_PLAIN. After all machines are built.
int kin_build_mark_plain(kin_grammar_build *b);
