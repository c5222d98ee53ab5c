// Strings of a JSON schema as GBNF: patterns, formats, keys, and JSON texts as literals.
//
// Patterns are regular expressions as ECMA-262 has them, without what a grammar cannot do or what engines understand differently:
// no look-behind, no back references, no \b, \B, of \p only those of emoji, no ^ and $ but at the ends of an alternative of the
// whole pattern ($ also at those of a look-ahead), no possessive repetitions. Classes \d \w \s are of ASCII; their negations,
// alone or in a class, match ASCII only; '.' matches no line end; all the other way round in a negative look-ahead. A pattern is
// found anywhere in the string unless ^ and $ hold it.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_PATTERN_MAX_RANGES = 256, // in a class
    KIN_PATTERN_MAX_NESTING = 24, // groups
};

// The rules that the others refer to: value, object, array, string, char, one (a character in one way), number, integer, ws.
void kin_schema_put_builtins(kin_text_buffer *gbnf);

// Bytes, which are UTF-8, as a GBNF literal.
void kin_schema_put_literal(kin_str text, kin_text_buffer *gbnf);

// The text between the quotes of a JSON string that the pattern matches. Fails with a sentence about the pattern.
// in_rule: it is part of a rule with look-ahead, in which each character is written in one way: the rule `one`.
int kin_schema_put_pattern(kin_str pattern, bool in_rule, kin_text_buffer *gbnf, kin_err *err);
// True for a pattern that may have look-ahead: it is to be in such a rule.
bool kin_schema_pattern_looks(kin_str pattern);

// The same for a format; false if it says nothing about a string.
bool kin_schema_put_format(kin_str format, kin_text_buffer *gbnf);

// Rules NAME, NAME-1, ...: a key without escapes, with its quotes, that is none of keys [n]. Keys that cannot be written so are
// not met anyway.
void kin_schema_put_other_keys(const char *name, kin_str *keys, size_t n, kin_text_buffer *gbnf);
