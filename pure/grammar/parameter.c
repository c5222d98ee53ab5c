#include "pure/grammar/parameter.h"

#include <string.h>

#include "pure/text/json_scan.h"

enum { MAX_DEPTH = 8, MAX_STEPS = 4096 }; // nested references and combinations; schemas examined for one parameter

// ---- types

static unsigned type_named(kin_str name) {
    static const struct {
        const char *name;
        unsigned types;
    } all[] = {{"string", KIN_TYPE_STRING}, {"integer", KIN_TYPE_INTEGER}, {"number", KIN_TYPE_NUMBER},
               {"object", KIN_TYPE_OBJECT}, {"array", KIN_TYPE_ARRAY},     {"boolean", KIN_TYPE_BOOLEAN},
               {"null", KIN_TYPE_NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (kin_str_eq(name, all[i].name)) return all[i].types;
    }
    return 0;
}

static unsigned type_of(const kin_json_value *value) {
    switch (value->kind) {
    case KIN_JSON_NULL: return KIN_TYPE_NULL;
    case KIN_JSON_FALSE:
    case KIN_JSON_TRUE: return KIN_TYPE_BOOLEAN;
    case KIN_JSON_NUMBER:
        for (size_t i = 0; i < value->text.len; i++) {
            if (memchr(".eE", value->text.at[i], 3)) return KIN_TYPE_FRACTION;
        }
        return KIN_TYPE_INTEGER;
    case KIN_JSON_STRING: return KIN_TYPE_STRING;
    case KIN_JSON_ARRAY: return KIN_TYPE_ARRAY;
    case KIN_JSON_OBJECT: return KIN_TYPE_OBJECT;
    }
    return 0;
}

typedef struct walk {
    const kin_json *json;
    int depth, n_steps;
} walk;

static unsigned types_at(walk *w, const kin_json_value *schema);

static unsigned types_of_any(walk *w, const kin_json_value *schemas) {
    unsigned types = 0;
    for (const kin_json_value *v = kin_json_first(w->json, schemas); v; v = kin_json_next(w->json, v)) types |= types_at(w, v);
    return types;
}

static unsigned types_of_all(walk *w, const kin_json_value *schemas) {
    unsigned types = KIN_TYPE_ALL;
    for (const kin_json_value *v = kin_json_first(w->json, schemas); v; v = kin_json_next(w->json, v)) types &= types_at(w, v);
    return types;
}

static unsigned types_of_reference(walk *w, kin_str ref) {
    if (ref.len == 0 || ref.at[0] != '#') return KIN_TYPE_ALL;
    const kin_json_value *v = kin_json_pointer(w->json, w->json->values, ref.at + 1, ref.len - 1);
    return v ? types_at(w, v) : KIN_TYPE_ALL;
}

static unsigned types_of_values(const kin_json *json, const kin_json_value *values) {
    unsigned types = 0;
    for (const kin_json_value *v = kin_json_first(json, values); v; v = kin_json_next(json, v)) types |= type_of(v);
    return types;
}

static unsigned types_named(walk *w, const kin_json_value *type) {
    unsigned types = 0;
    if (type->kind == KIN_JSON_STRING) return type_named(type->text);
    for (const kin_json_value *v = kin_json_first(w->json, type); v; v = kin_json_next(w->json, v)) types |= type_named(v->text);
    return types;
}

static unsigned types_at(walk *w, const kin_json_value *schema) {
    unsigned types = KIN_TYPE_ALL;
    if (w->depth == MAX_DEPTH || w->n_steps == MAX_STEPS) return types;
    w->depth++;
    w->n_steps++;
    for (const kin_json_value *v = kin_json_first(w->json, schema); v; v = kin_json_next(w->json, v)) {
        if (kin_str_eq(v->key, "type"))
            types &= types_named(w, v);
        else if (kin_str_eq(v->key, "enum"))
            types &= types_of_values(w->json, v);
        else if (kin_str_eq(v->key, "const"))
            types &= type_of(v);
        else if (kin_str_eq(v->key, "anyOf") || kin_str_eq(v->key, "oneOf"))
            types &= types_of_any(w, v);
        else if (kin_str_eq(v->key, "allOf"))
            types &= types_of_all(w, v);
        else if (kin_str_eq(v->key, "$ref"))
            types &= types_of_reference(w, v->text);
    }
    w->depth--;
    return types;
}

unsigned kin_parameter_types(const kin_json *json, const kin_json_value *schema) {
    walk w = {.json = json};
    unsigned types = types_at(&w, schema);
    return types ? types : KIN_TYPE_ALL;
}

static bool has_parameters(const kin_json *json, const kin_json_value *schema) {
    return kin_json_get(json, schema, "properties", strlen("properties")) ||
           kin_json_get(json, schema, "required", strlen("required"));
}

const kin_json_value *kin_parameter_root(const kin_json *json) {
    const kin_json_value *root = json->values, *ref;
    for (int i = 0; i < MAX_DEPTH && !has_parameters(json, root); i++) {
        ref = kin_json_get(json, root, "$ref", strlen("$ref"));
        if (!ref || ref->kind != KIN_JSON_STRING || ref->text.len == 0 || ref->text.at[0] != '#') break;
        const kin_json_value *to = kin_json_pointer(json, json->values, ref->text.at + 1, ref->text.len - 1);
        if (!to) break;
        root = to;
    }
    return root;
}

// ---- values

// True if a text that parses as this JSON value should become that value.
static bool is_meant(unsigned types, const kin_json_value *value) {
    static const unsigned beside_strings = KIN_TYPE_NULL | KIN_TYPE_OBJECT | KIN_TYPE_ARRAY;
    unsigned type = type_of(value);
    if (type == KIN_TYPE_NULL && !(types & KIN_TYPE_STRING)) return true;
    if (types & KIN_TYPE_STRING) types &= beside_strings;
    return (types & type) || (type == KIN_TYPE_FRACTION && types & KIN_TYPE_INTEGER); // 1.0, 1e3
}

static const char *python_word(unsigned types, kin_str text) {
    if (types & KIN_TYPE_STRING) return NULL;
    if (types & KIN_TYPE_BOOLEAN && kin_str_eq(text, "True")) return "true";
    if (types & KIN_TYPE_BOOLEAN && kin_str_eq(text, "False")) return "false";
    return kin_str_eq(text, "None") ? "null" : NULL;
}

// True for an object or an array of these types that kin_json_parse rejects, for example because a key occurs twice. In formats
// whose arguments are JSON it is passed on as it is too.
static bool is_nested(unsigned types, kin_str text) {
    static const char member[] = "{\"\":"; // the scanner reads objects, so the value is scanned as a member of one
    enum { OUTSIDE = 1 };                  // depth before and after the value
    kin_json_scan s = {0};
    size_t i = 0;
    for (const char *c = member; *c; c++) kin_json_scan_push(&s, *c);
    while (i < text.len && kin_is_space(text.at[i])) i++;
    if (i == text.len || !(text.at[i] == '{' ? types & KIN_TYPE_OBJECT : text.at[i] == '[' ? types & KIN_TYPE_ARRAY : 0))
        return false;
    do {
        if (!kin_json_scan_push(&s, text.at[i++])) return false;
    } while (i < text.len && s.depth > OUTSIDE);
    while (i < text.len && kin_is_space(text.at[i])) i++;
    return i == text.len && s.depth == OUTSIDE;
}

void kin_parameter_put(const kin_json *json, const kin_json_value *schema, kin_str name, kin_str text, kin_text_buffer *out) {
    unsigned types = KIN_TYPE_ALL;
    kin_json value;
    const kin_json_value *property = NULL;
    const kin_json_value *properties = schema ? kin_json_get(json, schema, "properties", strlen("properties")) : NULL;
    if (properties) property = kin_json_get(json, properties, name.at, name.len);
    if (schema && !property) property = kin_json_get(json, schema, "additionalProperties", strlen("additionalProperties"));
    if (property) types = kin_parameter_types(json, property);
    const char *word = python_word(types, text);
    if (word) {
        kin_text_put(out, word, strlen(word));
        return;
    }
    if (types != KIN_TYPE_STRING && kin_json_parse(&value, text.at, text.len, NULL) == 0) {
        bool meant = is_meant(types, value.values);
        if (meant) kin_json_write(&value, value.values, out);
        kin_json_fini(&value);
        if (meant) return;
    } else if (types != KIN_TYPE_STRING && is_nested(types, text)) {
        kin_text_put(out, text.at, text.len);
        return;
    }
    kin_json_write_string(text, out);
}
