// Functions that a template can call: tables of filters, tests, methods and globals.
#pragma once

#include "pure/jinja/state.h"

enum { KIN_MAX_PARAMETERS = 5 };

typedef struct kin_named_argument {
    kin_str name;
    const kin_value *value;
} kin_named_argument;

// The arguments of a call, as written in the template.
typedef struct kin_arguments {
    const kin_value **at; // [n] positional
    size_t n;
    const kin_named_argument *named; // [n_named]
    size_t n_named;
} kin_arguments;

// self: the value that is filtered or tested, or the object of a method; NULL for a global. arg [KIN_MAX_PARAMETERS]: ordered
// by the row's parameters, NULL if not given. all: as written. Returns NULL after kin_state_fail or an error in the heap.
typedef const kin_value *(*kin_function_body)(kin_state *state, const kin_value *self, const kin_value **arg,
                                              const kin_arguments *all);

typedef struct kin_function {
    const char *name;
    const char *parameters; // parameter names, each followed by a space; NULL: any, the body reads `all`
    int n_required;
    kin_function_body body;
} kin_function;

// Finds a row by name in a table that ends with an empty row. NULL: no such name; likewise the next three.
const kin_function *kin_function_find(const kin_function *rows, kin_str name);
const kin_function *kin_filter_find(kin_str name);
const kin_function *kin_test_find(kin_str name);
const kin_function *kin_global_find(kin_str name);

extern const kin_function kin_list_filters[]; // those of list_filters.c, for kin_filter_find

// Appends the pairs of a dict as tuples. Returns false after an error.
bool kin_dict_items(kin_state *state, const kin_value *dict, kin_items *items);

// Returns a method bound to the object; NULL if there is none of that name (or after an error).
const kin_value *kin_method_of(kin_state *state, const kin_value *object, kin_str name);
// True if Python has a mutating method of that name: it is not available here, and attribute access does not find a key of that
// name.
bool kin_method_hidden(const kin_value *object, kin_str name);

// Checks and orders the arguments, then calls the function.
const kin_value *kin_function_call(kin_state *state, const kin_function *row, const kin_value *self, const kin_arguments *all);
