// Internals of kin_value, for the template engine only: kinds that callers cannot build, Python's semantics of values (truth,
// equality, hashes), and the heap's allocation and budget.
#pragma once

#include "base/str.h"
#include "pure/jinja/value.h"

typedef enum kin_kind {
    KIN_KIND_UNDEFINED, // jinja2's Undefined: prints nothing, is false, fails in arithmetic
    KIN_KIND_NONE,
    KIN_KIND_BOOL,
    KIN_KIND_INT,
    KIN_KIND_FLOAT,
    KIN_KIND_STRING,
    KIN_KIND_LIST,
    KIN_KIND_DICT,
    // Only templates make these:
    KIN_KIND_TUPLE,
    KIN_KIND_RANGE,    // range(): a sequence
    KIN_KIND_VIEW,     // dict.keys(), values(), items(): has a length but no subscripts
    KIN_KIND_ITERATOR, // like a Python generator: always true, without a length, empty after it was read once
    KIN_KIND_NAMESPACE,
    KIN_KIND_LOOP,
    KIN_KIND_FUNCTION, // a function, or a bound method
    KIN_KIND_MACRO,
} kin_kind;

typedef struct kin_items {
    const kin_value **at;
    size_t n, cap;
} kin_items;

typedef struct kin_pair {
    const kin_value *key, *item;
} kin_pair;

typedef struct kin_pairs {
    kin_pair *at;
    size_t n, cap;
    uint32_t *index; // [n_index] open addressing: position + 1; NULL if there are only few pairs
    size_t n_index;
} kin_pairs;

typedef struct kin_string {
    const char *at;
    size_t len;
    const uint8_t *origins; // [len] kin_origin of each byte; NULL: all are `origin`
    kin_origin origin;
    bool ascii; // all bytes are known to be ASCII
} kin_string;

struct kin_value {
    uint8_t kind;    // kin_kind
    uint8_t depth;   // lists, tuples and dicts: 1 + that of the deepest item
    bool frozen;     // contained in another value, so it cannot change
    bool unhashable; // tuples: an item cannot be a key
    union {
        bool b;
        int64_t i;
        double f;
        kin_string s;
        kin_items *items; // list, tuple, range, view, iterator
        kin_pairs *pairs; // dict, namespace
        kin_str name;     // undefined: its name, for error messages
        struct kin_loop *loop;
        struct {
            const struct kin_function *row;
            const kin_value *self;
        } function;
        struct {
            const struct kin_node *node;
            struct kin_scope *closure;
        } macro;
    };
};

extern const kin_value kin_the_undefined, kin_the_none, kin_the_true, kin_the_false, kin_the_empty_string;

// ---- heap

// Returns zeroed bytes; NULL at the memory limit, which becomes the heap's error.
void *kin_values_alloc(kin_values *values, size_t n);

// Charges steps to the budget. Returns false if it is exhausted, which becomes the heap's error. One step is about one node of
// a template, one item of a list, or 64 bytes of a string.
bool kin_values_charge(kin_values *values, uint64_t steps);
bool kin_values_charge_bytes(kin_values *values, size_t bytes);

// A static sentence; NULL: no error. Only the first error is kept.
const char *kin_values_error(const kin_values *values);
void kin_values_set_error(kin_values *values, const char *sentence);

// The bytes after a string that can be extended in place: see kin_string_concat.
typedef struct kin_tail {
    char *at;
    uint8_t *origins;
    size_t room;
} kin_tail;
kin_tail *kin_values_tail(kin_values *values);

// ---- constructors; NULL after an error

kin_value *kin_value_new(kin_values *values, kin_kind kind);
const kin_value *kin_value_of_bool(bool b);
kin_value *kin_value_of_string(kin_values *values, kin_string s);
kin_value *kin_value_of_bytes(kin_values *values, const char *at, size_t len, kin_origin origin); // not checked for UTF-8
kin_value *kin_value_of_items(kin_values *values, kin_kind kind, kin_items items);

bool kin_items_push(kin_values *values, kin_items *items, const kin_value *item);

// Returns false if the key is not hashable (a list, a dict) and after an error.
bool kin_pairs_put(kin_values *values, kin_pairs *pairs, const kin_value *key, const kin_value *item);
const kin_value *kin_pairs_find(kin_values *values, const kin_pairs *pairs, const kin_value *key);
const kin_value *kin_pairs_find_name(kin_values *values, const kin_pairs *pairs, const char *name, size_t len);

// Call after the pairs or items are in place. Fails, with an error in the heap, if the value is too deep.
bool kin_value_set_depth(kin_values *values, kin_value *value);

// ---- Python's view of values

bool kin_value_is_number(const kin_value *value);   // including true and false
bool kin_value_is_integer(const kin_value *value);  // including true and false
int64_t kin_value_integer(const kin_value *value);  // for integers
double kin_value_number(const kin_value *value);    // for numbers
bool kin_value_is_sequence(const kin_value *value); // list, tuple, range, view, iterator: has items
bool kin_value_truth(const kin_value *value);
bool kin_value_hashable(const kin_value *value);
bool kin_value_equal(kin_values *values, const kin_value *a, const kin_value *b);
const char *kin_value_type_name(const kin_value *value); // Python's name of the type, for error messages
