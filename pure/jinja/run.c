// Executes statements: scopes, loops, macros.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pure/jinja/functions.h"

int kin_shown_len(const char *at, size_t len, size_t max) {
    if (len <= max) return (int)len;
    while (max > 0 && ((unsigned char)at[max] & 0xc0) == 0x80) max--;
    return (int)max;
}

void *kin_state_fail(kin_state *state, const char *format, ...) {
    char text[sizeof state->err->text];
    if (state->failed || kin_values_error(state->values)) return NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kin_err_set(state->err, "line %u: %s", state->line, text);
    state->failed = true;
    return NULL;
}

// ---- scopes

static kin_scope *new_scope(kin_state *state, kin_scope *parent) {
    kin_scope *scope = kin_values_alloc(state->values, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

bool kin_scope_set(kin_state *state, uint32_t name, const kin_value *value) {
    kin_scope *scope = state->scope;
    size_t i = 0;
    if (!value || !kin_values_charge(state->values, scope->n / 8)) return false;
    while (i < scope->n && scope->at[i].name != name) i++;
    if (i == scope->cap) {
        size_t cap = scope->cap ? 2 * scope->cap : 4;
        kin_variable *at = kin_values_alloc(state->values, cap * sizeof *at);
        if (!at) return false;
        if (scope->n > 0) memcpy(at, scope->at, scope->n * sizeof *at);
        scope->at = at;
        scope->cap = cap;
    }
    if (i == scope->n) scope->n++;
    scope->at[i] = (kin_variable){name, value};
    return true;
}

const kin_value *kin_scope_get(kin_state *state, uint32_t name) {
    for (const kin_scope *scope = state->scope; scope; scope = scope->parent) {
        for (size_t i = 0; i < scope->n; i++)
            if (scope->at[i].name == name) return scope->at[i].value;
        kin_values_charge(state->values, scope->n / 8);
    }
    return NULL;
}

// ---- assignments

static bool set_attribute(kin_state *state, const kin_node *target, const kin_value *value) {
    const kin_value *of = kin_eval(state, target->a);
    if (!of) return false;
    if (of->kind != KIN_KIND_NAMESPACE)
        return kin_state_fail(state, "attributes can be set only on a namespace, not on a %s", kin_value_type_name(of));
    return kin_pairs_put(state->values, of->pairs, target->value, value);
}

static bool assign(kin_state *state, const kin_node *target, const kin_value *value) {
    if (target->kind == KIN_NODE_NAME) return kin_scope_set(state, target->name, value);
    if (target->kind == KIN_NODE_ATTRIBUTE) return set_attribute(state, target, value);
    kin_items items;
    if (!kin_iterate(state, value, &items)) return false;
    if (items.n != target->n_kids)
        return kin_state_fail(state, "cannot unpack %zu values into %zu names", items.n, target->n_kids);
    for (size_t i = 0; i < items.n; i++)
        if (!assign(state, target->kids[i], items.at[i])) return false;
    return true;
}

// ---- captured output

// Runs the body and returns its output as a string.
static const kin_value *capture(kin_state *state, const kin_node *body) {
    kin_pieces *outer = state->out, pieces = {.values = state->values};
    state->out = &pieces;
    bool ran = kin_run(state, body);
    state->out = outer;
    return ran ? kin_pieces_join(&pieces) : NULL;
}

// Returns the value of a block set or a filter block: an expression of the body's output. *leaves: break or continue left the
// body, and there is no value.
static const kin_value *eval_captured(kin_state *state, const kin_node *node, bool *leaves) {
    kin_scope *outer = state->scope;
    *leaves = false;
    if (!(state->scope = new_scope(state, outer))) return NULL;
    const kin_value *captured = capture(state, node->c), *value = NULL;
    *leaves = captured && state->flow != KIN_FLOW_ON;
    if (captured && !*leaves) {
        state->captured = captured;
        value = kin_eval(state, node->b);
    }
    state->scope = outer;
    return value;
}

static bool run_set_block(kin_state *state, const kin_node *node) {
    bool leaves;
    const kin_value *value = eval_captured(state, node, &leaves);
    return leaves || (value && assign(state, node->a, value));
}

// ---- macros

static const kin_value *make_macro(kin_state *state, const kin_node *node) {
    kin_value *macro = kin_value_new(state->values, KIN_KIND_MACRO);
    if (!macro) return NULL;
    macro->macro.node = node;
    macro->macro.closure = state->scope;
    return macro;
}

static bool same_name(kin_str a, const kin_string *b) {
    return a.len == b->len && memcmp(a.at, b->at, a.len) == 0;
}

// Returns the named argument for a parameter that has no positional one, and marks it in used [n_named]; NULL: not given.
static const kin_value *named_argument(const kin_arguments *all, const kin_string *parameter, bool *used) {
    for (size_t i = 0; i < all->n_named; i++) {
        if (used[i] || !same_name(all->named[i].name, parameter)) continue;
        used[i] = true;
        return all->named[i].value;
    }
    return NULL;
}

static bool bind_parameters(kin_state *state, const kin_node *node, const kin_arguments *all, bool *used) {
    for (size_t i = 0; i < node->n_kids; i++) {
        const kin_node *parameter = node->kids[i];
        const kin_value *value = i < all->n ? all->at[i] : named_argument(all, &parameter->value->s, used);
        if (!value) value = parameter->a ? kin_eval(state, parameter->a) : &kin_the_undefined;
        if (!kin_scope_set(state, parameter->name, value)) return false;
    }
    return true;
}

static const kin_string caller_name = {.at = "caller", .len = 6};

// Binds caller, kwargs and varargs if the macro uses them; otherwise remaining arguments are an error.
static bool bind_rest(kin_state *state, const kin_node *node, const kin_arguments *all, bool *used) {
    if (node->op & KIN_MACRO_CALLER) {
        const kin_value *value = named_argument(all, &caller_name, used);
        if (!kin_scope_set(state, KIN_NAME_CALLER, value ? value : &kin_the_undefined)) return false;
    }
    kin_value *kwargs = node->op & KIN_MACRO_KWARGS ? kin_value_dict(state->values) : NULL;
    if (kwargs && !kin_scope_set(state, KIN_NAME_KWARGS, kwargs)) return false;
    for (size_t i = 0; i < all->n_named; i++) {
        kin_str name = all->named[i].name;
        if (used[i]) continue;
        if (!kwargs)
            return kin_state_fail(state, "macro %.*s has no parameter '%.*s'", KIN_SHOWN(node->value->s), KIN_SHOWN(name));
        const kin_value *key = kin_value_of_bytes(state->values, name.at, name.len, KIN_ORIGIN_TEMPLATE);
        if (!kin_pairs_put(state->values, kwargs->pairs, key, all->named[i].value)) return false;
    }
    size_t n_rest = all->n > node->n_kids ? all->n - node->n_kids : 0;
    if (node->op & KIN_MACRO_VARARGS) {
        kin_items rest = {.at = all->at + all->n - n_rest, .n = n_rest};
        return kin_scope_set(state, KIN_NAME_VARARGS, kin_value_of_items(state->values, KIN_KIND_TUPLE, rest));
    }
    if (n_rest > 0)
        return kin_state_fail(state, "macro %.*s takes at most %zu arguments", KIN_SHOWN(node->value->s), node->n_kids);
    return true;
}

const kin_value *kin_macro_call(kin_state *state, const kin_value *macro, const kin_arguments *all) {
    const kin_node *node = macro->macro.node;
    kin_scope *outer = state->scope;
    const kin_value *captured = state->captured, *text = NULL;
    bool *used = kin_values_alloc(state->values, all->n_named);
    if (!used || !(state->scope = new_scope(state, macro->macro.closure))) return NULL;
    if (bind_parameters(state, node, all, used) && bind_rest(state, node, all, used)) text = capture(state, node->a);
    state->scope = outer;
    state->captured = captured;
    return text;
}

static bool print(kin_state *state, const kin_value *value) {
    const kin_value *text = value ? kin_str_of(state, value) : NULL;
    if (!text) return false;
    kin_pieces_add(state->out, text->s);
    return true;
}

static bool run_filter_block(kin_state *state, const kin_node *node) {
    bool leaves;
    const kin_value *value = eval_captured(state, node, &leaves);
    return leaves || print(state, value);
}

static bool run_call_block(kin_state *state, const kin_node *node) {
    const kin_value *caller = make_macro(state, node->b);
    return caller && print(state, kin_eval_call(state, node->a, caller));
}

// ---- loops

// Keeps only the items for which the filter holds.
static bool filter_items(kin_state *state, const kin_node *node, kin_items *items) {
    kin_items kept = {0};
    for (size_t i = 0; i < items->n; i++) {
        state->scope->n = 0;
        const kin_value *holds = assign(state, node->a, items->at[i]) ? kin_eval(state, node->c) : NULL;
        if (!holds) return false;
        if (kin_value_truth(holds) && !kin_items_push(state->values, &kept, items->at[i])) return false;
    }
    *items = kept;
    return true;
}

// Runs the body for each item, in the scope inside of `outer`. *completed: at least one iteration reached its end, so the else
// body is skipped.
static bool run_items(kin_state *state, const kin_node *node, const kin_items *items, int depth0, bool *completed) {
    kin_value *value = kin_value_new(state->values, KIN_KIND_LOOP);
    kin_loop *loop = kin_values_alloc(state->values, sizeof *loop);
    if (!value || !loop) return false;
    loop->items = items;
    loop->recursive = node->op ? node : NULL;
    loop->outer = state->scope->parent;
    loop->depth0 = depth0;
    value->loop = loop;
    for (size_t i = 0; i < items->n && state->flow != KIN_FLOW_BREAK; i++) {
        loop->index0 = i;
        state->scope->n = 0;
        state->flow = KIN_FLOW_ON;
        if (!kin_values_charge(state->values, 1) || !kin_scope_set(state, KIN_NAME_LOOP, value) ||
            !assign(state, node->a, items->at[i]))
            return false;
        if (!kin_run(state, node->kids[0])) return false;
        *completed |= state->flow == KIN_FLOW_ON;
    }
    state->flow = KIN_FLOW_ON;
    return true;
}

static bool run_loop(kin_state *state, const kin_node *node, const kin_value *of, int depth0) {
    kin_scope *outer = state->scope;
    kin_items *items = kin_values_alloc(state->values, sizeof *items); // allocated, because a namespace may keep the loop
    bool completed = false;
    if (!of || !items || !kin_iterate(state, of, items) || !(state->scope = new_scope(state, outer))) return false;
    bool ok = (!node->c || filter_items(state, node, items)) && run_items(state, node, items, depth0, &completed);
    if (ok && !completed && node->n_kids > 1) {
        state->scope = new_scope(state, outer);
        ok = state->scope && kin_run(state, node->kids[1]);
    }
    state->scope = outer;
    return ok;
}

static bool run_for(kin_state *state, const kin_node *node) {
    return run_loop(state, node, kin_eval(state, node->b), 0);
}

const kin_value *kin_loop_call(kin_state *state, const kin_value *value, const kin_arguments *all) {
    const kin_loop *loop = value->loop;
    kin_scope *outer = state->scope;
    kin_pieces *out = state->out, pieces = {.values = state->values};
    if (!loop->recursive) return kin_state_fail(state, "a loop that is not recursive cannot be called");
    if (all->n != 1 || all->n_named > 0) return kin_state_fail(state, "a recursive loop is called with its items");
    if (++state->depth > KIN_JINJA_MAX_DEPTH) return kin_state_fail(state, "loops are nested too deep");
    state->scope = loop->outer;
    state->out = &pieces;
    bool ran = run_loop(state, loop->recursive, all->at[0], loop->depth0 + 1);
    state->out = out;
    state->scope = outer;
    state->depth--;
    return ran ? kin_pieces_join(&pieces) : NULL;
}

// ---- other statements

static bool run_if(kin_state *state, const kin_node *node) {
    size_t i = 0;
    for (; i + 1 < node->n_kids; i += 2) {
        const kin_value *test = kin_eval(state, node->kids[i]);
        if (!test) return false;
        if (kin_value_truth(test)) return kin_run(state, node->kids[i + 1]);
    }
    return i == node->n_kids || kin_run(state, node->kids[i]);
}

static bool run_scope(kin_state *state, const kin_node *node) {
    kin_scope *outer = state->scope, *inner = new_scope(state, outer);
    bool ok = inner != NULL;
    for (size_t i = 0; i < node->n_kids && ok; i++) {
        const kin_value *value = kin_eval(state, node->kids[i]->b); // in the enclosing scope
        state->scope = inner;
        ok = value && assign(state, node->kids[i]->a, value);
        state->scope = outer;
    }
    state->scope = inner;
    ok = ok && kin_run(state, node->a);
    state->scope = outer;
    return ok;
}

static bool run_set(kin_state *state, const kin_node *node) {
    const kin_value *value = kin_eval(state, node->b);
    return value && assign(state, node->a, value);
}

static bool run_statement(kin_state *state, const kin_node *node) {
    switch (node->kind) {
    case KIN_NODE_DATA: kin_pieces_add(state->out, node->value->s); return true;
    case KIN_NODE_PRINT: return print(state, kin_eval(state, node->a));
    case KIN_NODE_IF: return run_if(state, node);
    case KIN_NODE_FOR: return run_for(state, node);
    case KIN_NODE_SET: return run_set(state, node);
    case KIN_NODE_SET_BLOCK: return run_set_block(state, node);
    case KIN_NODE_MACRO: return kin_scope_set(state, node->name, make_macro(state, node));
    case KIN_NODE_CALL_BLOCK: return run_call_block(state, node);
    case KIN_NODE_SCOPE: return run_scope(state, node);
    case KIN_NODE_FILTERED: return run_filter_block(state, node);
    case KIN_NODE_BREAK: state->flow = KIN_FLOW_BREAK; return true;
    case KIN_NODE_CONTINUE: state->flow = KIN_FLOW_CONTINUE; return true;
    default: kin_assert(!"a statement");
    }
}

bool kin_run(kin_state *state, const kin_node *body) {
    if (++state->depth > KIN_JINJA_MAX_DEPTH) {
        kin_state_fail(state, "macros and expressions are nested too deeply");
        return false;
    }
    for (size_t i = 0; i < body->n_kids && state->flow == KIN_FLOW_ON; i++) {
        state->line = body->kids[i]->line;
        if (!kin_values_charge(state->values, 1) || !run_statement(state, body->kids[i])) return false;
    }
    state->depth--;
    return kin_values_error(state->values) == NULL;
}
