// Values that a chat template is rendered with: the data types of JSON, built by the caller in a heap of one request.
//
// A heap (kin_values) owns everything that the caller builds in it and everything that a rendering allocates. It has a memory
// limit, and a step budget for renderings. An error while building (out of memory, a string that is not UTF-8, values nested
// too deep) is remembered in the heap: the builders then return NULL and accept NULL, and the rendering fails with the error.
// So a caller may build first and check once.
//
// Owner: one request, one thread. Strings and keys are borrowed: their bytes must live as long as the heap.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_values kin_values;
typedef struct kin_value kin_value;

enum {
    KIN_VALUE_MAX_DEPTH = 128,       // nested lists and dicts
    KIN_VALUE_MAX_STRING = 64 << 20, // bytes of one string, and of a rendered prompt
};

// Origin of the bytes of a string. Control tokens are parsed only in bytes of the template.
typedef enum kin_origin {
    KIN_ORIGIN_INPUT,    // messages, tools, documents: text
    KIN_ORIGIN_TEMPLATE, // the template itself; bos_token and eos_token; role names defined by APIs
} kin_origin;

// max_bytes: recommended: 8 times the bytes of the request, plus 1 MiB. Returns NULL if memory runs out.
kin_values *kin_values_new(size_t max_bytes);
void kin_values_free(kin_values *values); // NULL is allowed
// Lowers the number of steps that may still be taken (jinja.h), for templates that are only tried.
void kin_values_limit_steps(kin_values *values, uint64_t n_steps);

// Returns 0, or KIN_FAIL with the first error of the heap.
int kin_values_check(const kin_values *values, kin_err *err);

kin_value *kin_value_none(kin_values *values);
kin_value *kin_value_bool(kin_values *values, bool b);
kin_value *kin_value_int(kin_values *values, int64_t i);
kin_value *kin_value_float(kin_values *values, double f);
kin_value *kin_value_string(kin_values *values, const char *at, size_t len, kin_origin origin);
kin_value *kin_value_list(kin_values *values);
kin_value *kin_value_dict(kin_values *values); // keeps the order of its keys

// Adds an item, which must be complete: it cannot change afterwards. Keys have the origin input. An existing key keeps its
// position and gets the new item.
void kin_value_append(kin_values *values, kin_value *list, kin_value *item);
void kin_value_put(kin_values *values, kin_value *dict, const char *key, size_t key_len, kin_value *item);
