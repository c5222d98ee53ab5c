// Functions that a template can call: filters, tests, methods and globals, in tables.
#pragma once

#include "pure/text/jinja/state.h"

enum { KIN_MAX_PARAMETERS = 5 };

typedef struct kin_named_argument {
    kin_str name;
    const kin_value *value;
} kin_named_argument;

// The arguments of a call, as written.
typedef struct kin_arguments {
    const kin_value **at; // [n] without names
    size_t n;
    const kin_named_argument *named; // [n_named]
    size_t n_named;
} kin_arguments;

// `self`: what is filtered or tested, or whose method it is; NULL for a global. `arg` [KIN_MAX_PARAMETERS]: by the parameters of
// the row, NULL where none was given. `all`: as written. Returns NULL after kin_state_fail or after an error.
typedef const kin_value *(*kin_function_body)(kin_state *state, const kin_value *self, const kin_value **arg,
                                              const kin_arguments *all);

typedef struct kin_function {
    const char *name;
    const char *parameters; // their names with a space behind each; NULL: any, the body looks at `all`
    int n_required;
    kin_function_body body;
} kin_function;

// The row of that name in a table that ends with a row without one. NULL: there is none; so also below.
const kin_function *kin_function_find(const kin_function *rows, kin_str name);
const kin_function *kin_filter_find(kin_str name);
const kin_function *kin_test_find(kin_str name);
const kin_function *kin_global_find(kin_str name);

extern const kin_function kin_list_filters[]; // those of list_filters.c, for kin_filter_find

// The pairs of a dict as tuples. False after an error.
bool kin_dict_items(kin_state *state, const kin_value *dict, kin_items *items);

// A method of the object as a value; NULL: it has none of that name (or an error).
const kin_value *kin_method_of(kin_state *state, const kin_value *object, kin_str name);
// Python has a method of that name, which changes the object: so there is none here, and no key by that name either.
bool kin_method_hidden(const kin_value *object, kin_str name);

// Checks and orders the arguments, then calls.
const kin_value *kin_function_call(kin_state *state, const kin_function *row, const kin_value *self, const kin_arguments *all);
