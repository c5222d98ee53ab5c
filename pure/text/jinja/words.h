// What Python's methods do with strings: letters, lines, splitting, replacing. Every byte keeps its origin; what is put in has
// its own.
#pragma once

#include "pure/text/jinja/strings.h"

typedef enum kin_casing {
    KIN_CASE_UPPER,
    KIN_CASE_LOWER,
    KIN_CASE_CAPITALIZE, // the first letter upper, the rest lower
    KIN_CASE_TITLE,      // str.title(): upper after what is no letter
    KIN_CASE_WORDS,      // Jinja's filter title: upper after white space and - ( { [ <
} kin_casing;

// All of these: NULL or false after an error.
kin_value *kin_string_case(kin_values *values, const kin_string *s, kin_casing casing);

// The first `max` occurrences (all if max < 0) of `old` become `with`.
kin_value *kin_string_replace(kin_values *values, const kin_string *s, const kin_string *old, const kin_string *with,
                              int64_t max);

// The parts between separators (white space if NULL), at most max + 1 of them if max >= 0; then the last one, or the first one if
// from_right, has the rest. An empty separator is a programmer's error.
bool kin_string_split(kin_values *values, const kin_string *s, const kin_string *separator, int64_t max, bool from_right,
                      kin_items *parts);

bool kin_string_lines(kin_values *values, const kin_string *s, bool keep_ends, kin_items *lines);
