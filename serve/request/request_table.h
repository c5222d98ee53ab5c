// A table of a request body's fields: each row gives a field's name, kind, bounds, and destination.
//
// A field that is missing or null leaves the value unchanged. Rows are read in table order: later ones win.
#pragma once

#include <stddef.h>

#include "serve/request/fields.h"
#include "serve/request/request.h"

typedef enum kin_request_field_kind {
    KIN_REQUEST_BOOL,
    KIN_REQUEST_INT,    // int
    KIN_REQUEST_INT64,  // int64_t
    KIN_REQUEST_FLOAT,  // float
    KIN_REQUEST_STRING, // const char *; "": NULL
    KIN_REQUEST_OFF,    // a number of a sampler that kin does not have; accepted only within the bounds, where the sampler is off
    KIN_REQUEST_OTHER,  // read by `read`
} kin_request_field_kind;

typedef struct kin_request_field {
    const char *name; // NULL ends a table
    kin_request_field_kind kind;
    size_t offset;        // in kin_request
    double min, max;      // for numbers
    bool must_be_between; // reject a number out of bounds; otherwise clamp it
    int (*read)(kin_request *r, const char *name, json_t *value, kin_api_error *err); // for OTHER; value is not null
} kin_request_field;

// Rows of a table.
#define KIN_REQUEST_ROW(name_, kind_, member, ...)                                                                               \
    { .name = name_, .kind = KIN_REQUEST_##kind_, .offset = offsetof(kin_request, member), __VA_ARGS__ }
#define KIN_ROW_BOOL(name, member) KIN_REQUEST_ROW(name, BOOL, member)
#define KIN_ROW_STRING(name, member) KIN_REQUEST_ROW(name, STRING, member)
#define KIN_ROW_WHOLE(name, member, low, high)                                                                                   \
    KIN_REQUEST_ROW(name, INT, member, .min = low, .max = high, .must_be_between = true)
#define KIN_ROW_CLAMPED(name, kind, member, low, high) KIN_REQUEST_ROW(name, kind, member, .min = low, .max = high)
#define KIN_ROW_OFF(name_, low, high)                                                                                            \
    { .name = name_, .kind = KIN_REQUEST_OFF, .min = low, .max = high }
#define KIN_ROW_OTHER(name_, read_)                                                                                              \
    { .name = name_, .kind = KIN_REQUEST_OTHER, .read = read_ }

static inline kin_fields kin_request_body(const kin_request *r) {
    return (kin_fields){.json = r->body, .index = -1};
}

// Reads the fields of the table into the request. Strings stay in its body. 400 at the first wrong field.
int kin_request_fields_read(kin_request *r, const kin_request_field *fields, kin_api_error *err);

// 400 "Field 'NAME': type must be EXPECTED, but is ...".
int kin_request_type_error(kin_api_error *err, const char *name, const char *expected, const json_t *value);
// Reads a whole number within the bounds, which are less than 2^53; 400 otherwise.
int kin_request_whole(const char *name, const json_t *value, double min, double max, int64_t *out, kin_api_error *err);
