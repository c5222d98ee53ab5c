// A grammar that is being compiled: what its passes share. The properties of nodes and rules, and the numbers of machines.
//
// grammar_compile.c determines the properties of rules and assigns machines, grammar_nfa.c builds the nondeterministic automaton
// of a machine, grammar_dfa.c the deterministic one; grammar_ahead.c builds both for rules with look-ahead, grammar_parts.c
// copies those that exist.
//
// Owner: kin_grammar_compile_with. Functions that return int fail with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_impl.h"

enum {
    KIN_BUILD_MAX_NFA = 1 << 18,     // states of one nondeterministic automaton
    KIN_BUILD_MAX_SUBSETS = 1 << 22, // total members of all subsets of one machine
    KIN_BUILD_MAX_INLINE = 128,      // automaton states up to which a rule is inlined
    KIN_BUILD_MAX_INLINE_HEIGHT = 8, // nesting of inlined rules
    KIN_BUILD_MAX_UNROLL = 64,       // automaton states up to which a repetition is unrolled
    KIN_BUILD_MAX_AHEADS = 64,       // look-aheads in one rule
    KIN_BUILD_MAX_NUMBER = 10000,    // N of %N, without trailing zeros
    KIN_BUILD_MAX_RULE_DEPTH = 64,   // nesting of rules within a rule with look-ahead
};

typedef enum kin_nfa_kind {
    KIN_NFA_RANGE, // a byte in [lo, hi], then out
    KIN_NFA_CALL,  // call of a machine, then out
    KIN_NFA_SPLIT, // out or other, without consuming a byte
    KIN_NFA_END,
    KIN_NFA_FAIL,  // nothing matches from here
    KIN_NFA_AHEAD, // look-ahead number `other`, then out
    KIN_NFA_ANY,   // the end of a look-ahead: anything may follow
} kin_nfa_kind;

typedef struct kin_nfa_state {
    uint8_t kind, lo, hi;
    uint32_t out;
    uint32_t other; // SPLIT: the other state; CALL: the machine; AHEAD: the look-ahead
} kin_nfa_state;

typedef struct kin_rule_facts {
    bool nullable;   // matches the empty text
    bool productive; // matches at least one text
    bool inlined;    // inlined into its users
    bool has_ahead;  // has look-ahead: its machine is built first and determines nullable and productive
    uint8_t height;  // nesting of inlined rules within it
    uint32_t cost;   // automaton states, approximate
    uint32_t machine_plus_1;
} kin_rule_facts;

typedef struct kin_grammar_build {
    kin_grammar *grammar;
    const kin_gbnf *gbnf;
    kin_err *err;
    kin_grammar_budget *budget;
    const kin_grammar_parts *parts; // NULL: none
    kin_rule_facts *rules;          // [gbnf->n_rules]
    uint32_t *node_machine;         // [gbnf->n_nodes] of a counted repetition: its machine + 1; else 0
    uint32_t *machine_node;         // [grammar->n_machines] the node that a machine matches (once, if counted)
    uint32_t cap_machine_node;

    kin_nfa_state *nfa; // of the machine that is being built
    uint32_t n_nfa, cap_nfa;
    uint32_t *children; // stack of nodes
    uint32_t n_children, cap_children;

    bool is_regular; // the machine is that of a rule with look-ahead: it calls no other machine
    uint32_t depth;  // nesting of rules within that rule
    struct {
        uint32_t entry;
        bool negated;
    } aheads[KIN_BUILD_MAX_AHEADS]; // of the machine; nested ones come before those that contain them
    uint32_t n_aheads;
} kin_grammar_build;

// Counts steps; fails at KIN_BUILD_MAX_WORK.
int kin_build_work(kin_grammar_build *b, uint64_t steps);
int kin_build_out_of_memory(kin_grammar_build *b);

// Returns approximately the number of automaton states that the node needs; at most UINT32_MAX.
uint32_t kin_build_cost(const kin_grammar_build *b, uint32_t node);
bool kin_build_is_nullable(const kin_grammar_build *b, uint32_t node);   // matches the empty text
bool kin_build_is_productive(const kin_grammar_build *b, uint32_t node); // matches at least one text
bool kin_build_is_counted(const kin_grammar_build *b, const kin_gbnf_node *repeat);

// Returns the machine of a rule, or of a counted repetition (a node). It is built later.
int kin_build_machine_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *machine);
int kin_build_machine_of_repeat(kin_grammar_build *b, uint32_t node, uint32_t rule, uint32_t *machine);
