// A pass of the grammar compiler: the states in which plain characters change nothing.
//
// Fails with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_build.h"

// Sets KIN_STATE_PLAIN. Call after all machines are built.
int kin_build_mark_plain(kin_grammar_build *b);
