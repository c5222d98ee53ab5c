#include "serve/request/request_table.h"

#include <math.h>

int kin_request_type_error(kin_api_error *err, const char *name, const char *expected, const json_t *value) {
    return kin_api_error_set(err, 400, name, "Field '%s': type must be %s, but is %s", name, expected, kin_json_type_name(value));
}

static int bounds_error(kin_api_error *err, const char *name, double min, double max, double value) {
    return kin_api_error_set(err, 400, name, "Field '%s': must be between %.10g and %.10g, but is %.10g", name, min, max, value);
}

int kin_request_whole(const char *name, const json_t *value, double min, double max, int64_t *out, kin_api_error *err) {
    if (!json_is_number(value)) return kin_request_type_error(err, name, "number", value);
    double v = json_number_value(value);
    if (v != floor(v)) return kin_api_error_set(err, 400, name, "Field '%s': must be a whole number, but is %.10g", name, v);
    if (v < min || v > max) return bounds_error(err, name, min, max, v);
    *out = (int64_t)v;
    return 0;
}

static int read_number(kin_request *r, const kin_request_field *f, const json_t *value, kin_api_error *err) {
    void *at = (char *)r + f->offset;
    if (!json_is_number(value)) return kin_request_type_error(err, f->name, "number", value);
    double v = json_number_value(value);
    if (v < f->min || v > f->max) {
        if (f->kind == KIN_REQUEST_OFF)
            return kin_api_error_set(err, 400, f->name, "Field '%s': is not supported. Omit it, or send %g (off)", f->name,
                                     f->max < HUGE_VAL ? f->max : f->min);
        if (f->must_be_between) return bounds_error(err, f->name, f->min, f->max, v);
        v = v < f->min ? f->min : f->max;
    }
    if (f->kind == KIN_REQUEST_FLOAT) *(float *)at = (float)v;
    if (f->kind != KIN_REQUEST_INT && f->kind != KIN_REQUEST_INT64) return 0;
    if (v != floor(v))
        return kin_api_error_set(err, 400, f->name, "Field '%s': must be a whole number, but is %.10g", f->name, v);
    if (f->kind == KIN_REQUEST_INT)
        *(int *)at = (int)v;
    else
        *(int64_t *)at = (int64_t)v;
    return 0;
}

static int read_one(kin_request *r, const kin_request_field *f, json_t *value, kin_api_error *err) {
    void *at = (char *)r + f->offset;
    switch (f->kind) {
    case KIN_REQUEST_BOOL:
        if (!json_is_boolean(value)) return kin_request_type_error(err, f->name, "boolean", value);
        *(bool *)at = json_is_true(value);
        return 0;
    case KIN_REQUEST_STRING:
        if (!json_is_string(value)) return kin_request_type_error(err, f->name, "string", value);
        *(const char **)at = json_string_length(value) > 0 ? json_string_value(value) : NULL;
        return 0;
    case KIN_REQUEST_OTHER: return f->read(r, f->name, value, err);
    default: return read_number(r, f, value, err);
    }
}

int kin_request_fields_read(kin_request *r, const kin_request_field *fields, kin_api_error *err) {
    for (const kin_request_field *f = fields; f->name; f++) {
        json_t *value = json_object_get(r->body, f->name);
        if (value && !json_is_null(value) && read_one(r, f, value, err) < 0) return KIN_FAIL;
    }
    return 0;
}
