// Python's string methods: case, lines, splitting, replacing. Every byte keeps its origin, including those that are inserted.
#pragma once

#include "pure/jinja/strings.h"

typedef enum kin_casing {
    KIN_CASE_UPPER,
    KIN_CASE_LOWER,
    KIN_CASE_CAPITALIZE, // the first letter upper case, the rest lower case
    KIN_CASE_TITLE,      // str.title(): upper case after a non-letter
    KIN_CASE_WORDS,      // Jinja's filter title: upper case after white space and - ( { [ <
} kin_casing;

// All of these return NULL or false after an error.
kin_value *kin_string_case(kin_values *values, const kin_string *s, kin_casing casing);

// Replaces the first `max` occurrences (all if max < 0) of `old` by `with`.
kin_value *kin_string_replace(kin_values *values, const kin_string *s, const kin_string *old, const kin_string *with,
                              int64_t max);

// Splits at separators (white space if NULL) into at most max + 1 parts if max >= 0; the last one, or the first one if
// from_right, is the unsplit rest. The separator must not be empty.
bool kin_string_split(kin_values *values, const kin_string *s, const kin_string *separator, int64_t max, bool from_right,
                      kin_items *parts);

bool kin_string_lines(kin_values *values, const kin_string *s, bool keep_ends, kin_items *lines);
