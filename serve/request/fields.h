// Typed access to the fields of a request's body, with error messages that name a field by its path: "messages[3].content".
//
// Like all servers of these APIs, treats a null field as absent.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "serve/request/api_error.h"

// An object within a body, with the path to it. Lives on the stack of the code that walks the body.
typedef struct kin_fields {
    const json_t *json;              // an object
    const struct kin_fields *parent; // NULL: this is the body
    const char *name;                // the parent's field
    int index;                       // index within that field if it is an array; -1: the field is the object itself
} kin_fields;

typedef enum kin_field_type {
    KIN_FIELD_STRING,
    KIN_FIELD_INTEGER, // includes 3.0
    KIN_FIELD_NUMBER,
    KIN_FIELD_BOOL,
    KIN_FIELD_ARRAY,
    KIN_FIELD_OBJECT,
} kin_field_type;

enum { KIN_FIELD_PATH = 128 };

// Opens the body, which must be an object.
int kin_fields_open(kin_fields *out, const json_t *body, kin_api_error *err);

// Get a field -> *out, borrowed. 400 if its type differs. If it is absent, get returns NULL in *out, need sets a 400.
int kin_fields_get(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err);
int kin_fields_need(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err);
const json_t *kin_fields_any(const kin_fields *of, const char *name);          // of any type; NULL: absent
bool kin_fields_is(const kin_fields *of, const char *name, const char *value); // true if the field is this string

// Gets the object in a field; out->json is NULL if the field is absent.
int kin_fields_object(const kin_fields *of, const char *name, kin_fields *out, kin_api_error *err);
// Gets item i of the array in a field; 400 if it is not an object.
int kin_fields_item(const kin_fields *of, const char *name, const json_t *array, size_t i, kin_fields *out, kin_api_error *err);

// Sets the error "Field 'PATH': " and the sentence. name NULL: the error is about the object itself. Returns KIN_FAIL.
int kin_fields_wrong(const kin_fields *of, const char *name, kin_api_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// Copies the named fields (the list ends with NULL) without checks.
void kin_fields_copy(const kin_fields *of, const char *const *names, json_t *to);
void kin_fields_copy_as(const kin_fields *of, const char *name, json_t *to, const char *new_name);

// Returns the type's name for messages: "string", "number", "null", ...
const char *kin_json_type_name(const json_t *json);
