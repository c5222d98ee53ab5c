// A pass of the grammar compiler: the nondeterministic automaton of a machine.
//
// Fails with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_build.h"

// Builds the nondeterministic automaton of the machine in b->nfa; *entry: its first state.
int kin_build_nfa(kin_grammar_build *b, uint32_t machine, uint32_t *entry);
// The same for a rule with look-ahead: everything is inlined, and no machine is called.
int kin_build_nfa_of_rule(kin_grammar_build *b, uint32_t rule, uint32_t *entry);
