// Calls of functions, and the global functions of templates.
#include "pure/jinja/functions.h"

#include <string.h>

#include "pure/jinja/date.h"

// ---- arguments

// Returns the index of the row's parameter of that name; KIN_MAX_PARAMETERS: none.
static int parameter_of(const kin_function *row, kin_str name) {
    const char *at = row->parameters;
    for (int i = 0; *at && i < KIN_MAX_PARAMETERS; i++) {
        size_t len = strcspn(at, " ");
        if (len == name.len && memcmp(at, name.at, len) == 0) return i;
        at += len + (at[len] == ' ');
    }
    return KIN_MAX_PARAMETERS;
}

static int n_parameters(const kin_function *row) {
    int n = 0;
    for (const char *at = row->parameters; *at; at++) n += *at == ' ';
    return n;
}

const kin_value *kin_function_call(kin_state *state, const kin_function *row, const kin_value *self, const kin_arguments *all) {
    const kin_value *arg[KIN_MAX_PARAMETERS + 1] = {NULL};
    if (!row->parameters) return row->body(state, self, arg, all);
    int n = n_parameters(row);
    if (all->n > (size_t)n) return kin_state_fail(state, "%s takes at most %d arguments, not %zu", row->name, n, all->n);
    for (size_t i = 0; i < all->n; i++) arg[i] = all->at[i];
    for (size_t i = 0; i < all->n_named; i++) {
        int k = parameter_of(row, all->named[i].name);
        if (k == KIN_MAX_PARAMETERS || arg[k])
            return kin_state_fail(state, "%s does not support the argument '%.*s'", row->name, KIN_SHOWN(all->named[i].name));
        arg[k] = all->named[i].value;
    }
    for (int i = 0; i < row->n_required; i++)
        if (!arg[i]) return kin_state_fail(state, "%s needs %d arguments", row->name, row->n_required);
    return row->body(state, self, arg, all);
}

// ---- globals

static const kin_value *raise_exception(kin_state *state, const kin_value *self, const kin_value **arg,
                                        const kin_arguments *all) {
    (void)self, (void)all;
    const kin_value *message = kin_str_of(state, arg[0]);
    if (!message) return NULL;
    return kin_state_fail(state, "the template rejected the conversation: %.*s",
                          kin_shown_len(message->s.at, message->s.len, 400), message->s.at);
}

static const kin_value *strftime_now(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all) {
    (void)self, (void)all;
    if (arg[0]->kind != KIN_KIND_STRING) return kin_state_fail(state, "strftime_now needs a string");
    return kin_date_format(state, &arg[0]->s);
}

// Adds the pairs of a dict, then the named arguments, as Python's dict() and Jinja's namespace() do.
static bool put_all(kin_state *state, kin_pairs *pairs, const kin_arguments *all) {
    if (all->n > 1 || (all->n == 1 && all->at[0]->kind != KIN_KIND_DICT))
        return kin_state_fail(state, "expected a dict and named arguments");
    for (size_t i = 0; all->n == 1 && i < all->at[0]->pairs->n; i++)
        if (!kin_pairs_put(state->values, pairs, all->at[0]->pairs->at[i].key, all->at[0]->pairs->at[i].item)) return false;
    for (size_t i = 0; i < all->n_named; i++) {
        kin_str name = all->named[i].name;
        const kin_value *key = kin_value_of_bytes(state->values, name.at, name.len, KIN_ORIGIN_TEMPLATE);
        if (!kin_pairs_put(state->values, pairs, key, all->named[i].value)) return false;
    }
    return true;
}

static const kin_value *make_dict(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all) {
    (void)self, (void)arg;
    kin_value *dict = kin_value_dict(state->values);
    return dict && put_all(state, dict->pairs, all) && kin_value_set_depth(state->values, dict) ? dict : NULL;
}

static const kin_value *make_namespace(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all) {
    (void)self, (void)arg;
    kin_value *made = kin_value_new(state->values, KIN_KIND_NAMESPACE);
    if (!made || !(made->pairs = kin_values_alloc(state->values, sizeof *made->pairs))) return NULL;
    return put_all(state, made->pairs, all) ? made : NULL;
}

enum { MAX_RANGE = 100000 }; // the sandbox's limit

static const kin_value *make_range(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all) {
    (void)self, (void)arg;
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < all->n && i < 3; i++) {
        if (!kin_value_is_integer(all->at[i])) return kin_state_fail(state, "range needs integers");
        bounds[all->n == 1 ? 1 : i] = kin_value_integer(all->at[i]);
    }
    if (all->n < 1 || all->n > 3 || all->n_named > 0) return kin_state_fail(state, "range takes 1 to 3 integers");
    if (bounds[2] == 0) return kin_state_fail(state, "the step of a range must not be 0");
    kin_items items = {0};
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (items.n == MAX_RANGE) return kin_state_fail(state, "a range must have at most %d numbers", MAX_RANGE);
        const kin_value *number = kin_value_int(state->values, i);
        if (!kin_values_charge(state->values, 1) || !kin_items_push(state->values, &items, number)) return NULL;
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return kin_value_of_items(state->values, KIN_KIND_RANGE, items);
}

static const kin_function globals[] = {
    {"raise_exception", "message ", 1, raise_exception},
    {"strftime_now", "format ", 1, strftime_now},
    {"namespace", NULL, 0, make_namespace},
    {"dict", NULL, 0, make_dict},
    {"range", NULL, 0, make_range},
    {NULL, NULL, 0, NULL},
};

const kin_function *kin_global_find(kin_str name) {
    return kin_function_find(globals, name);
}

const kin_function *kin_function_find(const kin_function *rows, kin_str name) {
    for (; rows->name; rows++)
        if (strlen(rows->name) == name.len && memcmp(rows->name, name.at, name.len) == 0) return rows;
    return NULL;
}
