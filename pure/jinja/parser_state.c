#include "pure/jinja/parser_state.h"

#include <string.h>

void *kin_parser_fail(kin_parser *p, const char *what) {
    if (kin_values_check(p->heap, NULL) != 0)
        kin_err_set(p->err, "the template is too large: it exceeds the memory limit");
    else
        kin_err_set(p->err, "line %u: %s", p->token.line, what);
    return NULL;
}

bool kin_parser_advance(kin_parser *p) {
    if (p->has_next) {
        p->token = p->next;
        p->has_next = false;
        return true;
    }
    return kin_lexer_next(&p->lexer, &p->token, p->err) == 0;
}

const kin_token *kin_parser_peek(kin_parser *p) {
    if (!p->has_next && kin_lexer_next(&p->lexer, &p->next, p->err) != 0) return NULL;
    p->has_next = true;
    return &p->next;
}

bool kin_parser_enter(kin_parser *p) {
    if (++p->nesting <= KIN_JINJA_MAX_NESTING) return true;
    return kin_parser_fail(p, "expressions or statements are nested too deeply");
}

bool kin_parser_at_name(const kin_parser *p, const char *name) {
    return p->token.kind == KIN_LEX_NAME && p->token.text.len == strlen(name) &&
           memcmp(p->token.text.at, name, p->token.text.len) == 0;
}

bool kin_parser_at_op(const kin_parser *p, uint16_t op) {
    return p->token.kind == KIN_LEX_OPERATOR && p->token.op == op;
}

bool kin_parser_expect_op(kin_parser *p, uint16_t op) {
    if (kin_parser_at_op(p, op)) return kin_parser_advance(p);
    char what[] = "expected '?'";
    what[1] = (char)op;
    return kin_parser_fail(p, what);
}

bool kin_parser_skip_name(kin_parser *p, const char *name, bool *skipped) {
    *skipped = kin_parser_at_name(p, name);
    return !*skipped || kin_parser_advance(p);
}

bool kin_parser_skip_op(kin_parser *p, uint16_t op, bool *skipped) {
    *skipped = kin_parser_at_op(p, op);
    return !*skipped || kin_parser_advance(p);
}

kin_node *kin_parser_node(kin_parser *p, kin_node_kind kind) {
    kin_node *node = kin_values_alloc(p->heap, sizeof *node);
    if (!node) return kin_parser_fail(p, "out of memory");
    node->kind = kind;
    node->line = p->token.line;
    return node;
}

bool kin_parser_push(kin_parser *p, kin_nodes *nodes, kin_node *node) {
    if (!node) return false;
    if (nodes->n == nodes->cap) {
        size_t cap = nodes->cap ? 2 * nodes->cap : 4;
        kin_node **at = kin_values_alloc(p->heap, cap * sizeof *at);
        if (!at) return kin_parser_fail(p, "out of memory");
        if (nodes->n > 0) memcpy(at, nodes->at, nodes->n * sizeof *at);
        nodes->at = at;
        nodes->cap = cap;
    }
    nodes->at[nodes->n++] = node;
    return true;
}

kin_node *kin_parser_finish(kin_parser *p, kin_node *node, kin_nodes kids) {
    if (!node) return NULL;
    const kin_node *below[] = {node->a, node->b, node->c};
    int depth = 0;
    node->kids = kids.at;
    node->n_kids = kids.n;
    for (size_t i = 0; i < 3; i++)
        if (below[i] && below[i]->depth > depth) depth = below[i]->depth;
    for (size_t i = 0; i < kids.n; i++)
        if (kids.at[i]->depth > depth) depth = kids.at[i]->depth;
    if (depth >= KIN_JINJA_MAX_TREE_DEPTH)
        return kin_parser_fail(p, "an expression is too long, or statements are nested too deeply");
    node->depth = (uint16_t)(depth + 1);
    return node;
}

bool kin_parser_intern(kin_parser *p, kin_node *node, kin_str name) {
    const kin_value *number = kin_pairs_find_name(p->heap, p->names, name.at, name.len);
    node->value = kin_value_of_bytes(p->heap, name.at, name.len, KIN_ORIGIN_TEMPLATE);
    if (!number) {
        number = kin_value_int(p->heap, (int64_t)p->names->n);
        if (!kin_pairs_put(p->heap, p->names, node->value, number)) return kin_parser_fail(p, "out of memory");
    }
    node->name = (uint32_t)number->i;
    return node->value || kin_parser_fail(p, "out of memory");
}
