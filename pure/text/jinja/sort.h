// Order of values, as Python has it, and stable sorting.
#pragma once

#include "pure/text/value_impl.h"

// a < b: 1 or 0; KIN_FAIL if they have no order (or after an error).
int kin_value_less(kin_values *values, const kin_value *a, const kin_value *b);

// Sorts pairs by their keys, stably. False if two keys have no order, or after an error.
bool kin_sort_pairs(kin_values *values, kin_pair *pairs, size_t n, bool reverse);

// A copy in the order of the keys; NULL if they have none, or after an error.
const kin_pairs *kin_sorted_pairs(kin_values *values, const kin_pairs *pairs);
