// The keys of facts files, their kinds, and the offsets of their values in the facts. One table serves reading and writing, so
// the two cannot differ.
//
// A missing value is 0, or the table's default; a value of 0 or false is not written unless it is mandatory. The caller reads and
// writes nested objects (KIN_FIELD_INSIDE): the table only declares their keys. Plain functions without state.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "pure/plan/facts.h"

typedef enum kin_field_kind {
    KIN_FIELD_END,    // closes a table
    KIN_FIELD_NUMBER, // double
    KIN_FIELD_SIZE,   // double, in bytes; a user may write "8G"
    KIN_FIELD_COUNT,  // int
    KIN_FIELD_FLAG,   // bool
    KIN_FIELD_NAME,   // char [KIN_FACTS_MAX_NAME]
    KIN_FIELD_OS,     // kin_os, by name
    KIN_FIELD_TYPES,  // double [KIN_N_QUANT]: an object, {"Q4_K": 45e9}
    KIN_FIELD_RATES,  // the same, or one number for all types
    KIN_FIELD_INSIDE, // an object or list that the caller reads and writes
    KIN_FIELD_ABOUT,  // a comment for users: accepted, and ignored
} kin_field_kind;

typedef struct kin_field {
    kin_field_kind kind;
    const char *key;
    size_t offset; // of the value in the struct
    bool must;
    double missing; // NUMBER and COUNT: the default
} kin_field;

// Returns the name in facts files: "linux", "browser".
const char *kin_os_name(kin_os os);

// Reads the fields into `to`. Error messages name the key.
int kin_fields_read(const json_t *object, const kin_field *fields, void *to, kin_err *err);

// Adds the fields of `from` to the object.
int kin_fields_write(json_t *object, const kin_field *fields, const void *from, kin_err *err);

// Returns the object or list at `key`; fails if it has another type ("an object", "a list"). NULL if it is missing and not
// mandatory.
int kin_fields_inside(const json_t *object, const char *key, json_type type, bool must, const json_t **inside, kin_err *err);
