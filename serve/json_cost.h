// What the parsed form of a JSON text needs of memory, counted while the text arrives: values, not bytes, are what is dear. A
// number of two bytes takes 56 bytes, an empty object 270.
//
// The count is an upper bound for jansson and the C library's allocator on 64 bits (tests/test_json_cost.c compares). Text that
// is no JSON gets some number, too.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct kin_json_cost {
    size_t bytes; // so far
    // inside:
    bool in_string, is_escaped;
    size_t len, longest; // bytes of this string, of the longest one
} kin_json_cost;         // all zero: no byte has come

void kin_json_cost_feed(kin_json_cost *cost, const char *bytes, size_t n);
