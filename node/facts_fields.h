// The keys of facts files: which there are, of which kind, and where in the facts their values live. One table of them serves
// reading and writing, so the two cannot differ.
//
// A value that is missing is 0, or what the table says; one that is 0 or false is not written unless it must be there. Objects
// inside of objects are the caller's (KIN_FIELD_INSIDE): the table only knows that their keys exist. Plain functions without
// state.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "pure/plan/facts.h"

typedef enum kin_field_kind {
    KIN_FIELD_END,    // closes a table
    KIN_FIELD_NUMBER, // double
    KIN_FIELD_SIZE,   // double, in bytes; a person may write "8G"
    KIN_FIELD_COUNT,  // int
    KIN_FIELD_FLAG,   // bool
    KIN_FIELD_NAME,   // char [KIN_FACTS_MAX_NAME]
    KIN_FIELD_OS,     // kin_os, by name
    KIN_FIELD_TYPES,  // double [KIN_N_QUANT]: an object, {"Q4_K": 45e9}
    KIN_FIELD_RATES,  // the same, or one number for all types
    KIN_FIELD_INSIDE, // an object or list, which the caller reads and writes
    KIN_FIELD_ABOUT,  // a text for people: accepted, and forgotten
} kin_field_kind;

typedef struct kin_field {
    kin_field_kind kind;
    const char *key;
    size_t offset; // of the value in the struct
    bool must;
    double missing; // NUMBER and COUNT: what it is where nothing is written
} kin_field;

// "linux", "browser": as files of facts have it.
const char *kin_os_name(kin_os os);

// Fills the fields of `to`. Sentences name the key.
int kin_fields_read(const json_t *object, const kin_field *fields, void *to, kin_err *err);

// Adds the fields of `from` to the object.
int kin_fields_write(json_t *object, const kin_field *fields, const void *from, kin_err *err);

// The object or list at `key`, which must be one ("an object", "a list"), or NULL where it is missing and need not be there.
int kin_fields_inside(const json_t *object, const char *key, json_type type, bool must, const json_t **inside, kin_err *err);
