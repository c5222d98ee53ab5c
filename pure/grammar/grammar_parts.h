// A pass of the grammar compiler: parts, which are rules that were compiled on their own. Their states are copied. Each class of
// bytes of the whole grammar lies within one class of the part, because the whole contains the part's text.
//
// Fails with a sentence in the build's err. Thread: the compiler's.
#pragma once

#include "pure/grammar/grammar_build.h"

// Returns the grammar that has the rule already, called by its root (kin_grammar_parts), or NULL.
const kin_grammar *kin_build_find_part(const kin_grammar_build *b, uint32_t rule);
// Makes the machine of the rule from that grammar, and sets the facts of the rule.
int kin_build_copy_part(kin_grammar_build *b, const kin_grammar *part, uint32_t rule);
