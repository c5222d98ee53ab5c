#include "pure/jinja/expression.h"

#include <string.h>

#include "pure/jinja/functions.h"

enum { LEVEL_OR = 1, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER };

static kin_node *with(kin_parser *p, kin_node *node, kin_node *a, kin_node *b) {
    if (!node || !a || !b) return NULL;
    node->a = a;
    node->b = b;
    return kin_parser_finish(p, node, (kin_nodes){0});
}

static kin_node *with_one(kin_parser *p, kin_node *node, kin_node *a) {
    if (!node || !a) return NULL;
    node->a = a;
    return kin_parser_finish(p, node, (kin_nodes){0});
}

static kin_node *constant(kin_parser *p, const kin_value *value) {
    kin_node *node = kin_parser_node(p, KIN_NODE_CONST);
    if (!node || !value) return kin_parser_fail(p, "out of memory");
    node->value = value;
    return kin_parser_finish(p, node, (kin_nodes){0});
}

// ---- primary expressions

static kin_node *parse_name(kin_parser *p) {
    static const struct {
        const char *name;
        const kin_value *value;
    } constants[] = {{"true", &kin_the_true},   {"True", &kin_the_true}, {"false", &kin_the_false},
                     {"False", &kin_the_false}, {"none", &kin_the_none}, {"None", &kin_the_none}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (kin_parser_at_name(p, constants[i].name)) return kin_parser_advance(p) ? constant(p, constants[i].value) : NULL;
    kin_node *node = kin_parser_node(p, KIN_NODE_NAME);
    if (!node || !kin_parser_intern(p, node, p->token.text)) return NULL;
    node->row = kin_global_find(p->token.text);
    if (node->name == KIN_NAME_CALLER) p->macro_uses |= KIN_MACRO_CALLER;
    if (node->name == KIN_NAME_VARARGS) p->macro_uses |= KIN_MACRO_VARARGS;
    if (node->name == KIN_NAME_KWARGS) p->macro_uses |= KIN_MACRO_KWARGS;
    return kin_parser_advance(p) ? kin_parser_finish(p, node, (kin_nodes){0}) : NULL;
}

// Parses one string, or several adjacent ones, which are concatenated.
static kin_node *parse_string(kin_parser *p) {
    kin_str text = p->token.text;
    if (!kin_parser_advance(p)) return NULL;
    while (p->token.kind == KIN_LEX_STRING) {
        char *joined = kin_values_alloc(p->heap, text.len + p->token.text.len + 1);
        if (!joined) return kin_parser_fail(p, "out of memory");
        memcpy(joined, text.at, text.len);
        memcpy(joined + text.len, p->token.text.at, p->token.text.len);
        text = (kin_str){joined, text.len + p->token.text.len};
        if (!kin_parser_advance(p)) return NULL;
    }
    return constant(p, kin_value_of_bytes(p->heap, text.at, text.len, KIN_ORIGIN_TEMPLATE));
}

static kin_node *parse_number(kin_parser *p) {
    bool is_float = p->token.kind == KIN_LEX_FLOAT;
    const kin_value *value = is_float ? kin_value_float(p->heap, p->token.f) : kin_value_int(p->heap, p->token.i);
    return kin_parser_advance(p) ? constant(p, value) : NULL;
}

// Parses "[a, b]" or "{a: b, c: d}" from the bracket on; a trailing comma is allowed.
static kin_node *parse_items(kin_parser *p, kin_node_kind kind, uint16_t close) {
    kin_node *node = kin_parser_node(p, kind);
    kin_nodes kids = {0};
    if (!node || !kin_parser_advance(p)) return NULL;
    while (!kin_parser_at_op(p, close)) {
        if (kids.n > 0 && !kin_parser_expect_op(p, ',')) return NULL;
        if (kin_parser_at_op(p, close)) break;
        if (!kin_parser_push(p, &kids, kin_parse_expression(p))) return NULL;
        if (kind != KIN_NODE_DICT) continue;
        if (!kin_parser_expect_op(p, ':') || !kin_parser_push(p, &kids, kin_parse_expression(p))) return NULL;
    }
    return kin_parser_advance(p) ? kin_parser_finish(p, node, kids) : NULL;
}

static kin_node *parse_brackets(kin_parser *p) {
    if (!kin_parser_advance(p)) return NULL;
    kin_node *node = NULL;
    if (kin_parser_at_op(p, ')'))
        node = kin_parser_finish(p, kin_parser_node(p, KIN_NODE_TUPLE), (kin_nodes){0});
    else
        node = kin_parse_tuple(p, true);
    return node && kin_parser_expect_op(p, ')') ? node : NULL;
}

static kin_node *parse_primary(kin_parser *p) {
    switch (p->token.kind) {
    case KIN_LEX_NAME: return parse_name(p);
    case KIN_LEX_STRING: return parse_string(p);
    case KIN_LEX_INT:
    case KIN_LEX_FLOAT: return parse_number(p);
    default: break;
    }
    if (kin_parser_at_op(p, '(')) return parse_brackets(p);
    if (kin_parser_at_op(p, '[')) return parse_items(p, KIN_NODE_LIST, ']');
    if (kin_parser_at_op(p, '{')) return parse_items(p, KIN_NODE_DICT, '}');
    return kin_parser_fail(p, "expected an expression");
}

// ---- postfix operators: subscripts, calls, filters, tests

// Parses one argument; *named: it has a name, or is *a or **a, after which none without a name may follow.
static kin_node *parse_argument(kin_parser *p, bool *named) {
    bool is_dict = kin_parser_at_op(p, KIN_OP('*', '*'));
    *named = is_dict || kin_parser_at_op(p, '*');
    if (*named) {
        kin_node *spread = kin_parser_node(p, KIN_NODE_SPREAD);
        if (!spread || !kin_parser_advance(p)) return NULL;
        spread->op = is_dict;
        return with_one(p, spread, kin_parse_expression(p));
    }
    if (p->token.kind == KIN_LEX_NAME) {
        const kin_token *next = kin_parser_peek(p);
        if (!next) return NULL;
        *named = next->kind == KIN_LEX_OPERATOR && next->op == '=';
    }
    if (!*named) return kin_parse_expression(p);
    kin_node *node = kin_parser_node(p, KIN_NODE_NAMED);
    if (!node || !kin_parser_intern(p, node, p->token.text) || !kin_parser_advance(p) || !kin_parser_advance(p)) return NULL;
    return with_one(p, node, kin_parse_expression(p));
}

// Parses "(a, b, name=c)".
static bool parse_arguments(kin_parser *p, kin_nodes *kids) {
    bool any_named = false, named;
    if (!kin_parser_expect_op(p, '(')) return false;
    while (!kin_parser_at_op(p, ')')) {
        if (kids->n > 0 && !kin_parser_expect_op(p, ',')) return false;
        if (kin_parser_at_op(p, ')')) break;
        kin_node *argument = parse_argument(p, &named);
        if (!kin_parser_push(p, kids, argument)) return false;
        if (any_named && !named) return kin_parser_fail(p, "a positional argument follows a named one");
        any_named |= named;
    }
    return kin_parser_advance(p);
}

static kin_node *parse_call(kin_parser *p, kin_node *callee) {
    kin_node *node = kin_parser_node(p, KIN_NODE_CALL);
    kin_nodes kids = {0};
    if (!node || !parse_arguments(p, &kids)) return NULL;
    node->a = callee;
    return kin_parser_finish(p, node, kids);
}

static bool ends_slice_part(const kin_parser *p) {
    return kin_parser_at_op(p, ':') || kin_parser_at_op(p, ']') || kin_parser_at_op(p, ',');
}

// Parses the contents of [ ]: an expression or a slice.
static kin_node *parse_subscript_inside(kin_parser *p) {
    kin_node *parts[3] = {NULL}, *slice = kin_parser_node(p, KIN_NODE_SLICE);
    if (!slice) return NULL;
    int i = 0;
    for (;; i++) {
        if (!ends_slice_part(p) && !(parts[i] = kin_parse_expression(p))) return NULL;
        if (i == 2 || !kin_parser_at_op(p, ':')) break;
        if (!kin_parser_advance(p)) return NULL;
    }
    if (i == 0) return parts[0] ? parts[0] : kin_parser_fail(p, "a subscript is empty");
    slice->a = parts[0];
    slice->b = parts[1];
    slice->c = parts[2];
    return kin_parser_finish(p, slice, (kin_nodes){0});
}

static kin_node *parse_subscript(kin_parser *p, kin_node *of) {
    kin_node *node = kin_parser_node(p, KIN_NODE_GETITEM);
    if (!node || !kin_parser_advance(p)) return NULL;
    node = with(p, node, of, parse_subscript_inside(p));
    if (kin_parser_at_op(p, ',')) return kin_parser_fail(p, "subscripts of several expressions are not supported");
    return node && kin_parser_expect_op(p, ']') ? node : NULL;
}

static kin_node *parse_attribute(kin_parser *p, kin_node *of) {
    if (!kin_parser_advance(p)) return NULL;
    if (p->token.kind == KIN_LEX_INT) {
        kin_node *node = kin_parser_node(p, KIN_NODE_GETITEM);
        return with(p, node, of, parse_number(p));
    }
    if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected a name after '.'");
    kin_node *node = kin_parser_node(p, KIN_NODE_GETATTR);
    if (!node || !kin_parser_intern(p, node, p->token.text) || !kin_parser_advance(p)) return NULL;
    return with_one(p, node, of);
}

static kin_node *parse_postfix(kin_parser *p, kin_node *node) {
    while (node) {
        if (kin_parser_at_op(p, '.'))
            node = parse_attribute(p, node);
        else if (kin_parser_at_op(p, '['))
            node = parse_subscript(p, node);
        else if (kin_parser_at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// Parses the name of a filter or test into `node`.
static bool parse_filter_name(kin_parser *p, kin_node *node, kin_node *input) {
    if (!node || !input) return false;
    kin_str name = p->token.text;
    bool more = true;
    while (more) { // "a.b" is one name
        if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected a name");
        name.len = (size_t)(p->token.text.at - name.at) + p->token.text.len;
        if (!kin_parser_advance(p) || !kin_parser_skip_op(p, '.', &more)) return false;
    }
    node->row = node->kind == KIN_NODE_FILTER ? kin_filter_find(name) : kin_test_find(name);
    node->a = input;
    return kin_parser_intern(p, node, name);
}

kin_node *kin_parse_filter(kin_parser *p, kin_node *input) {
    kin_node *node = kin_parser_node(p, KIN_NODE_FILTER);
    kin_nodes kids = {0};
    if (!parse_filter_name(p, node, input)) return NULL;
    if (kin_parser_at_op(p, '(') && !parse_arguments(p, &kids)) return NULL;
    return kin_parse_filters(p, kin_parser_finish(p, node, kids));
}

kin_node *kin_parse_filters(kin_parser *p, kin_node *input) {
    if (!input || !kin_parser_at_op(p, '|')) return input;
    return kin_parser_advance(p) ? kin_parse_filter(p, input) : NULL;
}

// True if an argument of a test without parentheses begins here: "is divisibleby 3".
static bool at_test_argument(const kin_parser *p) {
    if (p->token.kind == KIN_LEX_NAME)
        return !kin_parser_at_name(p, "else") && !kin_parser_at_name(p, "or") && !kin_parser_at_name(p, "and");
    return p->token.kind == KIN_LEX_STRING || p->token.kind == KIN_LEX_INT || p->token.kind == KIN_LEX_FLOAT ||
           kin_parser_at_op(p, '[') || kin_parser_at_op(p, '{');
}

static kin_node *parse_test(kin_parser *p, kin_node *input) {
    kin_node *node = kin_parser_node(p, KIN_NODE_TEST);
    kin_nodes kids = {0};
    bool negated = false;
    if (!node || !kin_parser_advance(p) || !kin_parser_skip_name(p, "not", &negated)) return NULL;
    if (!parse_filter_name(p, node, input)) return NULL;
    if (kin_parser_at_op(p, '(')) {
        if (!parse_arguments(p, &kids)) return NULL;
    } else if (at_test_argument(p)) {
        if (kin_parser_at_name(p, "is")) return kin_parser_fail(p, "two tests with 'is' in a row");
        if (!kin_parser_push(p, &kids, parse_postfix(p, parse_primary(p)))) return NULL;
    }
    node = kin_parser_finish(p, node, kids);
    return negated ? with_one(p, kin_parser_node(p, KIN_NODE_NOT), node) : node;
}

static kin_node *parse_unary(kin_parser *p, bool with_filters) {
    kin_node *node;
    if (!kin_parser_enter(p)) return NULL;
    if (kin_parser_at_op(p, '-') || kin_parser_at_op(p, '+')) {
        kin_node *sign = kin_parser_node(p, kin_parser_at_op(p, '-') ? KIN_NODE_NEGATIVE : KIN_NODE_POSITIVE);
        node = sign && kin_parser_advance(p) ? with_one(p, sign, parse_unary(p, false)) : NULL;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (node && with_filters) {
        if (kin_parser_at_op(p, '|'))
            node = kin_parse_filters(p, node);
        else if (kin_parser_at_name(p, "is"))
            node = parse_test(p, node);
        else if (kin_parser_at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    p->nesting--;
    return node;
}

// ---- operators

static int comparison(kin_parser *p, uint16_t *op) {
    static const uint16_t ops[] = {KIN_OP('=', '='), KIN_OP('!', '='), KIN_OP('<', '='), KIN_OP('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (!kin_parser_at_op(p, ops[i])) continue;
        *op = ops[i];
        return LEVEL_COMPARE;
    }
    if (kin_parser_at_name(p, "in")) {
        *op = KIN_OP_IN;
        return LEVEL_COMPARE;
    }
    if (kin_parser_at_name(p, "not")) {
        const kin_token *next = kin_parser_peek(p);
        if (!next) return KIN_FAIL;
        *op = KIN_OP_NOT_IN;
        if (next->kind == KIN_LEX_NAME && next->text.len == 2 && memcmp(next->text.at, "in", 2) == 0) return LEVEL_COMPARE;
    }
    return 0;
}

// Returns the level of the operator here; 0: there is none; or KIN_FAIL.
static int level_here(kin_parser *p, uint16_t *op) {
    if (p->token.kind == KIN_LEX_NAME) {
        if (kin_parser_at_name(p, "or")) return LEVEL_OR;
        if (kin_parser_at_name(p, "and")) return LEVEL_AND;
        return comparison(p, op);
    }
    if (p->token.kind != KIN_LEX_OPERATOR) return 0;
    *op = p->token.op;
    switch (*op) {
    case '+':
    case '-': return LEVEL_SUM;
    case '~': return LEVEL_CONCAT;
    case '*':
    case '/':
    case '%':
    case KIN_OP('/', '/'): return LEVEL_PRODUCT;
    case KIN_OP('*', '*'): return LEVEL_POWER;
    default: return comparison(p, op);
    }
}

static kin_node *parse_binary(kin_parser *p, int min_level);

// Parses "a < b in c ..." or "a ~ b ~ ...", operators of one level, into one node. The current token is the first operator.
static kin_node *parse_chain(kin_parser *p, kin_node *first, int level) {
    kin_node *node = kin_parser_node(p, level == LEVEL_CONCAT ? KIN_NODE_CONCAT : KIN_NODE_COMPARE);
    kin_nodes kids = {0};
    uint16_t op = 0;
    int here;
    if (!node) return NULL;
    if (level == LEVEL_CONCAT && !kin_parser_push(p, &kids, first)) return NULL;
    if (level == LEVEL_COMPARE) node->a = first;
    while ((here = level_here(p, &op)) == level) {
        if (op == KIN_OP_NOT_IN && !kin_parser_advance(p)) return NULL;
        if (!kin_parser_advance(p)) return NULL;
        kin_node *right = parse_binary(p, level + 1);
        if (level == LEVEL_COMPARE) {
            kin_node *operand = kin_parser_node(p, KIN_NODE_OPERAND);
            if (operand) operand->op = op;
            right = with_one(p, operand, right);
        }
        if (!kin_parser_push(p, &kids, right)) return NULL;
    }
    return here < 0 ? NULL : kin_parser_finish(p, node, kids);
}

static kin_node *parse_binary(kin_parser *p, int min_level) {
    kin_node *left;
    uint16_t op = 0;
    int level;
    if (!kin_parser_enter(p)) return NULL;
    if (min_level <= LEVEL_NOT && kin_parser_at_name(p, "not")) {
        kin_node *node = kin_parser_node(p, KIN_NODE_NOT);
        left = node && kin_parser_advance(p) ? with_one(p, node, parse_binary(p, LEVEL_NOT)) : NULL;
    } else {
        left = parse_unary(p, true);
    }
    while (left && (level = level_here(p, &op)) != 0) {
        if (level < 0) return NULL;
        if (level < min_level) break;
        if (level == LEVEL_CONCAT || level == LEVEL_COMPARE) {
            left = parse_chain(p, left, level);
            continue;
        }
        kin_node *node = kin_parser_node(p, level == LEVEL_OR    ? KIN_NODE_OR
                                            : level == LEVEL_AND ? KIN_NODE_AND
                                                                 : KIN_NODE_BINARY);
        if (!node || !kin_parser_advance(p)) return NULL;
        node->op = op;
        left = with(p, node, left, parse_binary(p, level + 1));
    }
    p->nesting--;
    return left;
}

kin_node *kin_parse_expression(kin_parser *p) {
    kin_node *node = parse_binary(p, LEVEL_OR);
    bool more;
    while (node) {
        if (!kin_parser_skip_name(p, "if", &more)) return NULL;
        if (!more) break;
        kin_node *condition = with(p, kin_parser_node(p, KIN_NODE_CONDITION), node, parse_binary(p, LEVEL_OR));
        if (!condition || !kin_parser_skip_name(p, "else", &more)) return NULL;
        if (more && !(condition->c = kin_parse_expression(p))) return NULL;
        node = kin_parser_finish(p, condition, (kin_nodes){0});
    }
    return node;
}

// True at the end of a tuple without parentheses: the end of a tag, a closing parenthesis, or the "in" of a for.
static bool ends_tuple(const kin_parser *p) {
    return p->token.kind == KIN_LEX_PRINT_END || p->token.kind == KIN_LEX_BLOCK_END || kin_parser_at_op(p, ')') ||
           kin_parser_at_name(p, "in");
}

// Parses expressions separated by commas, each with `parse`.
static kin_node *parse_list(kin_parser *p, kin_node *(*parse)(kin_parser *)) {
    kin_node *tuple = kin_parser_node(p, KIN_NODE_TUPLE);
    kin_nodes kids = {0};
    bool comma = false;
    if (!tuple) return NULL;
    do {
        if (comma && ends_tuple(p)) break;
        if (!kin_parser_push(p, &kids, parse(p))) return NULL;
        bool more;
        if (!kin_parser_skip_op(p, ',', &more)) return NULL;
        if (!more) break;
        comma = true;
    } while (true);
    return comma ? kin_parser_finish(p, tuple, kids) : kids.at[0];
}

static kin_node *parse_without_condition(kin_parser *p) {
    return parse_binary(p, LEVEL_OR);
}

kin_node *kin_parse_tuple(kin_parser *p, bool with_condition) {
    return parse_list(p, with_condition ? kin_parse_expression : parse_without_condition);
}

// ---- assignment targets

static kin_node *parse_target_item(kin_parser *p) {
    bool attribute;
    if (kin_parser_at_op(p, '(')) {
        if (!kin_parser_enter(p) || !kin_parser_advance(p)) return NULL;
        kin_node *inside = kin_parse_target(p);
        p->nesting--;
        return inside && kin_parser_expect_op(p, ')') ? inside : NULL;
    }
    if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected a name as the target of an assignment");
    kin_node *name = parse_name(p);
    if (!name) return NULL;
    if (name->kind != KIN_NODE_NAME) return kin_parser_fail(p, "a constant cannot be assigned to");
    if (name->name == KIN_NAME_LOOP && p->loops > 0) return kin_parser_fail(p, "'loop' cannot be assigned to in a loop");
    if (!kin_parser_skip_op(p, '.', &attribute)) return NULL;
    if (!attribute) return name;
    if (p->token.kind != KIN_LEX_NAME) return kin_parser_fail(p, "expected a name after '.'");
    kin_node *node = kin_parser_node(p, KIN_NODE_ATTRIBUTE);
    if (!node || !kin_parser_intern(p, node, p->token.text) || !kin_parser_advance(p)) return NULL;
    return with_one(p, node, name);
}

kin_node *kin_parse_target(kin_parser *p) {
    return parse_list(p, parse_target_item);
}
