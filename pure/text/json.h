// JSON, parsed into an immutable tree: exactly RFC 8259.
//
// Bounded: KIN_JSON_MAX_*. Keys keep their order. Numbers keep their text, so nothing is rounded. Duplicate keys and unpaired
// UTF-16 surrogates are rejected, because parsers disagree about them.
//
// Owner: the caller of kin_json_parse. After that any thread may read it. Values live as long as the tree.
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
    kin_str text;    // a string, decoded to UTF-8 (may contain NULs); the text of a number
    kin_str key;     // key of a member of an object
    uint32_t parent; // index in `values`; the first value is its own parent
    uint32_t first;  // index of the first item or member; 0: none
    uint32_t next;   // index of the next item or member of the same parent; 0: none
} kin_json_value;

typedef struct kin_json {
    kin_json_value *values; // [n_values]; the first one is the root
    uint32_t n_values, cap_values;
    char *bytes; // of all strings
} kin_json;

// Parses exactly one value. Fails with a sentence that names the line. After a failure there is nothing to free.
int kin_json_parse(kin_json *out, const char *text, size_t len, kin_err *err);
void kin_json_fini(kin_json *json);

// Return the first child of an array or object, and the next sibling; NULL if there is none.
const kin_json_value *kin_json_first(const kin_json *json, const kin_json_value *of);
const kin_json_value *kin_json_next(const kin_json *json, const kin_json_value *value);

// Returns the member with that key; NULL if there is none or `of` is not an object.
const kin_json_value *kin_json_get(const kin_json *json, const kin_json_value *of, const char *key, size_t key_len);

// Resolves a JSON pointer such as "/$defs/a~1b/0" from `of`; NULL if it leads nowhere.
const kin_json_value *kin_json_pointer(const kin_json *json, const kin_json_value *of, const char *at, size_t len);

// True if equal in the sense of JSON: numbers by value (in double precision), members in any order.
bool kin_json_equal(const kin_json *json, const kin_json_value *a, const kin_json_value *b);

// Writes the value without white space; strings are quoted, with escapes only where required.
void kin_json_write(const kin_json *json, const kin_json_value *value, kin_text_buffer *out);
void kin_json_write_string(kin_str text, kin_text_buffer *out);
