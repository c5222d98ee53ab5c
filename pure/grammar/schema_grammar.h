// A grammar that is being written, with the rules of schemas in it. It begins with all fields zero but for the budget. Several
// keywords about one string or number become an expression that is compiled at once, to see whether it is small enough; the whole
// grammar then copies its automaton.
#pragma once

#include "pure/grammar/grammar.h"
#include "pure/text/text_buffer.h"

typedef struct kin_schema_grammar {
    kin_text_buffer gbnf;       // rules
    uint32_t n_rules;           // rules of schemas
    kin_text_buffer places;     // lines of a rule's name and its place in the schema: "s7 #/properties/a"
    kin_str name;               // borrowed: a prefix for places that are added from now on
    kin_grammar_parts parts;    // expressions that are compiled
    kin_grammar_budget *budget; // borrowed
} kin_schema_grammar;

void kin_schema_grammar_fini(kin_schema_grammar *grammar);

// Compiles the rules, which must include `root`. If no text matches because of a rule with a place, the sentence names the place.
int kin_schema_grammar_compile(kin_schema_grammar *grammar, kin_grammar **out, kin_err *err);
