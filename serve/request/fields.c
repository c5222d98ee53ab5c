#include "serve/request/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names_of_types[] = {"string", "integer", "number", "boolean", "array", "object"};

int kin_fields_open(kin_fields *out, const json_t *body, kin_api_error *err) {
    *out = (kin_fields){.json = body, .index = -1};
    return json_is_object(body) ? 0 : kin_api_error_set(err, 400, NULL, "the body must be a JSON object");
}

const char *kin_json_type_name(const json_t *json) {
    switch (json_typeof(json)) {
    case JSON_STRING: return "string";
    case JSON_ARRAY: return "array";
    case JSON_OBJECT: return "object";
    case JSON_NULL: return "null";
    case JSON_INTEGER:
    case JSON_REAL: return "number";
    default: return "boolean";
    }
}

static bool has_type(const json_t *json, kin_field_type type) {
    switch (type) {
    case KIN_FIELD_STRING: return json_is_string(json);
    case KIN_FIELD_INTEGER:
        return json_is_integer(json) || (json_is_real(json) && json_real_value(json) == rint(json_real_value(json)));
    case KIN_FIELD_NUMBER: return json_is_number(json);
    case KIN_FIELD_BOOL: return json_is_boolean(json);
    case KIN_FIELD_ARRAY: return json_is_array(json);
    case KIN_FIELD_OBJECT: return json_is_object(json);
    }
    return false;
}

// Writes the path, truncated if it is too long, and returns its length.
static size_t put_path(const kin_fields *of, const char *name, char path[KIN_FIELD_PATH]) {
    size_t n = of->parent ? put_path(of->parent, of->name, path) : 0;
    if (of->index >= 0) n += (size_t)snprintf(path + n, KIN_FIELD_PATH - n, "[%d]", of->index);
    if (n >= KIN_FIELD_PATH) n = KIN_FIELD_PATH - 1;
    if (name) n += (size_t)snprintf(path + n, KIN_FIELD_PATH - n, "%s%s", n ? "." : "", name);
    return n < KIN_FIELD_PATH ? n : KIN_FIELD_PATH - 1;
}

int kin_fields_wrong(const kin_fields *of, const char *name, kin_api_error *err, int status, const char *format, ...) {
    char path[KIN_FIELD_PATH] = "", sentence[384];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    put_path(of, name, path);
    return kin_api_error_set(err, status, path, "Field '%s': %s", path, sentence);
}

const json_t *kin_fields_any(const kin_fields *of, const char *name) {
    const json_t *json = json_object_get(of->json, name);
    return json_is_null(json) ? NULL : json;
}

int kin_fields_get(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err) {
    *out = kin_fields_any(of, name);
    if (!*out || has_type(*out, type)) return 0;
    return kin_fields_wrong(of, name, err, 400, "type must be %s, but is %s", names_of_types[type], kin_json_type_name(*out));
}

int kin_fields_need(const kin_fields *of, const char *name, kin_field_type type, const json_t **out, kin_api_error *err) {
    if (kin_fields_get(of, name, type, out, err) != 0) return KIN_FAIL;
    return *out ? 0 : kin_fields_wrong(of, name, err, 400, "is required");
}

bool kin_fields_is(const kin_fields *of, const char *name, const char *value) {
    const json_t *json = json_object_get(of->json, name);
    return json_is_string(json) && strcmp(json_string_value(json), value) == 0;
}

int kin_fields_object(const kin_fields *of, const char *name, kin_fields *out, kin_api_error *err) {
    *out = (kin_fields){.parent = of, .name = name, .index = -1};
    return kin_fields_get(of, name, KIN_FIELD_OBJECT, &out->json, err);
}

int kin_fields_item(const kin_fields *of, const char *name, const json_t *array, size_t i, kin_fields *out, kin_api_error *err) {
    *out = (kin_fields){.json = json_array_get(array, i), .parent = of, .name = name, .index = (int)i};
    if (json_is_object(out->json)) return 0;
    return kin_fields_wrong(out, NULL, err, 400, "type must be object, but is %s", kin_json_type_name(out->json));
}

void kin_fields_copy_as(const kin_fields *of, const char *name, json_t *to, const char *new_name) {
    const json_t *json = kin_fields_any(of, name);
    if (json) json_object_set(to, new_name, (json_t *)json);
}

void kin_fields_copy(const kin_fields *of, const char *const *names, json_t *to) {
    for (; *names; names++) kin_fields_copy_as(of, *names, to, *names);
}
