// The tree of a compiled template. Immutable after parsing.
#pragma once

#include "pure/jinja/value_impl.h"

typedef enum kin_node_kind {
    // expressions
    KIN_NODE_CONST,   // value
    KIN_NODE_NAME,    // name; value: the same as a string; row: the function of that name, or NULL
    KIN_NODE_LIST,    // kids
    KIN_NODE_TUPLE,   // kids
    KIN_NODE_DICT,    // kids: key, item, key, item, ...
    KIN_NODE_GETATTR, // a.value
    KIN_NODE_GETITEM, // a[b]; b may be a slice
    KIN_NODE_SLICE,   // a:b:c, each may be NULL
    KIN_NODE_CALL,    // a(kids); kids: arguments, the named ones last
    KIN_NODE_SPREAD,  // an argument *a, or **a if op is 1
    KIN_NODE_NAMED,   // an argument: name (value) = a; in a signature: a parameter and its default, or NULL
    KIN_NODE_FILTER,  // a | value(kids); row: the filter, or NULL if unknown
    KIN_NODE_TEST,    // a is value(kids); row: the test, or NULL if unknown
    KIN_NODE_NOT,
    KIN_NODE_NEGATIVE,
    KIN_NODE_POSITIVE,
    KIN_NODE_BINARY, // a op b
    KIN_NODE_AND,
    KIN_NODE_OR,
    KIN_NODE_CONCAT,    // kids, with ~
    KIN_NODE_COMPARE,   // a, then kids: operands
    KIN_NODE_OPERAND,   // op a; op: a lexer operator, KIN_OP_IN or KIN_OP_NOT_IN
    KIN_NODE_CONDITION, // a if b else c; c may be NULL
    KIN_NODE_CAPTURED,  // the output of a block set's or filter block's body
    // statements
    KIN_NODE_BODY,       // kids
    KIN_NODE_DATA,       // value
    KIN_NODE_PRINT,      // a
    KIN_NODE_IF,         // kids: test, body, test, body, ..., optionally the else body
    KIN_NODE_FOR,        // a: target, b: iterable, c: filter or NULL; kids: body, optionally the else body; op: recursive
    KIN_NODE_SET,        // a = b
    KIN_NODE_SET_BLOCK,  // a = b, where b is an expression of c's output
    KIN_NODE_ATTRIBUTE,  // a target: a (a name) . value
    KIN_NODE_MACRO,      // name, value; kids: parameters; a: body; op: KIN_MACRO_*
    KIN_NODE_CALL_BLOCK, // a: call, b: a macro, passed as its caller
    KIN_NODE_SCOPE,      // a: body of a generation block or of `with`; kids: its assignments (KIN_NODE_SET)
    KIN_NODE_FILTERED,   // b: an expression of c's output
    KIN_NODE_BREAK,
    KIN_NODE_CONTINUE,
} kin_node_kind;

enum { KIN_OP_IN = 1, KIN_OP_NOT_IN = 2 };
enum { KIN_MACRO_VARARGS = 1, KIN_MACRO_KWARGS = 2, KIN_MACRO_CALLER = 4 }; // names that the body of a macro uses

typedef struct kin_node {
    kin_node_kind kind;
    uint16_t op;
    uint16_t depth; // height of the tree
    uint32_t line;
    uint32_t name; // number of the name
    struct kin_node *a, *b, *c;
    struct kin_node **kids;
    size_t n_kids;
    const kin_value *value;
    const struct kin_function *row;
} kin_node;

// Names with a special meaning have fixed numbers; the others follow.
enum { KIN_NAME_LOOP, KIN_NAME_CALLER, KIN_NAME_VARARGS, KIN_NAME_KWARGS, KIN_NAME_FIRST_FREE };

enum {
    KIN_JINJA_MAX_NESTING = 100,    // in the source: bracketed expressions and statements
    KIN_JINJA_MAX_TREE_DEPTH = 250, // of the tree: a chain of sums is deep without being nested
};

// Parses a template; everything is allocated in `heap`. Returns 0, or KIN_FAIL with a sentence that begins with the line.
int kin_jinja_parse(kin_node **root, kin_values *heap, const char *source, size_t len, kin_err *err);
