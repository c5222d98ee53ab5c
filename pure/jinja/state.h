// The state of one rendering, and the evaluator of expressions.
#pragma once

#include "pure/jinja/node.h"
#include "pure/jinja/strings.h"

// Maximum depth of recursion: nested expressions, statements and macros. A level uses at most about 400 bytes of stack.
enum { KIN_JINJA_MAX_DEPTH = 600 };

typedef struct kin_variable {
    uint32_t name;
    const kin_value *value;
} kin_variable;

// The variables of the template, of one iteration of a loop, or of one macro call.
typedef struct kin_scope {
    struct kin_scope *parent;
    kin_variable *at;
    size_t n, cap;
} kin_scope;

typedef struct kin_loop {
    const kin_items *items;
    size_t index0;
    const kin_node *recursive; // the loop's statement, if it may be called again; otherwise NULL
    kin_scope *outer;
    int depth0;
    const kin_value *last_changed; // a tuple; NULL: changed() has not been called
} kin_loop;

typedef enum kin_flow { KIN_FLOW_ON, KIN_FLOW_BREAK, KIN_FLOW_CONTINUE } kin_flow;

typedef struct kin_state {
    kin_values *values;
    const kin_pairs *variables; // the caller's
    int64_t now_s;
    kin_scope *scope;
    kin_pieces *out;
    const kin_value *captured; // the value of KIN_NODE_CAPTURED
    int depth;
    kin_flow flow;
    uint32_t line;
    bool failed;
    kin_err *err;
} kin_state;

#define KIN_SHOWN(s) kin_shown_len((s).at, (s).len, 64), (s).at // arguments for "%.*s" of a name in an error message

// Returns the number of bytes to show in an error message: at most max, and complete characters.
int kin_shown_len(const char *at, size_t len, size_t max);

// Sets the error, with the line, unless there already is one. Returns NULL.
void *kin_state_fail(kin_state *state, const char *format, ...) KIN_PRINTF(2, 3);

// Returns NULL after kin_state_fail or an error in the heap.
const kin_value *kin_eval(kin_state *state, const kin_node *node);

// Evaluates a call, with the additional argument `caller` unless that is NULL.
const kin_value *kin_eval_call(kin_state *state, const kin_node *node, const kin_value *caller);

// Python's operators and iter().
const kin_value *kin_binary(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b);
int kin_compare(kin_state *state, uint16_t op, const kin_value *a, const kin_value *b); // 1, 0, KIN_FAIL
const kin_value *kin_get_item(kin_state *state, const kin_value *of, const kin_value *key);
const kin_value *kin_get_attribute(kin_state *state, const kin_value *of, const kin_value *name);
bool kin_iterate(kin_state *state, const kin_value *value, kin_items *items);
const kin_value *kin_str_of(kin_state *state, const kin_value *value); // str(), or fails

// ---- statements

bool kin_scope_set(kin_state *state, uint32_t name, const kin_value *value);
const kin_value *kin_scope_get(kin_state *state, uint32_t name); // NULL: not in any scope
bool kin_run(kin_state *state, const kin_node *body);

struct kin_arguments;
// Runs a recursive loop again, with other items; returns its output.
const kin_value *kin_loop_call(kin_state *state, const kin_value *loop, const struct kin_arguments *all);
const kin_value *kin_macro_call(kin_state *state, const kin_value *macro, const struct kin_arguments *all);
