// Python's order of values, and stable sorting.
#pragma once

#include "pure/jinja/value_impl.h"

// Returns 1 if a < b, 0 if not; KIN_FAIL if they cannot be compared (or after an error).
int kin_value_less(kin_values *values, const kin_value *a, const kin_value *b);

// Sorts pairs by their keys, stably. Returns false if two keys cannot be compared, or after an error.
bool kin_sort_pairs(kin_values *values, kin_pair *pairs, size_t n, bool reverse);

// Returns a copy sorted by keys; NULL if they cannot be compared, or after an error.
const kin_pairs *kin_sorted_pairs(kin_values *values, const kin_pairs *pairs);
