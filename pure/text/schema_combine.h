// Schemas that hold together: what a list of subschemas says about one value, after references and allOf.
//
// A list is a set of places in a JSON tree. Expanding it follows $ref and allOf and checks every keyword of every schema in it.
// anyOf and oneOf stay: the caller tries their alternatives one by one, each with the rest of the list.
#pragma once

#include "pure/text/json.h"
#include "pure/text/schema_number.h"
#include "pure/text/text_buffer.h"

#define KIN_COUNT_ANY UINT32_MAX // no upper bound

enum {
    KIN_SCHEMA_MAX_COMBINED = 32, // schemas that hold together at one place
    KIN_SCHEMA_MAX_PATTERNS = 8,  // of them all
    KIN_SCHEMA_MAX_MULTIPLES = 4,
    KIN_SCHEMA_MAX_STATES = 45000, // of the automata of all strings and numbers of which several keywords are said
    KIN_SCHEMA_MAX_RELAXED = 1000, // bytes of what says nothing
};

enum { // of an entry: an alternative of the keyword was chosen
    KIN_SCHEMA_ANY_OF_CHOSEN = 1,
    KIN_SCHEMA_ONE_OF_CHOSEN = 2,
};

typedef struct kin_schema_list {
    uint32_t n;
    uint32_t entries[KIN_SCHEMA_MAX_COMBINED]; // number of a value of the tree * 4 + flags
    bool impossible;                           // nothing is valid
    kin_text_buffer *relaxed; // NULL: a keyword that is not supported is an error. Else it says nothing, and is named there
} kin_schema_list;

enum { // types as bits
    KIN_TYPE_NULL = 1,
    KIN_TYPE_BOOLEAN = 2,
    KIN_TYPE_OBJECT = 4,
    KIN_TYPE_ARRAY = 8,
    KIN_TYPE_STRING = 16,
    KIN_TYPE_INTEGER = 32,
    KIN_TYPE_FRACTION = 64, // a number that is no integer
    KIN_TYPE_NUMBER = KIN_TYPE_INTEGER | KIN_TYPE_FRACTION,
    KIN_TYPE_ALL = 127,
};

typedef struct kin_schema_facts { // what the list says, without its properties, items and alternatives
    unsigned types;
    kin_number_range numbers;
    bool has_numbers;
    uint32_t min_length, max_length, min_items, max_items;
    const kin_json_value *patterns[KIN_SCHEMA_MAX_PATTERNS], *format; // strings; the format NULL: none, or beside a pattern
    const kin_json_value *multiples[KIN_SCHEMA_MAX_MULTIPLES];        // numbers above 0
    int n_patterns, n_multiples;
    bool has_values; // const or enum: kin_schema_value_fits tells which
    bool has_object_words, has_array_words;
} kin_schema_facts;

// Adds a schema, then everything that it refers to. Fails with a sentence that names keyword and place.
int kin_schema_list_add(kin_schema_list *list, const kin_json *json, const kin_json_value *schema, kin_err *err);
int kin_schema_list_expand(kin_schema_list *list, const kin_json *json, kin_err *err);

static inline const kin_json_value *kin_schema_at(const kin_json *json, const kin_schema_list *list, uint32_t i) {
    return &json->values[list->entries[i] / 4];
}

// A keyword that is not supported: an error that names it, its place and why; or named so, where the list may be relaxed.
int kin_schema_relax(const kin_json *json, const kin_schema_list *list, const kin_json_value *word, const char *why,
                     kin_err *err);

// The member of that name of entry i, or NULL.
const kin_json_value *kin_schema_word(const kin_json *json, const kin_schema_list *list, uint32_t i, const char *word);

// The first entry with an anyOf or oneOf of which no alternative was chosen; its array, or NULL.
const kin_json_value *kin_schema_open_choice(const kin_json *json, const kin_schema_list *list, uint32_t *entry, unsigned *flag);

int kin_schema_get_facts(const kin_json *json, const kin_schema_list *list, kin_schema_facts *facts, kin_err *err);

// Narrows [*min, *max] by two keywords of one schema that count something.
int kin_schema_read_counts(const kin_json *json, const kin_json_value *schema, const char *min_word, const char *max_word,
                           uint32_t *min, uint32_t *max, kin_err *err);

// The values of the first const or enum (an array, or the const itself: *is_const), and whether one of them is valid for the
// rest.
const kin_json_value *kin_schema_values(const kin_json *json, const kin_schema_list *list, bool *is_const);
int kin_schema_value_fits(const kin_json *json, const kin_schema_list *list, const kin_schema_facts *facts,
                          const kin_json_value *value, bool *fits, kin_err *err);

// Objects. What the list says about a property of that name; all names that it lists or requires, in order (the caller frees);
// whether others may be there, and what they are then.
int kin_schema_property(const kin_json *json, const kin_schema_list *list, kin_str name, kin_schema_list *out, kin_err *err);
int kin_schema_names(const kin_json *json, const kin_schema_list *list, kin_str **names, size_t *n, kin_err *err);
bool kin_schema_requires(const kin_json *json, const kin_schema_list *list, kin_str name);
// What the keys of others must be, where the list says so of them (out->n > 0) and lists no names of its own [n_names].
int kin_schema_keys(const kin_json *json, const kin_schema_list *list, size_t n_names, kin_schema_list *out, kin_err *err);
int kin_schema_others(const kin_json *json, const kin_schema_list *list, bool *allowed, kin_schema_list *out, kin_err *err);

// Arrays. What it says about item i; from n_prefix on all items are alike.
int kin_schema_item(const kin_json *json, const kin_schema_list *list, uint32_t i, kin_schema_list *out, kin_err *err);
uint32_t kin_schema_n_prefix(const kin_json *json, const kin_schema_list *list);

// Whether no value that the grammar writes for `written` is valid for `other` (both expanded). False also where that is not
// known.
bool kin_schema_excludes(const kin_json *json, const kin_schema_list *written, const kin_schema_list *other);

// How many members and items the list's own arrays and objects have: what its rules cost grows with the square of it.
uint64_t kin_schema_n_members(const kin_json *json, const kin_schema_list *list);
