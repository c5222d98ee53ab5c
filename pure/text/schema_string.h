// Strings of a JSON schema as GBNF: patterns, formats, keys, and JSON texts as literals.
//
// Patterns are regular expressions as ECMA-262 has them, without what a grammar cannot do or what engines understand differently:
// no look around, no back references, no \b, \B, \p, no ^ and $ but at the ends of an alternative of the whole pattern, no
// possessive repetitions. Classes \d \w \s are of ASCII; their negations, alone or in a class, match ASCII only; '.' matches no
// line end. A pattern is found anywhere in the string unless ^ and $ hold it.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_PATTERN_MAX_RANGES = 256, // in a class
    KIN_PATTERN_MAX_NESTING = 24, // groups
};

// The rules that the others refer to: value, object, array, string, char, number, integer, ws.
void kin_schema_put_builtins(kin_text_buffer *gbnf);

// Bytes, which are UTF-8, as a GBNF literal.
void kin_schema_put_literal(kin_str text, kin_text_buffer *gbnf);

// What is between the quotes of a JSON string that the pattern matches. Fails with a sentence about the pattern.
int kin_schema_put_pattern(kin_str pattern, kin_text_buffer *gbnf, kin_err *err);

// The same for a format; false if it says nothing about a string.
bool kin_schema_put_format(kin_str format, kin_text_buffer *gbnf);

// Rules NAME, NAME-1, ...: a key without escapes, with its quotes, that is none of keys [n]. Keys that cannot be written so are
// not met anyway.
void kin_schema_put_other_keys(const char *name, kin_str *keys, size_t n, kin_text_buffer *gbnf);
