// JSON, read into a tree that does not change: RFC 8259, nothing more, nothing less.
//
// Bounded: KIN_JSON_MAX_*. Keys keep their order. Numbers stay as they are written, so that nothing is rounded. A key that is
// there twice is refused, as are halves of UTF-16 pairs: what readers make of them differs.
//
// Owner: whoever parsed it. After that any thread may read it. Values live as long as the tree.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_JSON_MAX_BYTES = 4 << 20,
    KIN_JSON_MAX_VALUES = 1 << 18,
    KIN_JSON_MAX_DEPTH = 64,
    KIN_JSON_MAX_MEMBERS = 4096, // of one object
};

typedef enum kin_json_kind {
    KIN_JSON_NULL,
    KIN_JSON_FALSE,
    KIN_JSON_TRUE,
    KIN_JSON_NUMBER,
    KIN_JSON_STRING,
    KIN_JSON_ARRAY,
    KIN_JSON_OBJECT,
} kin_json_kind;

typedef struct kin_json_value {
    kin_json_kind kind;
    uint32_t n;      // items of an array, members of an object
    kin_str text;    // a string, decoded to UTF-8 (may hold NULs); a number as it is written
    kin_str key;     // its key if it is a member of an object
    uint32_t parent; // numbers of values, that is, places in `values`; the first value has itself
    uint32_t first;  // item or member; 0: none
    uint32_t next;   // item or member of the same parent; 0: none
} kin_json_value;

typedef struct kin_json {
    kin_json_value *values; // [n_values] the first one is the whole
    uint32_t n_values, cap_values;
    char *bytes; // of all strings
} kin_json;

// One value and nothing after it. Fails with a sentence that names the line. After a failure there is nothing to free.
int kin_json_parse(kin_json *out, const char *text, size_t len, kin_err *err);
void kin_json_fini(kin_json *json);

// Of an array or object: the first one, and the one after it; NULL: there is none.
const kin_json_value *kin_json_first(const kin_json *json, const kin_json_value *of);
const kin_json_value *kin_json_next(const kin_json *json, const kin_json_value *value);

// The member with that key; NULL if there is none or `of` is no object.
const kin_json_value *kin_json_get(const kin_json *json, const kin_json_value *of, const char *key, size_t key_len);

// What a JSON pointer such as "/$defs/a~1b/0" leads to from `of`; NULL: nothing.
const kin_json_value *kin_json_pointer(const kin_json *json, const kin_json_value *of, const char *at, size_t len);

// Equal as JSON has it: numbers by value (as far as a double tells), members in any order.
bool kin_json_equal(const kin_json *json, const kin_json_value *a, const kin_json_value *b);

// Writes the value without white space; a string with its quotes, and escapes only where they must be.
void kin_json_write(const kin_json *json, const kin_json_value *value, kin_text_buffer *out);
void kin_json_write_string(kin_str text, kin_text_buffer *out);
