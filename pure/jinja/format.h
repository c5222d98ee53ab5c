// Python's two ways to format strings: "%s is %d" % (a, b), also as the filter `format`, and "{} is {n}".format(a, n=b).
//
// Conversions are s, d, i, u, f, F, x, X, o and c with flags, a width and a precision; {} takes a fill character, an alignment, a
// sign, a width, a precision and the types s, d, f, x, X and o. Others, and attributes and items in braces, are errors.
#pragma once

#include "pure/jinja/functions.h"

enum { KIN_FORMAT_MAX_WIDTH = 1000 }; // also of a precision

// values: a tuple of the values, a dict for %(name)s, or the only value.
const kin_value *kin_format_percent(kin_state *state, const kin_string *format, const kin_value *values);
const kin_value *kin_format_braces(kin_state *state, const kin_string *format, const kin_arguments *all);
