// Strings and numbers of a JSON schema as GBNF, with all constraints on one of them combined.
//
// One keyword becomes an expression. Several (two patterns, a pattern and a length, a bound and multipleOf) become a rule with
// look-ahead (gbnf.h). The rule is compiled at once as a test, because its automaton may be too large or match nothing.
#pragma once

#include "pure/grammar/schema_combine.h"
#include "pure/grammar/schema_grammar.h"
#include "pure/text/string_table.h"

typedef struct kin_schema_scalars {
    const kin_json *json;
    const kin_schema_text *text; // for lists with is_text
    uint32_t prefix;             // part of the rules' names
    kin_string_table rules;      // keyed by content; equal rules are shared
    uint32_t n_states;           // total of their automata
    kin_schema_grammar *to;      // receives the rules
    kin_err *err;
} kin_schema_scalars;

int kin_schema_scalars_init(kin_schema_scalars *s, const kin_json *json, const kin_schema_text *text, kin_schema_grammar *to,
                            kin_err *err);
void kin_schema_scalars_fini(kin_schema_scalars *s);

// Append the expression for a string (with its quotes, unless it is text) or a number to `line`, and rules to s->to. Fail with a
// sentence that names the keyword, unless the list is relaxed.
int kin_schema_put_string(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line);
int kin_schema_put_number(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line);
