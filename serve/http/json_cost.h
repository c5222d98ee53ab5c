// Estimates the memory that the parsed form of a JSON text needs, while the text arrives. Memory depends on the number of values,
// not on bytes: a number of two bytes takes 56 bytes, an empty object 270.
//
// The estimate is an upper bound for jansson and the C library's allocator on 64 bits (compared in tests/test_json_cost.c). Text
// that is not JSON gets an arbitrary number.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct kin_json_cost {
    size_t bytes; // so far
    // Parser state.
    bool in_string, is_escaped;
    size_t len, longest; // bytes of this string, and of the longest one
} kin_json_cost;         // all zero: no byte has arrived

void kin_json_cost_feed(kin_json_cost *cost, const char *bytes, size_t n);
