// Strings and numbers of a JSON schema as GBNF: all that is said of one together.
//
// One keyword becomes an expression. Several (two patterns, a pattern and a length, a bound and multipleOf) become a
// rule with look-ahead (gbnf.h), which is tried at once: its automaton may be too large, or nothing may match it.
#pragma once

#include "pure/text/schema_combine.h"
#include "pure/text/string_table.h"

typedef struct kin_schema_scalars {
    const kin_json *json;
    uint32_t prefix;        // of the names of its rules
    kin_string_table rules; // by what they say; those that are alike are one
    uint32_t n_states;      // of their automata
    kin_text_buffer *gbnf;  // where their lines go
    kin_err *err;
} kin_schema_scalars;

int kin_schema_scalars_init(kin_schema_scalars *s, const kin_json *json, uint32_t prefix, kin_text_buffer *gbnf, kin_err *err);
void kin_schema_scalars_fini(kin_schema_scalars *s);

// Appends what stands for a string (with its quotes), or a number, to `line`, and rules to s->gbnf. Fails with a sentence, where
// the list is not relaxed, that names the keyword.
int kin_schema_put_string(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line);
int kin_schema_put_number(kin_schema_scalars *s, const kin_schema_list *list, const kin_schema_facts *facts,
                          kin_text_buffer *line);
