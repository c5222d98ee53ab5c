// Values that a chat template is rendered with: what JSON can say, built by the caller in a heap of one request.
//
// A heap (kin_values) owns everything that is built in it and everything that a rendering makes of it. It has a limit of
// memory, and a budget of steps that renderings use up. What goes wrong while building (no memory, a string that is not UTF-8,
// values nested too deep) is remembered in the heap: the builders then return NULL and take NULL, and the rendering fails with
// the sentence. So a caller may build first and check once.
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
    KIN_VALUE_MAX_DEPTH = 128,       // lists and dicts in each other
    KIN_VALUE_MAX_STRING = 64 << 20, // bytes of one string, and of a rendered prompt
};

// Where the bytes of a string come from. Control tokens are looked for in the template's bytes only.
typedef enum kin_origin {
    KIN_ORIGIN_INPUT,    // messages, tools, documents: text
    KIN_ORIGIN_TEMPLATE, // the template itself; bos_token and eos_token; role names that APIs have
} kin_origin;

// max_bytes: about 8 times the bytes of the request, and 1 MiB. NULL without memory.
kin_values *kin_values_new(size_t max_bytes);
void kin_values_free(kin_values *values); // NULL is fine

// 0, or KIN_FAIL with the first error in the heap.
int kin_values_check(const kin_values *values, kin_err *err);

kin_value *kin_value_none(kin_values *values);
kin_value *kin_value_bool(kin_values *values, bool b);
kin_value *kin_value_int(kin_values *values, int64_t i);
kin_value *kin_value_float(kin_values *values, double f);
kin_value *kin_value_string(kin_values *values, const char *at, size_t len, kin_origin origin);
kin_value *kin_value_list(kin_values *values);
kin_value *kin_value_dict(kin_values *values); // keeps the order of its keys

// An item must be complete before it is put into another value. Keys of the caller have the origin input. A key that is there
// already gets the new item, in the old place.
void kin_value_append(kin_values *values, kin_value *list, kin_value *item);
void kin_value_put(kin_values *values, kin_value *dict, const char *key, size_t key_len, kin_value *item);
