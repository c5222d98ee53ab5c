// Fields of a request's body, with their types checked, and sentences that name them by their path: "messages[3].content".
//
// As all servers of these APIs do, a field that is null is taken as one that is not there.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "serve/api_error.h"

// An object within a body, and the way to it. Lives on the stack of who walks the body.
typedef struct kin_fields {
    const json_t *json;              // an object
    const struct kin_fields *parent; // NULL: the body
    const char *name;                // of the parent's field
    int index;                       // in that field, which is an array; -1: it is the object itself
} kin_fields;

typedef enum kin_field_type {
    KIN_FIELD_STRING,
    KIN_FIELD_INTEGER, // 3.0 is one too
    KIN_FIELD_NUMBER,
    KIN_FIELD_BOOL,
    KIN_FIELD_ARRAY,
    KIN_FIELD_OBJECT,
} kin_field_type;

enum { KIN_FIELD_PATH = 128 };

// The body, which must be an object.
int kin_fields_open(kin_fields *out, const json_t *body, kin_api_error *err);

// *out: the field, borrowed; NULL: not there. Another type than that is 400.
int kin_fields_get(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err);
int kin_fields_need(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err); // 400
const json_t *kin_fields_any(const kin_fields *of, const char *name);          // of any type; NULL: not there
bool kin_fields_is(const kin_fields *of, const char *name, const char *value); // it is a string, and that one

// The object in the field; out->json is NULL if it is not there.
int kin_fields_object(const kin_fields *of, const char *name, kin_fields *out, kin_api_error *err);
// Item i of the array in the field, which must be an object.
int kin_fields_item(const kin_fields *of, const char *name, const json_t *array, size_t i, kin_fields *out, kin_api_error *err);

// What is wrong with the field (of the object itself: name NULL): "Field 'PATH': " and the sentence. Returns KIN_FAIL.
int kin_fields_wrong(const kin_fields *of, const char *name, kin_api_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// The fields of these names (the last is NULL) as they are, whatever they are.
void kin_fields_copy(const kin_fields *of, const char *const *names, json_t *to);
void kin_fields_copy_as(const kin_fields *of, const char *name, json_t *to, const char *new_name);

// "string", "number", "null", ...: as sentences say it.
const char *kin_json_type_name(const json_t *json);
