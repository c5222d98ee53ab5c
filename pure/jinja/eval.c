// Evaluates expressions by walking the tree.
#include <string.h>

#include "pure/jinja/functions.h"
#include "pure/jinja/lexer.h"
#include "pure/jinja/slice.h"

static const kin_value *eval_name(kin_state *state, const kin_node *node) {
    const kin_value *value = kin_scope_get(state, node->name);
    if (!value) value = kin_pairs_find(state->values, state->variables, node->value);
    if (value) return value;
    kin_value *made = kin_value_new(state->values, node->row ? KIN_KIND_FUNCTION : KIN_KIND_UNDEFINED);
    if (!made) return NULL;
    if (node->row)
        made->function.row = node->row;
    else
        made->name = (kin_str){node->value->s.at, node->value->s.len};
    return made;
}

static const kin_value *eval_items(kin_state *state, const kin_node *node) {
    kin_items items = {0};
    for (size_t i = 0; i < node->n_kids; i++)
        if (!kin_items_push(state->values, &items, kin_eval(state, node->kids[i]))) return NULL;
    return kin_value_of_items(state->values, node->kind == KIN_NODE_LIST ? KIN_KIND_LIST : KIN_KIND_TUPLE, items);
}

static const kin_value *eval_dict(kin_state *state, const kin_node *node) {
    kin_value *dict = kin_value_dict(state->values);
    if (!dict) return NULL;
    for (size_t i = 0; i < node->n_kids; i += 2) {
        const kin_value *key = kin_eval(state, node->kids[i]);
        const kin_value *item = key ? kin_eval(state, node->kids[i + 1]) : NULL;
        if (!item) return NULL;
        if (!kin_value_hashable(key)) return kin_state_fail(state, "a %s cannot be a dict key", kin_value_type_name(key));
        if (!kin_pairs_put(state->values, dict->pairs, key, item)) return NULL;
    }
    return kin_value_set_depth(state->values, dict) ? dict : NULL;
}

// Arguments that are being collected.
typedef struct collected {
    kin_items at;
    kin_named_argument *named; // [n_named]
    size_t n_named, cap_named;
} collected;

static bool add_named(kin_state *state, collected *c, kin_str name, const kin_value *value) {
    for (size_t i = 0; i < c->n_named; i++) {
        kin_str other = c->named[i].name;
        if (other.len == name.len && memcmp(other.at, name.at, name.len) == 0)
            return kin_state_fail(state, "an argument '%.*s' is there twice", KIN_SHOWN(name));
    }
    if (c->n_named == c->cap_named) {
        size_t cap = 2 * c->cap_named + 4;
        kin_named_argument *larger = kin_values_alloc(state->values, cap * sizeof *larger);
        if (!larger) return false;
        if (c->n_named > 0) memcpy(larger, c->named, c->n_named * sizeof *larger);
        c->named = larger;
        c->cap_named = cap;
    }
    c->named[c->n_named++] = (kin_named_argument){name, value};
    return kin_values_charge(state->values, 1 + c->n_named / 8);
}

// Adds the items of *value, or the pairs of **value.
static bool add_spread(kin_state *state, collected *c, const kin_value *value, bool is_dict) {
    kin_items items;
    if (!is_dict) {
        if (!kin_iterate(state, value, &items)) return false;
        for (size_t i = 0; i < items.n; i++)
            if (!kin_items_push(state->values, &c->at, items.at[i])) return false;
        return true;
    }
    if (value->kind != KIN_KIND_DICT) return kin_state_fail(state, "** needs a dict, not a %s", kin_value_type_name(value));
    for (size_t i = 0; i < value->pairs->n; i++) {
        const kin_value *key = value->pairs->at[i].key;
        if (key->kind != KIN_KIND_STRING) return kin_state_fail(state, "** needs a dict whose keys are strings");
        if (!add_named(state, c, (kin_str){key->s.at, key->s.len}, value->pairs->at[i].item)) return false;
    }
    return true;
}

static bool eval_arguments(kin_state *state, const kin_node *node, kin_arguments *all) {
    collected c = {.n_named = 0};
    for (size_t i = 0; i < node->n_kids; i++) {
        const kin_node *kid = node->kids[i];
        bool has_name = kid->kind == KIN_NODE_NAMED, is_spread = kid->kind == KIN_NODE_SPREAD;
        const kin_value *value = kin_eval(state, has_name || is_spread ? kid->a : kid);
        if (!value) return false;
        bool ok = has_name    ? add_named(state, &c, (kin_str){kid->value->s.at, kid->value->s.len}, value)
                  : is_spread ? add_spread(state, &c, value, kid->op)
                              : kin_items_push(state->values, &c.at, value);
        if (!ok) return false;
    }
    *all = (kin_arguments){.at = c.at.at, .n = c.at.n, .named = c.named, .n_named = c.n_named};
    return true;
}

const kin_value *kin_eval_call(kin_state *state, const kin_node *node, const kin_value *caller) {
    kin_arguments all;
    const kin_value *callee = kin_eval(state, node->a);
    if (!callee || !eval_arguments(state, node, &all)) return NULL;
    if (caller) {
        kin_named_argument *named = kin_values_alloc(state->values, (all.n_named + 1) * sizeof *named);
        if (!named) return NULL;
        for (size_t i = 0; i < all.n_named; i++) named[i] = all.named[i];
        named[all.n_named++] = (kin_named_argument){{"caller", 6}, caller};
        all.named = named;
    }
    if (callee->kind == KIN_KIND_LOOP) return kin_loop_call(state, callee, &all);
    if (callee->kind == KIN_KIND_MACRO) return kin_macro_call(state, callee, &all);
    if (callee->kind == KIN_KIND_FUNCTION) return kin_function_call(state, callee->function.row, callee->function.self, &all);
    if (callee->kind == KIN_KIND_UNDEFINED)
        return kin_state_fail(state, "'%.*s' is undefined: it cannot be called", KIN_SHOWN(callee->name));
    return kin_state_fail(state, "a %s cannot be called", kin_value_type_name(callee));
}

static const kin_value *eval_filter(kin_state *state, const kin_node *node) {
    kin_arguments all;
    const kin_value *input = kin_eval(state, node->a);
    if (!input || !eval_arguments(state, node, &all)) return NULL;
    if (node->row) return kin_function_call(state, node->row, input, &all);
    return kin_state_fail(state, "unknown %s '%.*s'", node->kind == KIN_NODE_FILTER ? "filter" : "test",
                          KIN_SHOWN(node->value->s));
}

static const kin_value *eval_sign(kin_state *state, const kin_node *node) {
    const kin_value *value = kin_eval(state, node->a);
    if (!value) return NULL;
    kin_value zero = {.kind = KIN_KIND_INT};
    if (!kin_value_is_number(value)) return kin_state_fail(state, "a %s has no sign", kin_value_type_name(value));
    if (node->kind == KIN_NODE_NEGATIVE && value->kind == KIN_KIND_FLOAT) return kin_value_float(state->values, -value->f);
    return kin_binary(state, node->kind == KIN_NODE_NEGATIVE ? '-' : '+', &zero, value);
}

static const kin_value *eval_binary(kin_state *state, const kin_node *node) {
    const kin_value *a = kin_eval(state, node->a), *b = a ? kin_eval(state, node->b) : NULL;
    return b ? kin_binary(state, node->op, a, b) : NULL;
}

static const kin_value *eval_and_or(kin_state *state, const kin_node *node) {
    const kin_value *a = kin_eval(state, node->a);
    if (!a || kin_value_truth(a) == (node->kind == KIN_NODE_OR)) return a;
    return kin_eval(state, node->b);
}

static const kin_value *eval_concat(kin_state *state, const kin_node *node) {
    const kin_value *sum = NULL;
    for (size_t i = 0; i < node->n_kids; i++) {
        const kin_value *value = kin_eval(state, node->kids[i]);
        const kin_value *text = value ? kin_str_of(state, value) : NULL;
        if (!text) return NULL;
        sum = sum ? kin_string_concat(state->values, &sum->s, &text->s) : text;
        if (!sum) return NULL;
    }
    return sum;
}

static const kin_value *eval_compare(kin_state *state, const kin_node *node) {
    const kin_value *left = kin_eval(state, node->a);
    for (size_t i = 0; left && i < node->n_kids; i++) {
        const kin_value *right = kin_eval(state, node->kids[i]->a);
        if (!right) return NULL;
        int holds = kin_compare(state, node->kids[i]->op, left, right);
        if (holds < 0) return NULL;
        if (!holds) return &kin_the_false;
        left = right;
    }
    return left ? &kin_the_true : NULL;
}

static const kin_value *eval_condition(kin_state *state, const kin_node *node) {
    const kin_value *test = kin_eval(state, node->b);
    if (!test) return NULL;
    if (kin_value_truth(test)) return kin_eval(state, node->a);
    return node->c ? kin_eval(state, node->c) : &kin_the_undefined;
}

static const kin_value *eval_slice(kin_state *state, const kin_value *of, const kin_node *slice) {
    const kin_node *parts[3] = {slice->a, slice->b, slice->c};
    const kin_value *bounds[3];
    for (int i = 0; i < 3; i++)
        if (!(bounds[i] = parts[i] ? kin_eval(state, parts[i]) : &kin_the_none)) return NULL;
    return kin_slice(state, of, bounds);
}

static const kin_value *eval_getitem(kin_state *state, const kin_node *node) {
    const kin_value *of = kin_eval(state, node->a);
    if (!of) return NULL;
    if (node->b->kind == KIN_NODE_SLICE) return eval_slice(state, of, node->b);
    const kin_value *key = kin_eval(state, node->b);
    return key ? kin_get_item(state, of, key) : NULL;
}

static const kin_value *eval_getattr(kin_state *state, const kin_node *node) {
    const kin_value *of = kin_eval(state, node->a);
    return of ? kin_get_attribute(state, of, node->value) : NULL;
}

static const kin_value *eval_not(kin_state *state, const kin_node *node) {
    const kin_value *value = kin_eval(state, node->a);
    return value ? kin_value_of_bool(!kin_value_truth(value)) : NULL;
}

static const kin_value *eval_node(kin_state *state, const kin_node *node) {
    switch (node->kind) {
    case KIN_NODE_CONST: return node->value;
    case KIN_NODE_NAME: return eval_name(state, node);
    case KIN_NODE_LIST:
    case KIN_NODE_TUPLE: return eval_items(state, node);
    case KIN_NODE_DICT: return eval_dict(state, node);
    case KIN_NODE_GETATTR: return eval_getattr(state, node);
    case KIN_NODE_GETITEM: return eval_getitem(state, node);
    case KIN_NODE_CALL: return kin_eval_call(state, node, NULL);
    case KIN_NODE_FILTER:
    case KIN_NODE_TEST: return eval_filter(state, node);
    case KIN_NODE_NOT: return eval_not(state, node);
    case KIN_NODE_NEGATIVE:
    case KIN_NODE_POSITIVE: return eval_sign(state, node);
    case KIN_NODE_BINARY: return eval_binary(state, node);
    case KIN_NODE_AND:
    case KIN_NODE_OR: return eval_and_or(state, node);
    case KIN_NODE_CONCAT: return eval_concat(state, node);
    case KIN_NODE_COMPARE: return eval_compare(state, node);
    case KIN_NODE_CONDITION: return eval_condition(state, node);
    case KIN_NODE_CAPTURED: return state->captured;
    default: kin_assert(!"an expression");
    }
}

const kin_value *kin_eval(kin_state *state, const kin_node *node) {
    state->line = node->line;
    if (!kin_values_charge(state->values, 1)) return NULL;
    if (++state->depth > KIN_JINJA_MAX_DEPTH) return kin_state_fail(state, "macros and expressions are nested too deeply");
    const kin_value *value = eval_node(state, node);
    state->depth--;
    return value;
}
