// A pass of the grammar compiler: byte classes, and the deterministic automaton of a machine.
//
// Fails with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_build.h"

// Computes the byte classes from all literals and character classes of the tree.
void kin_build_classes(kin_grammar_build *b);

// Builds the deterministic automaton of b->nfa as states of the machine.
int kin_build_dfa(kin_grammar_build *b, uint32_t machine, uint32_t entry);
