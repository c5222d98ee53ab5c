// Strings of a JSON schema as GBNF: patterns, formats, keys, and JSON texts as literals.
//
// Patterns are ECMA-262 regular expressions without the features that a grammar cannot express or that engines interpret
// differently: no look-behind, no back references, no \b and \B, \p only for emoji, ^ and $ only at the ends of an alternative
// of the whole pattern ($ also at those of a look-ahead), no possessive repetitions. The classes \d \w \s are ASCII; their
// negations, alone or in a class, match ASCII only; '.' matches no line end; within a negative look-ahead these are widened
// instead of narrowed. A pattern matches anywhere in the string unless ^ and $ anchor it.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_PATTERN_MAX_RANGES = 256, // in one class
    KIN_PATTERN_MAX_NESTING = 24, // groups
};

// Writes the rules that the others use: value, object, array, string, char, one (a character, each spelled in only one way),
// number, integer, ws.
void kin_schema_put_builtins(kin_text_buffer *gbnf);

// Writes bytes, which must be UTF-8, as a GBNF literal.
void kin_schema_put_literal(kin_str text, kin_text_buffer *gbnf);

// How the characters of a string are written.
typedef enum kin_schema_spelling {
    KIN_SPELLING_JSON,      // between the quotes of a JSON string (the rule `char`)
    KIN_SPELLING_JSON_ONCE, // the same within a rule with look-ahead, where each character has only one spelling (the rule `one`)
    KIN_SPELLING_TEXT,      // as they are, but for NUL
} kin_schema_spelling;

// Writes the strings that match the pattern. Fails with a sentence about the pattern.
int kin_schema_put_pattern(kin_str pattern, kin_schema_spelling spelling, kin_text_buffer *gbnf, kin_err *err);
// True for a pattern that may have look-ahead, which KIN_SPELLING_JSON cannot express.
bool kin_schema_pattern_has_lookaround(kin_str pattern);

// Writes the same for a format; returns false if the format does not constrain the string. is_short: times may lack seconds and
// their offset; false for formats without times. gbnf: may be NULL.
bool kin_schema_put_format(kin_str format, bool is_short, kin_text_buffer *gbnf);

// Writes the rules NAME, NAME-1, ...: a key without escapes, with its quotes, that is not one of keys [n]. A key that needs
// escapes is never generated, so it need not be excluded. is_bare: a key without quotes.
void kin_schema_put_other_keys(const char *name, kin_str *keys, size_t n, bool is_bare, kin_text_buffer *gbnf);
// True if the key may stand without quotes before a colon (kin_schema_text's `quote`): no spaces, brackets, quotes and such.
bool kin_schema_is_bare_key(kin_str key);
