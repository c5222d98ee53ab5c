// Numbers of a JSON schema: bounds as exact decimals, and the grammar of the numbers between them.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum { KIN_DECIMAL_MAX_DIGITS = 40 };

typedef struct kin_decimal { // 0.000 is not negative
    bool negative;
    int n_int, n_frac; // digits, without leading zeros of the integer part (0 has none) and trailing zeros of the fraction
    char integer[KIN_DECIMAL_MAX_DIGITS], fraction[KIN_DECIMAL_MAX_DIGITS]; // '0' to '9'
} kin_decimal;

typedef struct kin_number_range {
    bool has_min, has_max;
    bool above_min, below_max; // exclusive
    kin_decimal min, max;
} kin_number_range;

// Parses a JSON number. Fails if it has more digits than the limit on either side of the point.
int kin_decimal_parse(kin_decimal *out, kin_str number);
int kin_decimal_compare(const kin_decimal *a, const kin_decimal *b); // < 0, 0, > 0

// True if `number` is an integer multiple of `of` > 0. Also false if `of` has more than 18 digits, counting the longer fraction.
bool kin_decimal_is_multiple(const kin_decimal *number, const kin_decimal *of);

// Narrow the range by a bound.
void kin_number_range_min(kin_number_range *range, const kin_decimal *min, bool exclusive);
void kin_number_range_max(kin_number_range *range, const kin_decimal *max, bool exclusive);
bool kin_number_range_has(const kin_number_range *range, const kin_decimal *number);
bool kin_number_range_overlap(const kin_number_range *a, const kin_number_range *b);

// Writes a GBNF expression for the numbers in a range that has a bound; "[]", which matches nothing, if the range is empty.
// Fractions are written with at most 15 digits, so that rounding to double does not move them across a bound; if a bound has
// more digits, only integers are written.
void kin_number_range_put(const kin_number_range *range, bool integer, kin_text_buffer *gbnf);
