// A pass of the grammar compiler: rules with look-ahead.
//
// Fails with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_build.h"

// Builds the machines of all rules with look-ahead and sets the facts of these rules.
int kin_build_aheads(kin_grammar_build *b);
