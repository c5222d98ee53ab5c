#include "observe/facts_fields.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "pure/proto/label.h"

static const char *const os_names[] = {
    [KIN_OS_LINUX] = "linux", [KIN_OS_MACOS] = "macos",     [KIN_OS_ANDROID] = "android",
    [KIN_OS_OTHER] = "other", [KIN_OS_BROWSER] = "browser", [KIN_OS_BROWSER_GPU] = "browser-gpu"};

enum { N_OS = sizeof os_names / sizeof *os_names };

const char *kin_os_name(kin_os os) {
    return os_names[os];
}

// ---- one value, read

static int read_number(const json_t *json, double *value, kin_err *err) {
    if (!json_is_number(json)) return kin_err_set(err, "must be a number");
    *value = json_number_value(json);
    return 0;
}

static int read_size(const json_t *json, double *value, kin_err *err) {
    uint64_t bytes;
    if (!json_is_string(json)) return json_is_number(json) ? read_number(json, value, err) : kin_err_set(err, "must be a size");
    if (kin_size_parse(json_string_value(json), &bytes, err) != 0) return KIN_FAIL;
    *value = (double)bytes;
    return 0;
}

static int read_count(const json_t *json, int *value, kin_err *err) {
    if (!json_is_integer(json)) return kin_err_set(err, "must be a whole number");
    json_int_t n = json_integer_value(json);
    if (n < INT_MIN || n > INT_MAX) return kin_err_set(err, "%" JSON_INTEGER_FORMAT " is too large", n);
    *value = (int)n;
    return 0;
}

static int read_flag(const json_t *json, bool *value, kin_err *err) {
    if (!json_is_boolean(json)) return kin_err_set(err, "must be true or false");
    *value = json_is_true(json);
    return 0;
}

static int read_name(const json_t *json, char name[KIN_FACTS_MAX_NAME], kin_err *err) {
    const char *text = json_string_value(json);
    if (!text || !text[0]) return kin_err_set(err, "must be a name");
    if (strlen(text) >= KIN_FACTS_MAX_NAME)
        return kin_err_set(err, "'%.40s...' is longer than %d bytes", text, KIN_FACTS_MAX_NAME - 1);
    if (!kin_label_is_clean(text, strlen(text))) return kin_err_set(err, "must be a name without control characters");
    snprintf(name, KIN_FACTS_MAX_NAME, "%s", text);
    return 0;
}

static int read_os(const json_t *json, kin_os *os, kin_err *err) {
    const char *text = json_string_value(json);
    for (int i = 0; text && i < N_OS; i++) {
        if (strcmp(text, os_names[i]) != 0) continue;
        *os = (kin_os)i;
        return 0;
    }
    return kin_err_set(err, "must be \"linux\", \"macos\", \"android\", \"browser\", \"browser-gpu\" or \"other\"");
}

static int find_quant(const char *name) {
    int q = 0;
    while (q < KIN_N_QUANT && strcmp(name, kin_quant_name((kin_quant)q)) != 0) q++;
    return q;
}

static int read_types(const json_t *json, double values[KIN_N_QUANT], kin_err *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(json)) return kin_err_set(err, "must be an object with a number for each weight type, {\"Q4_K\": 1e9}");
    json_object_foreach((json_t *)json, name, value) {
        int q = find_quant(name);
        if (q == KIN_N_QUANT) return kin_err_set(err, "\"%s\" is not a weight type (such as F16, Q8_0, Q4_K or \"other\")", name);
        if (read_number(value, &values[q], err) != 0) return kin_err_prefix(err, "\"%s\"", name);
    }
    return 0;
}

static int read_rates(const json_t *json, double values[KIN_N_QUANT], kin_err *err) {
    if (json_is_number(json)) {
        for (int q = 0; q < KIN_N_QUANT; q++) values[q] = json_number_value(json);
        return 0;
    }
    if (!json_is_object(json)) return kin_err_set(err, "must be a number, or an object with one for each type, {\"Q4_K\": 45e9}");
    return read_types(json, values, err);
}

static int read_value(const json_t *json, kin_field_kind kind, void *to, kin_err *err) {
    switch (kind) {
    case KIN_FIELD_NUMBER: return read_number(json, to, err);
    case KIN_FIELD_SIZE: return read_size(json, to, err);
    case KIN_FIELD_COUNT: return read_count(json, to, err);
    case KIN_FIELD_FLAG: return read_flag(json, to, err);
    case KIN_FIELD_NAME: return read_name(json, to, err);
    case KIN_FIELD_OS: return read_os(json, to, err);
    case KIN_FIELD_TYPES: return read_types(json, to, err);
    case KIN_FIELD_RATES: return read_rates(json, to, err);
    case KIN_FIELD_ABOUT: return json_is_string(json) ? 0 : kin_err_set(err, "must be a string");
    case KIN_FIELD_INSIDE:
    case KIN_FIELD_END: break;
    }
    return 0;
}

// ---- a table, read

static int check_keys(const json_t *object, const kin_field *fields, kin_err *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const kin_field *f = fields;
        while (f->kind != KIN_FIELD_END && strcmp(f->key, key) != 0) f++;
        if (f->kind == KIN_FIELD_END) return kin_err_set(err, "\"%s\" is unknown here", key);
    }
    return 0;
}

static void set_missing(const kin_field *f, void *at) {
    if (f->kind == KIN_FIELD_NUMBER) *(double *)at = f->missing;
    if (f->kind == KIN_FIELD_COUNT) *(int *)at = (int)f->missing;
}

int kin_fields_read(const json_t *object, const kin_field *fields, void *to, kin_err *err) {
    if (!json_is_object(object)) return kin_err_set(err, "must be an object, {...}");
    if (check_keys(object, fields, err) != 0) return KIN_FAIL;
    for (const kin_field *f = fields; f->kind != KIN_FIELD_END; f++) {
        const json_t *value = json_object_get(object, f->key);
        void *at = (char *)to + f->offset;
        if (!value && f->must) return kin_err_set(err, "\"%s\" is missing", f->key);
        if (!value)
            set_missing(f, at);
        else if (read_value(value, f->kind, at, err) != 0)
            return kin_err_prefix(err, "\"%s\"", f->key);
    }
    return 0;
}

int kin_fields_inside(const json_t *object, const char *key, json_type type, bool must, const json_t **inside, kin_err *err) {
    *inside = json_object_get(object, key);
    if (!*inside && must) return kin_err_set(err, "\"%s\" is missing", key);
    if (*inside && json_typeof(*inside) != type)
        return kin_err_set(err, "\"%s\": must be %s", key, type == JSON_ARRAY ? "a list, [...]" : "an object, {...}");
    return 0;
}

// ---- writing

static json_t *number(double value) {
    return json_real(value); // NULL for numbers that JSON does not have
}

// Writes whole numbers of bytes as integers, for programs that read the file.
static json_t *size(double value) {
    return fabs(value) < 0x1p53 && value == trunc(value) ? json_integer((json_int_t)value) : number(value);
}

static json_t *types(const double values[KIN_N_QUANT]) {
    json_t *object = json_object();
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (values[q] == 0) continue;
        if (json_object_set_new(object, kin_quant_name((kin_quant)q), number(values[q])) == 0) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *rates(const double values[KIN_N_QUANT]) {
    bool same = true;
    for (int q = 1; q < KIN_N_QUANT; q++) same = same && values[q] == values[0];
    return same ? number(values[0]) : types(values);
}

static json_t *value_of(const kin_field *f, const void *at) {
    switch (f->kind) {
    case KIN_FIELD_NUMBER: return number(*(const double *)at);
    case KIN_FIELD_SIZE: return size(*(const double *)at);
    case KIN_FIELD_COUNT: return json_integer(*(const int *)at);
    case KIN_FIELD_FLAG: return json_boolean(*(const bool *)at);
    case KIN_FIELD_NAME: return json_string(at);
    case KIN_FIELD_OS: return json_string(os_names[*(const kin_os *)at]);
    case KIN_FIELD_TYPES: return types(at);
    case KIN_FIELD_RATES: return rates(at);
    case KIN_FIELD_INSIDE:
    case KIN_FIELD_ABOUT:
    case KIN_FIELD_END: break;
    }
    return NULL;
}

// True if reading a file without the field gives the same value.
static bool is_default(const kin_field *f, const void *at) {
    if (f->must) return false;
    switch (f->kind) {
    case KIN_FIELD_NUMBER: return *(const double *)at == f->missing;
    case KIN_FIELD_SIZE: return *(const double *)at == 0;
    case KIN_FIELD_FLAG: return !*(const bool *)at;
    case KIN_FIELD_TYPES:
    case KIN_FIELD_RATES:
        for (int q = 0; q < KIN_N_QUANT; q++) {
            if (((const double *)at)[q] != 0) return false;
        }
        return true;
    default: return f->kind == KIN_FIELD_ABOUT || f->kind == KIN_FIELD_INSIDE;
    }
}

int kin_fields_write(json_t *object, const kin_field *fields, const void *from, kin_err *err) {
    for (const kin_field *f = fields; f->kind != KIN_FIELD_END; f++) {
        const void *at = (const char *)from + f->offset;
        if (f->kind == KIN_FIELD_INSIDE || is_default(f, at)) continue;
        if (json_object_set_new(object, f->key, value_of(f, at)) != 0)
            return kin_err_set(err, "\"%s\" cannot be written as JSON", f->key);
    }
    return 0;
}
