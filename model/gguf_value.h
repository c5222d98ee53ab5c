// Values of a GGUF file's metadata. The parser has verified that every value lies in its file; only its meaning is checked here.
//
// Plain functions on the file's bytes, which the caller keeps. Thread: any.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef enum kin_gguf_kind { // the value types of the format, with its numbers
    KIN_GGUF_U8 = 0,
    KIN_GGUF_I8 = 1,
    KIN_GGUF_U16 = 2,
    KIN_GGUF_I16 = 3,
    KIN_GGUF_U32 = 4,
    KIN_GGUF_I32 = 5,
    KIN_GGUF_F32 = 6,
    KIN_GGUF_BOOL = 7,
    KIN_GGUF_STRING = 8,
    KIN_GGUF_ARRAY = 9,
    KIN_GGUF_U64 = 10,
    KIN_GGUF_I64 = 11,
    KIN_GGUF_F64 = 12,
} kin_gguf_kind;

// Arrays. `kind` is the element kind; strings are walked with kin_gguf_array_next_str.
typedef struct kin_gguf_array {
    kin_gguf_kind kind;
    uint64_t n;
    const uint8_t *at; // unaligned little-endian elements
} kin_gguf_array;

// One entry.
typedef struct kin_gguf_meta {
    kin_str key;
    kin_gguf_kind kind;
    const uint8_t *value; // the scalar; a string's u64 length; an array's u32 element kind. Lies entirely within the file.
} kin_gguf_meta;

// For "%.*s": names in errors are cut after 80 bytes.
#define KIN_STR_SHOWN(s) (int)((s).len < 80 ? (s).len : 80), (s).at

// Returns the bytes of one value of a fixed-size kind; 0 for strings, arrays and unknown kinds.
size_t kin_gguf_kind_size(uint32_t kind);

// The entry as a value of a wanted type; KIN_FAIL if it has another kind or is out of range. The error names the key, not the
// file.
int kin_gguf_value_u32(const kin_gguf_meta *meta, uint32_t *value, kin_err *err);
int kin_gguf_value_f32(const kin_gguf_meta *meta, float *value, kin_err *err);
int kin_gguf_value_bool(const kin_gguf_meta *meta, bool *value, kin_err *err);
int kin_gguf_value_str(const kin_gguf_meta *meta, kin_str *value, kin_err *err);
int kin_gguf_value_array(const kin_gguf_meta *meta, kin_gguf_array *value, kin_err *err);

// Writes the value as short text to buf [n], n > 0, and returns buf.
const char *kin_gguf_value_text(const kin_gguf_meta *meta, char *buf, size_t n);

// Return element i (< n) of a numeric or boolean array as a double / integer.
double kin_gguf_array_f64(const kin_gguf_array *array, uint64_t i);
int64_t kin_gguf_array_i64(const kin_gguf_array *array, uint64_t i);

// Returns the string at *cursor of a string array and advances *cursor. Start with *cursor = array->at; call at most n times.
kin_str kin_gguf_array_next_str(const uint8_t **cursor);
