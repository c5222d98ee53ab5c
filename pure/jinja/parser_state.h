// A template that is being parsed: the current token, and the nodes that are built. parser.c parses the statements, expression.c
// the expressions.
//
// Owner: kin_jinja_parse. Nodes live in the heap. Thread: the parser's.
#pragma once

#include "pure/jinja/lexer.h"
#include "pure/jinja/node.h"

typedef struct kin_parser {
    kin_lexer lexer;
    kin_token token, next; // the current token; the one after it, if has_next
    bool has_next;
    kin_values *heap;
    kin_pairs *names; // strings to numbers
    int nesting;
    int loops;           // enclosing loops within the same macro
    uint16_t macro_uses; // KIN_MACRO_* seen so far
    kin_err *err;
} kin_parser;

typedef struct kin_nodes {
    kin_node **at;
    size_t n, cap;
} kin_nodes;

// All of these return NULL or false after they have written the error.
void *kin_parser_fail(kin_parser *p, const char *what);
bool kin_parser_advance(kin_parser *p);
const kin_token *kin_parser_peek(kin_parser *p);
bool kin_parser_enter(kin_parser *p); // enters a nesting level; leave with p->nesting--

bool kin_parser_at_name(const kin_parser *p, const char *name);
bool kin_parser_at_op(const kin_parser *p, uint16_t op);
bool kin_parser_expect_op(kin_parser *p, uint16_t op);
bool kin_parser_skip_name(kin_parser *p, const char *name, bool *skipped);
bool kin_parser_skip_op(kin_parser *p, uint16_t op, bool *skipped);

kin_node *kin_parser_node(kin_parser *p, kin_node_kind kind);
bool kin_parser_push(kin_parser *p, kin_nodes *nodes, kin_node *node);
kin_node *kin_parser_finish(kin_parser *p, kin_node *node, kin_nodes kids); // sets kids and depth
bool kin_parser_intern(kin_parser *p, kin_node *node, kin_str name);        // sets name and value
