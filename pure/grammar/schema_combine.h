// Combined schemas: evaluates a list of subschemas that all apply to one value, after references and allOf.
//
// A list is a set of places in a JSON tree. Expanding it follows $ref and allOf and checks every keyword of every schema. anyOf
// and oneOf are left: the caller tries their alternatives one by one, each together with the rest of the list.
#pragma once

#include "pure/grammar/schema_number.h"
#include "pure/text/json.h"
#include "pure/text/text_buffer.h"

#define KIN_COUNT_ANY UINT32_MAX // no upper bound

enum {
    KIN_SCHEMA_MAX_COMBINED = 32, // schemas that apply at one place
    KIN_SCHEMA_MAX_PATTERNS = 8,  // in all of them
    KIN_SCHEMA_MAX_MULTIPLES = 4,
    KIN_SCHEMA_MAX_STATES = 45000, // total over the automata of all strings and numbers that combine several keywords
    KIN_SCHEMA_MAX_RELAXED = 1000, // bytes of the list of ignored keywords
};

enum { // flags of an entry: an alternative of the keyword was chosen
    KIN_SCHEMA_ANY_OF_CHOSEN = 1,
    KIN_SCHEMA_ONE_OF_CHOSEN = 2,
};

typedef struct kin_schema_list {
    uint32_t n;
    uint32_t entries[KIN_SCHEMA_MAX_COMBINED]; // index of a value of the tree * 4 + flags
    bool impossible;                           // no value is valid
    bool is_text;                              // a string is written as plain text (kin_schema_text)
    kin_text_buffer *relaxed;                  // NULL: an unsupported keyword is an error. Else it is ignored, and named there
} kin_schema_list;

// The form of a value that is not JSON.
//
// Between marks (without `quote`): a string is plain text; null, objects and arrays are JSON. Numbers and booleans are left out,
// because the reader takes them for strings (parameter.h). Holds for the value itself, not for what it contains.
//
// With `quote`: a value is as in JSON, and so is all that it contains, but a string is plain text between two quotes of the
// format's own, and keys have no quotes. A key that is not possible without, and a string with the mark in it, are JSON's.
typedef struct kin_schema_text {
    const char *any;    // the rule of any text; ANY-no-json: of one that does not look like an object or an array
    kin_str any_body;   // the expression of that rule
    const char *mark;   // after the text, which does not contain it
    bool mark_is_token; // the mark is a control token, so it cannot be in text, which may have any characters then
    bool only_strings;  // the reader knows that the value is a string
    bool reads_json;    // a text that is an object or an array becomes one, so strings must not look like that
    kin_str quote;      // empty, or the expression of a quote. Rules `any`, `any-object` and `any-array` exist then
} kin_schema_text;

enum { // types as bits
    KIN_TYPE_NULL = 1,
    KIN_TYPE_BOOLEAN = 2,
    KIN_TYPE_OBJECT = 4,
    KIN_TYPE_ARRAY = 8,
    KIN_TYPE_STRING = 16,
    KIN_TYPE_INTEGER = 32,
    KIN_TYPE_FRACTION = 64, // a number that is not an integer
    KIN_TYPE_NUMBER = KIN_TYPE_INTEGER | KIN_TYPE_FRACTION,
    KIN_TYPE_ALL = 127,
};

typedef struct kin_schema_facts { // the combined constraints, without properties, items and alternatives
    unsigned types;
    kin_number_range numbers;
    bool has_numbers;
    uint32_t min_length, max_length, min_items, max_items;
    const kin_json_value *patterns[KIN_SCHEMA_MAX_PATTERNS], *format; // strings; format NULL: none
    const kin_json_value *multiples[KIN_SCHEMA_MAX_MULTIPLES];        // numbers above 0
    int n_patterns, n_multiples;
    bool has_short_times; // the format's times may lack seconds and their offset
    bool has_values;      // has const or enum: use kin_schema_value_fits
    bool has_object_words, has_array_words;
} kin_schema_facts;

// Returns "#/properties/a" for a value of the tree, written into path [size] from its end; a longer path lacks its beginning.
const char *kin_schema_path(const kin_json *json, const kin_json_value *value, char *path, size_t size);

// Adds a schema; expand then adds everything that it refers to. Both fail with a sentence that names the keyword and its place.
int kin_schema_list_add(kin_schema_list *list, const kin_json *json, const kin_json_value *schema, kin_err *err);
int kin_schema_list_expand(kin_schema_list *list, const kin_json *json, kin_err *err);

static inline const kin_json_value *kin_schema_at(const kin_json *json, const kin_schema_list *list, uint32_t i) {
    return &json->values[list->entries[i] / 4];
}

// Handles an unsupported keyword: if the list is relaxed, records it, its place and the reason and returns 0; otherwise fails
// with them.
int kin_schema_relax(const kin_json *json, const kin_schema_list *list, const kin_json_value *word, const char *why,
                     kin_err *err);

// Returns the keyword `word` of entry i, or NULL.
const kin_json_value *kin_schema_word(const kin_json *json, const kin_schema_list *list, uint32_t i, const char *word);

// Returns the array of the first anyOf or oneOf for which no alternative was chosen, and its entry and flag; NULL if there is
// none.
const kin_json_value *kin_schema_open_choice(const kin_json *json, const kin_schema_list *list, uint32_t *entry, unsigned *flag);

int kin_schema_get_facts(const kin_json *json, const kin_schema_list *list, kin_schema_facts *facts, kin_err *err);

// Narrows [*min, *max] by two counting keywords of one schema.
int kin_schema_read_counts(const kin_json *json, const kin_json_value *schema, const char *min_word, const char *max_word,
                           uint32_t *min, uint32_t *max, kin_err *err);

// Returns the values of the first const or enum (an array, or with *is_const the value of const); NULL if there is none.
// kin_schema_value_fits determines whether a value is valid for the rest of the list.
const kin_json_value *kin_schema_values(const kin_json *json, const kin_schema_list *list, bool *is_const);
int kin_schema_value_fits(const kin_json *json, const kin_schema_list *list, const kin_schema_facts *facts,
                          const kin_json_value *value, bool *fits, kin_err *err);

// Objects: the schemas for the property `name`; all names that are listed or required, in order (the caller frees the array);
// whether a name is required; whether other names are allowed, and the schemas for their values.
int kin_schema_property(const kin_json *json, const kin_schema_list *list, kin_str name, kin_schema_list *out, kin_err *err);
int kin_schema_names(const kin_json *json, const kin_schema_list *list, kin_str **names, size_t *n, kin_err *err);
bool kin_schema_requires(const kin_json *json, const kin_schema_list *list, kin_str name);
// Returns the schemas for the keys of other properties if the list constrains them (out->n > 0) and lists no names itself
// (n_names).
int kin_schema_keys(const kin_json *json, const kin_schema_list *list, size_t n_names, kin_schema_list *out, kin_err *err);
int kin_schema_others(const kin_json *json, const kin_schema_list *list, bool *allowed, kin_schema_list *out, kin_err *err);

// Arrays: the schemas for item i. From n_prefix on all items have the same.
int kin_schema_item(const kin_json *json, const kin_schema_list *list, uint32_t i, kin_schema_list *out, kin_err *err);
uint32_t kin_schema_n_prefix(const kin_json *json, const kin_schema_list *list);

// True if no value that the grammar writes for `written` is valid for `other` (both expanded). False if unknown.
bool kin_schema_excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other);

// Returns the number of members and items of the list's own arrays and objects: the cost of its rules grows with the square of
// it.
uint64_t kin_schema_n_members(const kin_json *json, const kin_schema_list *list);
