#include "pure/grammar/schema_combine.h"

#include <stdlib.h>
#include <string.h>

#include "pure/grammar/schema_string.h"

enum { MAX_WORDS = 128 };

static const char schema_words[] = // supported or checked
    " $ref allOf anyOf oneOf type enum const properties required additionalProperties items prefixItems additionalItems minItems "
    "maxItems "
    "minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum uniqueItems minProperties "
    "maxProperties "
    "unevaluatedProperties propertyNames not multipleOf ";
static const char annotations[] = // from JSON schema, OpenAPI, editors, form generators, and programs that write schemas
    " title description default examples example $schema $id id $comment $defs definitions $anchor $vocabulary $dynamicAnchor "
    "deprecated readOnly writeOnly nullable contentMediaType contentEncoding contentSchema discriminator externalDocs xml "
    "markdownDescription markdownEnumDescriptions enumDescriptions enumNames enumTitles enumItemLabels errorMessage "
    "patternErrorMessage deprecationMessage doNotSuggest suggestSortText defaultSnippets allowComments allowTrailingCommas "
    "propertyOrdering propertyOrder tsType tsEnumNames javaType faker meta metadata options order scope tags group label "
    "placeholder widget hint help unit units version ";

static bool is_listed(const char *words, kin_str word) {
    char padded[40] = " ";
    if (word.len == 0 || word.len > sizeof padded - 3 || memchr(word.at, ' ', word.len) || memchr(word.at, '\0', word.len))
        return false;
    memcpy(padded + 1, word.at, word.len);
    memcpy(padded + 1 + word.len, " ", 2);
    return strstr(words, padded) != NULL;
}

// ---- places and errors

const char *kin_schema_path(const kin_json *json, const kin_json_value *value, char *path, size_t size) {
    char *at = path + size - 1;
    *at = '\0';
    for (; value != json->values; value = &json->values[value->parent]) {
        char number[12];
        kin_str key = value->key;
        if (json->values[value->parent].kind == KIN_JSON_ARRAY) {
            unsigned index = 0;
            for (const kin_json_value *v = kin_json_first(json, &json->values[value->parent]); v != value;
                 v = kin_json_next(json, v))
                index++;
            int n = 0;
            do number[sizeof number - 1 - (size_t)n++] = (char)('0' + index % 10);
            while ((index /= 10) > 0);
            key = (kin_str){number + sizeof number - (size_t)n, (size_t)n};
        }
        if (key.len + 3 > (size_t)(at - path)) break;
        at -= key.len;
        memcpy(at, key.at, key.len);
        *--at = '/';
    }
    *--at = '#';
    return at;
}

static int fail_schema(const kin_json *json, const kin_json_value *value, kin_err *err, const char *what) {
    char path[160];
    return kin_err_set(err, "schema: %s: %s", kin_schema_path(json, value, path, sizeof path), what);
}

// Writes printable ASCII only: a reason may quote a pattern, which is untrusted.
static void put_printable(const char *at, size_t len, kin_text_buffer *to) {
    for (size_t i = 0; i < len; i++) kin_text_print(to, "%c", at[i] >= 0x20 && at[i] < 0x7f && at[i] != ';' ? at[i] : '?');
}

static bool is_in(const kin_text_buffer *all, const kin_text_buffer *one) {
    for (size_t i = 0; i + one->len <= all->len; i++) {
        if (memcmp(all->at + i, one->at, one->len) == 0) return true;
    }
    return false;
}

int kin_schema_relax(const kin_json *json, const kin_schema_list *list, const kin_json_value *word, const char *why,
                     kin_err *err) {
    char buffer[160];
    kin_text_buffer note = {0};
    if (!list->relaxed) return fail_schema(json, word, err, why);
    const char *path = kin_schema_path(json, word, buffer, sizeof buffer);
    put_printable(path, strlen(path), &note);
    kin_text_print(&note, " (");
    put_printable(why, strlen(why), &note);
    kin_text_print(&note, ")");
    if (note.failed) {
        list->relaxed->failed = true;
    } else if (list->relaxed->len + note.len + 2 <= KIN_SCHEMA_MAX_RELAXED && !is_in(list->relaxed, &note)) {
        if (list->relaxed->len > 0) kin_text_print(list->relaxed, "; ");
        kin_text_put(list->relaxed, note.at, note.len);
    }
    kin_text_fini(&note);
    return 0;
}

// ---- single keywords

static const kin_json_value *word_of(const kin_json *json, const kin_json_value *schema, const char *word) {
    return kin_json_get(json, schema, word, strlen(word));
}

const kin_json_value *kin_schema_word(const kin_json *json, const kin_schema_list *list, uint32_t i, const char *word) {
    return word_of(json, kin_schema_at(json, list, i), word);
}

static bool is_schema(const kin_json_value *value) {
    return value->kind == KIN_JSON_OBJECT || value->kind == KIN_JSON_TRUE || value->kind == KIN_JSON_FALSE;
}

static bool all_are(const kin_json *json, const kin_json_value *of, bool (*is)(const kin_json_value *)) {
    for (const kin_json_value *v = kin_json_first(json, of); v; v = kin_json_next(json, v)) {
        if (!is(v)) return false;
    }
    return true;
}

static bool is_string(const kin_json_value *value) {
    return value->kind == KIN_JSON_STRING;
}

static bool is_word(kin_str key, const char *words) {
    return is_listed(words, key);
}

// True if the value has the type that its keyword requires.
static bool is_well_formed(const kin_json *json, const kin_json_value *v) {
    if (is_word(v->key, " allOf anyOf oneOf ")) return v->kind == KIN_JSON_ARRAY && v->n > 0 && all_are(json, v, is_schema);
    if (is_word(v->key, " prefixItems ")) return v->kind == KIN_JSON_ARRAY && all_are(json, v, is_schema);
    if (is_word(v->key, " properties ")) return v->kind == KIN_JSON_OBJECT && all_are(json, v, is_schema);
    if (is_word(v->key, " items ")) return is_schema(v) || (v->kind == KIN_JSON_ARRAY && all_are(json, v, is_schema));
    if (is_word(v->key, " additionalProperties additionalItems propertyNames not ")) return is_schema(v);
    if (is_word(v->key, " required ")) return v->kind == KIN_JSON_ARRAY && all_are(json, v, is_string);
    if (is_word(v->key, " enum ")) return v->kind == KIN_JSON_ARRAY && v->n > 0;
    if (is_word(v->key, " type "))
        return v->kind == KIN_JSON_STRING || (v->kind == KIN_JSON_ARRAY && v->n > 0 && all_are(json, v, is_string));
    if (is_word(v->key, " $ref pattern format ")) return v->kind == KIN_JSON_STRING;
    if (is_word(v->key, " uniqueItems unevaluatedProperties ")) return v->kind == KIN_JSON_TRUE || v->kind == KIN_JSON_FALSE;
    return is_word(v->key, " const ") || v->kind == KIN_JSON_NUMBER;
}

static bool is_annotation(kin_str key) {
    static const char *const prefixes[] = {"x-", "ui:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (key.len > n && memcmp(key.at, prefixes[i], n) == 0) return true;
    }
    return is_listed(annotations, key);
}

// True for a schema for which all values are valid.
static bool is_any(const kin_json_value *value) {
    return value->kind == KIN_JSON_TRUE || (value->kind == KIN_JSON_OBJECT && value->n == 0);
}

static bool is_always_supported(const kin_json_value *v) {
    if (is_word(v->key, " uniqueItems ")) return v->kind == KIN_JSON_FALSE;
    return !is_word(v->key, " not ") || is_any(v) || v->kind == KIN_JSON_FALSE;
}

static int check_words(const kin_json *json, const kin_schema_list *list, const kin_json_value *schema, kin_err *err) {
    if (schema->n > MAX_WORDS) return fail_schema(json, schema, err, "a schema has more than 128 keywords");
    for (const kin_json_value *v = kin_json_first(json, schema); v; v = kin_json_next(json, v)) {
        bool is_known = is_listed(schema_words, v->key);
        if (is_annotation(v->key)) continue;
        if (!is_known) {
            if (kin_schema_relax(json, list, v, "this keyword is not supported", err) != 0) return KIN_FAIL;
            continue;
        }
        if (!is_well_formed(json, v)) return fail_schema(json, v, err, "the value has the wrong type");
        if (!is_always_supported(v) &&
            kin_schema_relax(json, list, v,
                             is_word(v->key, " not ") ? "this keyword is only supported with a schema that accepts everything"
                                                      : "a grammar cannot compare items; omit it and check the result",
                             err) != 0)
            return KIN_FAIL;
        if (is_word(v->key, " additionalItems ") && !word_of(json, schema, "items"))
            return fail_schema(json, v, err, "it needs an array 'items'");
    }
    return 0;
}

// ---- lists

int kin_schema_list_add(kin_schema_list *list, const kin_json *json, const kin_json_value *schema, kin_err *err) {
    uint32_t entry = (uint32_t)(schema - json->values) * 4;
    if (schema->kind == KIN_JSON_FALSE) list->impossible = true;
    if (schema->kind == KIN_JSON_FALSE || schema->kind == KIN_JSON_TRUE || (schema->kind == KIN_JSON_OBJECT && schema->n == 0))
        return 0;
    if (schema->kind != KIN_JSON_OBJECT) return fail_schema(json, schema, err, "a schema must be an object, true or false");
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->entries[i] / 4 == entry / 4) return 0;
    }
    if (list->n == KIN_SCHEMA_MAX_COMBINED) return fail_schema(json, schema, err, "more than 32 schemas apply at once");
    list->entries[list->n++] = entry;
    const kin_json_value *not = word_of(json, schema, "not");
    if (not &&is_any(not )) list->impossible = true;
    return check_words(json, list, schema, err);
}

static int resolve(const kin_json *json, const kin_json_value *ref, const kin_json_value **target) {
    bool is_local = ref->text.len > 0 && ref->text.at[0] == '#';
    *target = is_local ? kin_json_pointer(json, json->values, ref->text.at + 1, ref->text.len - 1) : NULL;
    return *target ? 0 : KIN_FAIL;
}

// True if a schema is within the other one and applies to the same value: only allOf, anyOf and oneOf are in between.
static bool is_within(const kin_json *json, const kin_json_value *schema, const kin_json_value *other) {
    while (schema != other && schema != json->values && is_word(json->values[schema->parent].key, " allOf anyOf oneOf "))
        schema = &json->values[json->values[schema->parent].parent];
    return schema == other;
}

int kin_schema_list_expand(kin_schema_list *list, const kin_json *json, kin_err *err) {
    uint32_t from[KIN_SCHEMA_MAX_COMBINED] = {0}; // index of the entry that led to this one, plus 1
    for (uint32_t i = 0; i < list->n; i++) {      // the loop may add entries
        const kin_json_value *ref = kin_schema_word(json, list, i, "$ref"), *all = kin_schema_word(json, list, i, "allOf"),
                             *target;
        uint32_t n = list->n;
        for (const kin_json_value *v = all ? kin_json_first(json, all) : NULL; v; v = kin_json_next(json, v)) {
            if (kin_schema_list_add(list, json, v, err) != 0) return KIN_FAIL;
        }
        if (ref && resolve(json, ref, &target) != 0) {
            static const char why[] = "the reference does not exist in this schema (it must be like '#/$defs/...')";
            if (kin_schema_relax(json, list, ref, why, err) != 0) return KIN_FAIL;
        } else if (ref) {
            for (uint32_t k = i + 1; k > 0; k = from[k - 1]) {
                if (is_within(json, kin_schema_at(json, list, k - 1), target))
                    return fail_schema(json, ref, err, "it refers to itself");
            }
            if (kin_schema_list_add(list, json, target, err) != 0) return KIN_FAIL;
        }
        while (n < list->n) from[n++] = i + 1;
    }
    return 0;
}

const kin_json_value *kin_schema_open_choice(const kin_json *json, const kin_schema_list *list, uint32_t *entry, unsigned *flag) {
    for (*entry = 0; *entry < list->n; ++*entry) {
        const kin_json_value *any = kin_schema_word(json, list, *entry, "anyOf"),
                             *one = kin_schema_word(json, list, *entry, "oneOf");
        *flag = KIN_SCHEMA_ANY_OF_CHOSEN;
        if (any && !(list->entries[*entry] & *flag)) return any;
        *flag = KIN_SCHEMA_ONE_OF_CHOSEN;
        if (one && !(list->entries[*entry] & *flag)) return one;
    }
    return NULL;
}

// ---- facts

static unsigned type_named(kin_str name) {
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", KIN_TYPE_NULL},    {"boolean", KIN_TYPE_BOOLEAN}, {"object", KIN_TYPE_OBJECT},
                 {"array", KIN_TYPE_ARRAY},  {"string", KIN_TYPE_STRING},   {"integer", KIN_TYPE_INTEGER},
                 {"number", KIN_TYPE_NUMBER}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (name.len == strlen(types[i].name) && memcmp(name.at, types[i].name, name.len) == 0) return types[i].types;
    }
    return 0;
}

static int read_types(const kin_json *json, const kin_json_value *type, unsigned *types, kin_err *err) {
    unsigned listed = 0;
    for (const kin_json_value *v = type->kind == KIN_JSON_ARRAY ? kin_json_first(json, type) : type; v;
         v = v == type ? NULL : kin_json_next(json, v)) {
        unsigned one = type_named(v->text);
        if (one == 0)
            return fail_schema(json, v, err, "unknown type; must be null, boolean, object, array, string, number or integer");
        listed |= one;
    }
    *types &= listed;
    return 0;
}

// Reads a counting keyword; a count that is too large for any text becomes KIN_COUNT_ANY.
static int read_count(const kin_json *json, const kin_json_value *v, uint32_t *count, kin_err *err) {
    kin_decimal d;
    *count = 0;
    bool is_known = kin_decimal_parse(&d, v->text) == 0, is_small = false; // too many digits before the point, or after it
    for (size_t i = 1; i < v->text.len; i++) is_small |= v->text.at[i] == '-';
    if (v->text.at[0] == '-' || (is_known ? d.n_frac > 0 || d.negative : is_small))
        return fail_schema(json, v, err, "must be a whole number, 0 or more");
    if (!is_known) return *count = KIN_COUNT_ANY, 0;
    for (int i = 0; i < d.n_int; i++) {
        if (*count > (INT32_MAX - 9) / 10) return *count = KIN_COUNT_ANY, 0;
        *count = *count * 10 + (uint32_t)(d.integer[i] - '0');
    }
    return 0;
}

int kin_schema_read_counts(const kin_json *json, const kin_json_value *schema, const char *min_word, const char *max_word,
                           uint32_t *min, uint32_t *max, kin_err *err) {
    const kin_json_value *least = word_of(json, schema, min_word), *most = word_of(json, schema, max_word);
    uint32_t count;
    if (least && read_count(json, least, &count, err) != 0) return KIN_FAIL;
    if (least && count == KIN_COUNT_ANY) return fail_schema(json, least, err, "the number is too large");
    if (least && count > *min) *min = count;
    if (most && read_count(json, most, &count, err) != 0) return KIN_FAIL;
    if (most && count < *max) *max = count;
    return 0;
}

static int narrow_numbers(const kin_json *json, const kin_json_value *schema, kin_schema_facts *facts, kin_err *err) {
    static const char *const words[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    for (int i = 0; i < 4; i++) {
        const kin_json_value *v = word_of(json, schema, words[i]);
        kin_decimal bound;
        if (!v) continue;
        if (kin_decimal_parse(&bound, v->text) != 0) return fail_schema(json, v, err, "a number has more than 40 digits");
        if (i < 2)
            kin_number_range_min(&facts->numbers, &bound, i == 1);
        else
            kin_number_range_max(&facts->numbers, &bound, i == 3);
        facts->has_numbers = true;
    }
    return 0;
}

// Adds the value of the keyword to values [*n], which all apply, unless an equal one is already there.
static int add_value(const kin_json *json, const kin_schema_list *list, const kin_json_value *schema, const char *word,
                     const kin_json_value **values, int *n, int n_max, kin_err *err) {
    const kin_json_value *v = word_of(json, schema, word);
    for (int i = 0; v && i < *n; i++) {
        if (kin_json_equal(json, values[i], v)) return 0;
    }
    if (v && *n == n_max) return kin_schema_relax(json, list, v, "too many such keywords apply at once", err);
    if (v) values[(*n)++] = v;
    return 0;
}

static bool has_any(const kin_json *json, const kin_json_value *schema, const char *words) {
    for (const kin_json_value *v = kin_json_first(json, schema); v; v = kin_json_next(json, v)) {
        if (is_word(v->key, words)) return true;
    }
    return false;
}

static int read_all_counts(const kin_json *json, const kin_json_value *schema, kin_schema_facts *facts, kin_err *err) {
    if (narrow_numbers(json, schema, facts, err) != 0) return KIN_FAIL;
    if (kin_schema_read_counts(json, schema, "minLength", "maxLength", &facts->min_length, &facts->max_length, err) != 0)
        return KIN_FAIL;
    return kin_schema_read_counts(json, schema, "minItems", "maxItems", &facts->min_items, &facts->max_items, err);
}

static int add_format(const kin_json *json, const kin_schema_list *list, const kin_json_value *schema, kin_schema_facts *facts,
                      kin_err *err) {
    const kin_json_value *format = word_of(json, schema, "format");
    int n = facts->format != NULL;
    if (!format || !kin_schema_put_format(format->text, false, NULL)) return 0;
    return add_value(json, list, schema, "format", &facts->format, &n, 1, err);
}

static int add_multiple(const kin_json *json, const kin_schema_list *list, const kin_json_value *schema, kin_schema_facts *facts,
                        kin_err *err) {
    const kin_json_value *v = word_of(json, schema, "multipleOf");
    kin_decimal number;
    if (!v) return 0;
    bool is_known = kin_decimal_parse(&number, v->text) == 0; // otherwise it has too many digits for a grammar, but is no error
    if (v->text.at[0] == '-' || (is_known && number.n_int + number.n_frac == 0))
        return fail_schema(json, v, err, "must be a number above 0");
    return add_value(json, list, schema, "multipleOf", facts->multiples, &facts->n_multiples, KIN_SCHEMA_MAX_MULTIPLES, err);
}

static int add_facts(const kin_json *json, const kin_schema_list *list, const kin_json_value *schema, kin_schema_facts *facts,
                     kin_err *err) {
    const kin_json_value *type = word_of(json, schema, "type");
    if (type && read_types(json, type, &facts->types, err) != 0) return KIN_FAIL;
    facts->has_values |= has_any(json, schema, " enum const ");
    facts->has_object_words |= has_any(json, schema,
                                       " properties required additionalProperties minProperties maxProperties "
                                       "unevaluatedProperties propertyNames ");
    facts->has_array_words |= has_any(json, schema, " items prefixItems minItems maxItems ");
    if (add_format(json, list, schema, facts, err) != 0 || add_multiple(json, list, schema, facts, err) != 0) return KIN_FAIL;
    if (add_value(json, list, schema, "pattern", facts->patterns, &facts->n_patterns, KIN_SCHEMA_MAX_PATTERNS, err) != 0)
        return KIN_FAIL;
    return read_all_counts(json, schema, facts, err);
}

int kin_schema_get_facts(const kin_json *json, const kin_schema_list *list, kin_schema_facts *facts, kin_err *err) {
    *facts = (kin_schema_facts){.types = KIN_TYPE_ALL, .max_length = KIN_COUNT_ANY, .max_items = KIN_COUNT_ANY};
    for (uint32_t i = 0; i < list->n; i++) {
        if (add_facts(json, list, kin_schema_at(json, list, i), facts, err) != 0) return KIN_FAIL;
    }
    if (list->impossible) facts->types = 0;
    return 0;
}

// ---- const and enum

const kin_json_value *kin_schema_values(const kin_json *json, const kin_schema_list *list, bool *is_const) {
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *one = kin_schema_word(json, list, i, "const"), *some = kin_schema_word(json, list, i, "enum");
        *is_const = one != NULL;
        if (one || some) return one ? one : some;
    }
    return NULL;
}

static bool is_among(const kin_json *json, const kin_json_value *value, const kin_json_value *some) {
    for (const kin_json_value *v = kin_json_first(json, some); v; v = kin_json_next(json, v)) {
        if (kin_json_equal(json, v, value)) return true;
    }
    return false;
}

static unsigned type_of(const kin_json_value *value) {
    static const unsigned types[] = {KIN_TYPE_NULL,   KIN_TYPE_BOOLEAN, KIN_TYPE_BOOLEAN, KIN_TYPE_NUMBER,
                                     KIN_TYPE_STRING, KIN_TYPE_ARRAY,   KIN_TYPE_OBJECT};
    kin_decimal d;
    if (value->kind != KIN_JSON_NUMBER || kin_decimal_parse(&d, value->text) != 0) return types[value->kind];
    return d.n_frac > 0 ? KIN_TYPE_FRACTION : KIN_TYPE_INTEGER;
}

static uint32_t n_chars(kin_str text) {
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((uint8_t)text.at[i] & 0xc0) != 0x80;
    return n;
}

int kin_schema_value_fits(const kin_json *json, const kin_schema_list *list, const kin_schema_facts *facts,
                          const kin_json_value *value, bool *fits, kin_err *err) {
    kin_decimal number;
    *fits = type_of(value) & facts->types;
    for (uint32_t i = 0; i < list->n && *fits; i++) {
        const kin_json_value *one = kin_schema_word(json, list, i, "const"), *some = kin_schema_word(json, list, i, "enum");
        bool is_own = some && &json->values[value->parent] == some;
        *fits = (!one || one == value || kin_json_equal(json, one, value)) && (!some || is_own || is_among(json, value, some));
    }
    if (!*fits) return 0;
    if (value->kind == KIN_JSON_NUMBER && facts->has_numbers) {
        if (kin_decimal_parse(&number, value->text) != 0)
            return fail_schema(json, value, err, "a number has more than 40 digits");
        *fits = kin_number_range_has(&facts->numbers, &number);
    }
    for (int i = 0; value->kind == KIN_JSON_NUMBER && i < facts->n_multiples && *fits; i++) {
        kin_decimal of;
        if (kin_decimal_parse(&number, value->text) != 0 || kin_decimal_parse(&of, facts->multiples[i]->text) != 0) continue;
        *fits = kin_decimal_is_multiple(&number, &of);
    }
    if (value->kind == KIN_JSON_STRING)
        *fits = n_chars(value->text) >= facts->min_length && n_chars(value->text) <= facts->max_length;
    bool is_open = (value->kind == KIN_JSON_STRING && (facts->n_patterns > 0 || facts->format)) ||
                   (value->kind == KIN_JSON_OBJECT && facts->has_object_words) ||
                   (value->kind == KIN_JSON_ARRAY && facts->has_array_words);
    static const char why[] = "const or enum cannot be combined with other keywords about the same value";
    return is_open ? kin_schema_relax(json, list, value, why, err) : 0;
}

// ---- objects

// Returns the names that propertyNames of entry i lists, as an array; NULL: none.
static const kin_json_value *listed_names(const kin_json *json, const kin_schema_list *list, uint32_t i) {
    const kin_json_value *names = kin_schema_word(json, list, i, "propertyNames");
    return names && names->kind == KIN_JSON_OBJECT ? word_of(json, names, "enum") : NULL;
}

static bool same(kin_str a, kin_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static bool has_string(const kin_json *json, const kin_json_value *array, kin_str text) {
    for (const kin_json_value *v = kin_json_first(json, array); v; v = kin_json_next(json, v)) {
        if (v->kind == KIN_JSON_STRING && same(v->text, text)) return true;
    }
    return false;
}

int kin_schema_property(const kin_json *json, const kin_schema_list *list, kin_str name, kin_schema_list *out, kin_err *err) {
    *out = (kin_schema_list){.relaxed = list->relaxed};
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *names = listed_names(json, list, i);
        if (names && !has_string(json, names, name)) out->impossible = true;
        const kin_json_value *properties = kin_schema_word(json, list, i, "properties");
        const kin_json_value *property = properties ? kin_json_get(json, properties, name.at, name.len) : NULL;
        if (!property) property = kin_schema_word(json, list, i, "additionalProperties");
        if (property && kin_schema_list_add(out, json, property, err) != 0) return KIN_FAIL;
    }
    return 0;
}

bool kin_schema_requires(const kin_json *json, const kin_schema_list *list, kin_str name) {
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *required = kin_schema_word(json, list, i, "required");
        if (required && has_string(json, required, name)) return true;
    }
    return false;
}

static bool is_named(const kin_str *names, size_t n, kin_str name) {
    for (size_t i = 0; i < n; i++) {
        if (same(names[i], name)) return true;
    }
    return false;
}

int kin_schema_names(const kin_json *json, const kin_schema_list *list, kin_str **names, size_t *n, kin_err *err) {
    size_t cap = 1;
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *properties = kin_schema_word(json, list, i, "properties"),
                             *required = kin_schema_word(json, list, i, "required"), *listed = listed_names(json, list, i);
        cap += (properties ? properties->n : 0) + (required ? required->n : 0) + (listed ? listed->n : 0);
    }
    *n = 0;
    *names = malloc(cap * sizeof **names);
    if (!*names) return kin_err_set(err, "schema: out of memory");
    for (int round = 0; round < 3; round++) { // listed ones first
        for (uint32_t i = 0; i < list->n; i++) {
            const kin_json_value *from =
                round == 2 ? listed_names(json, list, i) : kin_schema_word(json, list, i, round == 0 ? "properties" : "required");
            for (const kin_json_value *v = from ? kin_json_first(json, from) : NULL; v; v = kin_json_next(json, v)) {
                kin_str name = round == 0 ? v->key : v->text;
                if (round == 2 && v->kind != KIN_JSON_STRING) continue;
                if (!is_named(*names, *n, name)) (*names)[(*n)++] = name;
            }
        }
    }
    return 0;
}

int kin_schema_keys(const kin_json *json, const kin_schema_list *list, size_t n_names, kin_schema_list *out, kin_err *err) {
    *out = (kin_schema_list){.relaxed = list->relaxed};
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *keys = kin_schema_word(json, list, i, "propertyNames");
        if (!keys || keys->kind != KIN_JSON_OBJECT || keys->n == 0 || listed_names(json, list, i)) continue;
        const kin_json_value *type = word_of(json, keys, "type");
        if (type && same(type->text, (kin_str){"string", 6}) && keys->n == 1) continue; // every key is a string
        if (type && same(type->text, (kin_str){"string", 6}) && n_names == 0) {
            if (kin_schema_list_add(out, json, keys, err) != 0) return KIN_FAIL;
        } else if (kin_schema_relax(json, list, keys,
                                    "only a list of names (enum) is supported, or \"type\": \"string\" with its keywords "
                                    "if no names are listed elsewhere",
                                    err) != 0) {
            return KIN_FAIL;
        }
    }
    return 0;
}

int kin_schema_others(const kin_json *json, const kin_schema_list *list, bool *allowed, kin_schema_list *out, kin_err *err) {
    bool is_decided = false, is_closed = false, has_properties = false, has_patterns = false;
    *out = (kin_schema_list){.relaxed = list->relaxed};
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *others = kin_schema_word(json, list, i, "additionalProperties");
        const kin_json_value *properties = kin_schema_word(json, list, i, "properties");
        const kin_json_value *unevaluated = kin_schema_word(json, list, i, "unevaluatedProperties");
        if (others && kin_schema_list_add(out, json, others, err) != 0) return KIN_FAIL;
        is_decided |= others != NULL;
        const kin_json_value *keys = kin_schema_word(json, list, i, "propertyNames");
        is_closed |= listed_names(json, list, i) || (keys && keys->kind == KIN_JSON_FALSE);
        is_decided |= keys != NULL;
        has_patterns |= list->relaxed && kin_schema_word(json, list, i, "patternProperties");
        has_properties |= properties && properties->n > 0;
        is_closed |= unevaluated && unevaluated->kind == KIN_JSON_FALSE;
    }
    if (has_patterns) { // they are not evaluated: any name may match one and have any value
        *out = (kin_schema_list){.relaxed = list->relaxed};
        is_decided = true;
        is_closed = false;
    }
    *allowed = !is_closed && !out->impossible && (is_decided || !has_properties);
    return 0;
}

// ---- arrays

// Returns the schemas of the first items: prefixItems, or items as an array (before draft 2020).
static const kin_json_value *prefix_of(const kin_json *json, const kin_schema_list *list, uint32_t i) {
    const kin_json_value *prefix = kin_schema_word(json, list, i, "prefixItems"),
                         *items = kin_schema_word(json, list, i, "items");
    return prefix ? prefix : items && items->kind == KIN_JSON_ARRAY ? items : NULL;
}

uint32_t kin_schema_n_prefix(const kin_json *json, const kin_schema_list *list) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *prefix = prefix_of(json, list, i);
        if (prefix && prefix->n > n) n = prefix->n;
    }
    return n;
}

int kin_schema_item(const kin_json *json, const kin_schema_list *list, uint32_t index, kin_schema_list *out, kin_err *err) {
    *out = (kin_schema_list){.relaxed = list->relaxed};
    for (uint32_t i = 0; i < list->n; i++) {
        const kin_json_value *prefix = prefix_of(json, list, i), *item = prefix ? kin_json_first(json, prefix) : NULL;
        const kin_json_value *rest = kin_schema_word(json, list, i, "items");
        for (uint32_t k = 0; item && k < index; k++) item = kin_json_next(json, item);
        if (rest && rest->kind == KIN_JSON_ARRAY) rest = kin_schema_word(json, list, i, "additionalItems");
        if (!item) item = rest;
        if (item && kin_schema_list_add(out, json, item, err) != 0) return KIN_FAIL;
    }
    return 0;
}

uint64_t kin_schema_n_members(const kin_json *json, const kin_schema_list *list) {
    static const char *const words[] = {"properties", "required", "prefixItems", "items", "enum", "oneOf"};
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const kin_json_value *v = kin_schema_word(json, list, i, words[k]);
            if (v) n += v->n;
        }
    }
    return n;
}
