// Parses the statements of a template.
#include <string.h>

#include "pure/jinja/expression.h"

static bool expect_end(kin_parser *p) {
    if (p->token.kind == KIN_LEX_BLOCK_END) return kin_parser_advance(p);
    return kin_parser_fail(p, "expected the end of the block, %}");
}

// ---- statements. Each function begins after the statement's name and ends after its last %}.

static kin_node *parse_statement(kin_parser *p);

static bool at_any(const kin_parser *p, const char *const *names) {
    for (; *names; names++)
        if (kin_parser_at_name(p, *names)) return true;
    return false;
}

static kin_node *parse_print(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_PRINT);
    if (!node || !kin_parser_advance(p) || !(node->a = kin_parse_tuple(p, true))) return NULL;
    if (p->token.kind != KIN_LEX_PRINT_END) return kin_parser_fail(p, "expected the end of the expression, }}");
    return kin_parser_advance(p) ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

static kin_node *parse_data(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_DATA);
    if (!node) return NULL;
    node->value = kin_value_of_bytes(p->heap, p->token.text.at, p->token.text.len, KIN_ORIGIN_TEMPLATE);
    if (!node->value) return kin_parser_fail(p, "out of memory");
    return kin_parser_advance(p) ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

// Parses text and statements up to a block with one of the names `ends` (NULL: up to the end of the template). Stops at that
// name.
static kin_node *parse_body(kin_parser *p, const char *const *ends) {
    kin_node *body = kin_parser_node(p, KIN_NODE_BODY);
    kin_nodes kids = {0};
    if (!body || !kin_parser_enter(p)) return NULL;
    for (;;) {
        kin_node *kid;
        if (p->token.kind == KIN_LEX_END) {
            if (ends) return kin_parser_fail(p, "the template ends inside a block");
            break;
        }
        if (p->token.kind == KIN_LEX_DATA) {
            kid = parse_data(p);
        } else if (p->token.kind == KIN_LEX_PRINT) {
            kid = parse_print(p);
        } else {
            if (!kin_parser_advance(p)) return NULL;
            if (ends && at_any(p, ends)) break;
            kid = parse_statement(p);
        }
        if (!kin_parser_push(p, &kids, kid)) return NULL;
    }
    p->nesting--;
    return kin_parser_finish(p, body, kids);
}

// Parses a body, from the %} before it up to {% NAME %}, which is consumed.
static kin_node *parse_body_to(kin_parser *p, const char *name) {
    if (!expect_end(p)) return NULL;
    kin_node *body = parse_body(p, (const char *const[]){name, NULL});
    return body && kin_parser_advance(p) && expect_end(p) ? body : NULL;
}

static kin_node *parse_if(kin_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const endif[] = {"endif", NULL};
    kin_node *node = kin_parser_node(p, KIN_NODE_IF);
    kin_nodes kids = {0};
    bool more;
    if (!node) return NULL;
    do {
        if (!kin_parser_push(p, &kids, kin_parse_tuple(p, false)) || !expect_end(p)) return NULL;
        if (!kin_parser_push(p, &kids, parse_body(p, ends)) || !kin_parser_skip_name(p, "elif", &more)) return NULL;
    } while (more);
    if (!kin_parser_skip_name(p, "else", &more)) return NULL;
    if (more && (!expect_end(p) || !kin_parser_push(p, &kids, parse_body(p, endif)))) return NULL;
    return kin_parser_advance(p) && expect_end(p) ? kin_parser_finish(p, node, kids) : NULL;
}

static kin_node *parse_for(kin_parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const endfor[] = {"endfor", NULL};
    kin_node *node = kin_parser_node(p, KIN_NODE_FOR);
    kin_nodes kids = {0};
    bool more;
    if (!node) return NULL;
    p->loops++;
    if (!(node->a = kin_parse_target(p)) || !kin_parser_skip_name(p, "in", &more)) return NULL;
    if (!more) return kin_parser_fail(p, "expected 'in'");
    if (!(node->b = kin_parse_tuple(p, false)) || !kin_parser_skip_name(p, "if", &more)) return NULL;
    if (more && !(node->c = kin_parse_expression(p))) return NULL;
    if (!kin_parser_skip_name(p, "recursive", &more)) return NULL;
    node->op = more;
    if (!expect_end(p) || !kin_parser_push(p, &kids, parse_body(p, ends))) return NULL;
    p->loops--;
    if (!kin_parser_skip_name(p, "else", &more)) return NULL;
    if (more && (!expect_end(p) || !kin_parser_push(p, &kids, parse_body(p, endfor)))) return NULL;
    return kin_parser_advance(p) && expect_end(p) ? kin_parser_finish(p, node, kids) : NULL;
}

static kin_node *parse_set(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_SET);
    bool assigns;
    if (!node || !(node->a = kin_parse_target(p)) || !kin_parser_skip_op(p, '=', &assigns)) return NULL;
    if (assigns) {
        if (!(node->b = kin_parse_tuple(p, true)) || !expect_end(p)) return NULL;
    } else {
        node->kind = KIN_NODE_SET_BLOCK;
        kin_node *captured = kin_parser_finish(p, kin_parser_node(p, KIN_NODE_CAPTURED), (kin_nodes){0});
        if (!(node->b = kin_parse_filters(p, captured)) || !(node->c = parse_body_to(p, "endset"))) return NULL;
    }
    return kin_parser_finish(p, node, (kin_nodes){0});
}

// Parses "(a, b=1)", the parameters of a macro.
static bool parse_signature(kin_parser *p, kin_nodes *parameters) {
    bool has_default, any_default = false;
    if (!kin_parser_expect_op(p, '(')) return false;
    while (!kin_parser_at_op(p, ')')) {
        if (parameters->n > 0 && !kin_parser_expect_op(p, ',')) return false;
        if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected the name of a parameter");
        kin_node *node = kin_parser_node(p, KIN_NODE_NAMED);
        if (!node || !kin_parser_intern(p, node, p->token.text) || !kin_parser_advance(p)) return false;
        if (!kin_parser_skip_op(p, '=', &has_default)) return false;
        if (any_default && !has_default) return kin_parser_fail(p, "a parameter without a default follows one with a default");
        if (has_default && !(node->a = kin_parse_expression(p))) return false;
        any_default |= has_default;
        if (!kin_parser_push(p, parameters, kin_parser_finish(p, node, (kin_nodes){0}))) return false;
    }
    return kin_parser_advance(p);
}

// Parses the body of a macro; break and continue cannot leave a loop around the macro.
static kin_node *parse_macro_body(kin_parser *p, kin_node *macro, kin_nodes parameters, const char *end) {
    int loops = p->loops;
    uint16_t uses = p->macro_uses;
    p->loops = p->macro_uses = 0;
    if (!(macro->a = parse_body_to(p, end))) return NULL;
    macro->op = p->macro_uses;
    p->loops = loops;
    p->macro_uses |= uses;
    return kin_parser_finish(p, macro, parameters);
}

static kin_node *parse_macro(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_MACRO);
    kin_nodes parameters = {0};
    if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected the name of a macro");
    if (!node || !kin_parser_intern(p, node, p->token.text) || !kin_parser_advance(p)) return NULL;
    return parse_signature(p, &parameters) ? parse_macro_body(p, node, parameters, "endmacro") : NULL;
}

static kin_node *parse_call_block(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_CALL_BLOCK), *caller = kin_parser_node(p, KIN_NODE_MACRO);
    kin_nodes parameters = {0};
    if (!node || !caller || !kin_parser_intern(p, caller, (kin_str){"caller", 6})) return NULL;
    if (kin_parser_at_op(p, '(') && !parse_signature(p, &parameters)) return NULL;
    if (!(node->a = kin_parse_expression(p))) return NULL;
    if (node->a->kind != KIN_NODE_CALL) return kin_parser_fail(p, "expected a call");
    node->b = parse_macro_body(p, caller, parameters, "endcall");
    return node->b ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

// Transformers uses this block to mark the assistant's text; its contents are rendered normally.
static kin_node *parse_generation(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_SCOPE);
    int loops = p->loops;
    p->loops = 0;
    if (!node || !(node->a = parse_body_to(p, "endgeneration"))) return NULL;
    p->loops = loops;
    return kin_parser_finish(p, node, (kin_nodes){0});
}

// {% block NAME %}...{% endblock NAME %}, with an optional `scoped`. No template extends another, so a block is rendered where it
// stands.
static kin_node *parse_block(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_SCOPE);
    kin_str name = p->token.text;
    int loops = p->loops;
    bool skipped;
    p->loops = 0;
    if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected the name of a block");
    if (!node || !kin_parser_advance(p) || !kin_parser_skip_name(p, "scoped", &skipped) || !expect_end(p)) return NULL;
    if (!(node->a = parse_body(p, (const char *const[]){"endblock", NULL})) || !kin_parser_advance(p)) return NULL;
    bool is_named =
        p->token.kind == KIN_LEX_NAME && p->token.text.len == name.len && memcmp(p->token.text.at, name.at, name.len) == 0;
    if ((is_named && !kin_parser_advance(p)) || !expect_end(p)) return NULL;
    p->loops = loops;
    return kin_parser_finish(p, node, (kin_nodes){0});
}

// {% filter upper | trim %}...{% endfilter %}
static kin_node *parse_filter_block(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_FILTERED);
    kin_node *captured = kin_parser_finish(p, kin_parser_node(p, KIN_NODE_CAPTURED), (kin_nodes){0});
    if (!node || !captured || !(node->b = kin_parse_filter(p, captured))) return NULL;
    return (node->c = parse_body_to(p, "endfilter")) ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

// {% with a = 1, b = 2 %}...{% endwith %}
static kin_node *parse_with(kin_parser *p) {
    kin_node *node = kin_parser_node(p, KIN_NODE_SCOPE);
    kin_nodes kids = {0};
    if (!node) return NULL;
    while (p->token.kind != KIN_LEX_BLOCK_END) {
        if (kids.n > 0 && !kin_parser_expect_op(p, ',')) return NULL;
        kin_node *set = kin_parser_node(p, KIN_NODE_SET);
        if (!set || !(set->a = kin_parse_target(p)) || !kin_parser_expect_op(p, '=')) return NULL;
        if (!(set->b = kin_parse_expression(p))) return NULL;
        if (!kin_parser_push(p, &kids, kin_parser_finish(p, set, (kin_nodes){0}))) return NULL;
    }
    return (node->a = parse_body_to(p, "endwith")) ? kin_parser_finish(p, node, kids) : NULL;
}

static kin_node *parse_jump(kin_parser *p, kin_node_kind kind) {
    kin_node *node = kin_parser_node(p, kind);
    if (p->loops == 0) return kin_parser_fail(p, "break or continue outside a loop");
    return node && expect_end(p) ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

static kin_node *parse_statement(kin_parser *p) {
    static const struct {
        const char *name;
        kin_node *(*parse)(kin_parser *);
    } statements[] = {{"if", parse_if},           {"for", parse_for},
                      {"set", parse_set},         {"macro", parse_macro},
                      {"call", parse_call_block}, {"generation", parse_generation},
                      {"block", parse_block},     {"filter", parse_filter_block},
                      {"with", parse_with}};
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (kin_parser_at_name(p, statements[i].name)) return kin_parser_advance(p) ? statements[i].parse(p) : NULL;
    if (kin_parser_at_name(p, "break")) return kin_parser_advance(p) ? parse_jump(p, KIN_NODE_BREAK) : NULL;
    if (kin_parser_at_name(p, "continue")) return kin_parser_advance(p) ? parse_jump(p, KIN_NODE_CONTINUE) : NULL;
    char what[96];
    size_t len = p->token.kind == KIN_LEX_NAME ? p->token.text.len : 0;
    static const char words[] = "unknown block: ";
    if (len > sizeof what - sizeof words) len = sizeof what - sizeof words;
    memcpy(what, words, sizeof words);
    if (len > 0) memcpy(what + sizeof words - 1, p->token.text.at, len);
    what[sizeof words - 1 + len] = '\0';
    return kin_parser_fail(p, what);
}

// ---- the whole template

static bool intern_fixed_names(kin_parser *p) {
    static const char *const names[KIN_NAME_FIRST_FREE] = {"loop", "caller", "varargs", "kwargs"};
    kin_node node = {0};
    for (size_t i = 0; i < KIN_NAME_FIRST_FREE; i++)
        if (!kin_parser_intern(p, &node, (kin_str){names[i], strlen(names[i])})) return false;
    return true;
}

int kin_jinja_parse(kin_node **root, kin_values *heap, const char *source, size_t len, kin_err *err) {
    kin_parser p = {.heap = heap, .err = err, .names = kin_values_alloc(heap, sizeof *p.names)};
    if (!p.names || !kin_lexer_init(&p.lexer, heap, source, len)) return kin_values_check(heap, err);
    if (!intern_fixed_names(&p) || !kin_parser_advance(&p)) return KIN_FAIL;
    *root = parse_body(&p, NULL);
    return *root ? 0 : KIN_FAIL;
}
