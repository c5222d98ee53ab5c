// Methods of strings, lists and dicts, and of the loop. Mutating methods are missing, as in Jinja's sandbox.
#include <string.h>

#include "pure/jinja/format.h"
#include "pure/jinja/words.h"

#define METHOD(name)                                                                                                             \
    static const kin_value *name(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all)
#define UNUSED (void)state, (void)self, (void)arg, (void)all

// Reads an optional string argument; none counts as missing. Returns false after kin_state_fail.
static bool string_argument(kin_state *state, const kin_value *arg, const kin_string **s) {
    *s = NULL;
    if (!arg || arg->kind == KIN_KIND_NONE) return true;
    if (arg->kind == KIN_KIND_STRING) *s = &arg->s;
    return *s || kin_state_fail(state, "a method of strings needs a string, not a %s", kin_value_type_name(arg));
}

static bool integer_argument(kin_state *state, const kin_value *arg, int64_t *i) {
    if (!arg) return true;
    if (!kin_value_is_integer(arg)) return kin_state_fail(state, "a method needs an integer, not a %s", kin_value_type_name(arg));
    *i = kin_value_integer(arg);
    return true;
}

// ---- letters

METHOD(str_upper) {
    UNUSED;
    return kin_string_case(state->values, &self->s, KIN_CASE_UPPER);
}

METHOD(str_lower) {
    UNUSED;
    return kin_string_case(state->values, &self->s, KIN_CASE_LOWER);
}

METHOD(str_capitalize) {
    UNUSED;
    return kin_string_case(state->values, &self->s, KIN_CASE_CAPITALIZE);
}

METHOD(str_title) {
    UNUSED;
    return kin_string_case(state->values, &self->s, KIN_CASE_TITLE);
}

METHOD(str_isdigit) {
    UNUSED;
    bool digits = self->s.len > 0;
    for (size_t i = 0; i < self->s.len && digits; i++) digits = self->s.at[i] >= '0' && self->s.at[i] <= '9';
    return kin_values_charge(state->values, self->s.len / 8) ? kin_value_of_bool(digits) : NULL;
}

METHOD(str_isspace) {
    UNUSED;
    kin_string rest = kin_string_strip(state->values, &self->s, NULL, KIN_SIDE_LEFT);
    return kin_value_of_bool(self->s.len > 0 && rest.len == 0);
}

// ---- ends

static const kin_value *strip(kin_state *state, const kin_value *self, const kin_value *chars, unsigned sides) {
    const kin_string *s;
    if (!string_argument(state, chars, &s)) return NULL;
    return kin_value_of_string(state->values, kin_string_strip(state->values, &self->s, s, sides));
}

METHOD(str_strip) {
    UNUSED;
    return strip(state, self, arg[0], KIN_SIDE_LEFT | KIN_SIDE_RIGHT);
}

METHOD(str_lstrip) {
    UNUSED;
    return strip(state, self, arg[0], KIN_SIDE_LEFT);
}

METHOD(str_rstrip) {
    UNUSED;
    return strip(state, self, arg[0], KIN_SIDE_RIGHT);
}

static bool has_end(kin_state *state, const kin_string *s, const kin_string *end, kin_side side) {
    if (end->len > s->len || !kin_values_charge_bytes(state->values, end->len)) return false;
    const char *at = side == KIN_SIDE_LEFT ? s->at : s->at + s->len - end->len;
    return memcmp(at, end->at, end->len) == 0;
}

// startswith and endswith, with one string or with a tuple of alternatives.
static const kin_value *has_any_end(kin_state *state, const kin_value *self, const kin_value *ends, kin_side side) {
    kin_items one = {.at = &ends, .n = 1};
    const kin_items *items = ends->kind == KIN_KIND_TUPLE ? ends->items : &one;
    for (size_t i = 0; i < items->n; i++) {
        if (items->at[i]->kind != KIN_KIND_STRING)
            return kin_state_fail(state, "a method of strings needs a string, not a %s", kin_value_type_name(items->at[i]));
        if (has_end(state, &self->s, &items->at[i]->s, side)) return &kin_the_true;
    }
    return &kin_the_false;
}

METHOD(str_startswith) {
    UNUSED;
    return has_any_end(state, self, arg[0], KIN_SIDE_LEFT);
}

METHOD(str_endswith) {
    UNUSED;
    return has_any_end(state, self, arg[0], KIN_SIDE_RIGHT);
}

static const kin_value *without_end(kin_state *state, const kin_value *self, const kin_value *end, kin_side side) {
    if (end->kind != KIN_KIND_STRING) return kin_state_fail(state, "a method of strings needs a string");
    if (!has_end(state, &self->s, &end->s, side)) return self;
    size_t begin = side == KIN_SIDE_LEFT ? end->s.len : 0;
    return kin_value_of_string(state->values, kin_string_part(&self->s, begin, begin + self->s.len - end->s.len));
}

METHOD(str_removeprefix) {
    UNUSED;
    return without_end(state, self, arg[0], KIN_SIDE_LEFT);
}

METHOD(str_removesuffix) {
    UNUSED;
    return without_end(state, self, arg[0], KIN_SIDE_RIGHT);
}

// ---- parts

static const kin_value *split(kin_state *state, const kin_value *self, const kin_value **arg, bool from_right) {
    const kin_string *separator;
    int64_t max = -1;
    kin_items parts = {0};
    if (!string_argument(state, arg[0], &separator) || !integer_argument(state, arg[1], &max)) return NULL;
    if (separator && separator->len == 0) return kin_state_fail(state, "the separator is empty");
    if (!kin_string_split(state->values, &self->s, separator, max < 0 ? -1 : max, from_right, &parts)) return NULL;
    return kin_value_of_items(state->values, KIN_KIND_LIST, parts);
}

METHOD(str_split) {
    UNUSED;
    return split(state, self, arg, false);
}

METHOD(str_rsplit) {
    UNUSED;
    return split(state, self, arg, true);
}

METHOD(str_splitlines) {
    UNUSED;
    kin_items lines = {0};
    if (!kin_string_lines(state->values, &self->s, arg[0] && kin_value_truth(arg[0]), &lines)) return NULL;
    return kin_value_of_items(state->values, KIN_KIND_LIST, lines);
}

METHOD(str_replace) {
    UNUSED;
    int64_t max = -1;
    if (!integer_argument(state, arg[2], &max)) return NULL;
    if (arg[0]->kind != KIN_KIND_STRING || arg[1]->kind != KIN_KIND_STRING)
        return kin_state_fail(state, "replace needs two strings");
    return kin_string_replace(state->values, &self->s, &arg[0]->s, &arg[1]->s, max);
}

METHOD(str_join) {
    UNUSED;
    kin_items items;
    kin_pieces joined = {.values = state->values};
    if (!kin_iterate(state, arg[0], &items)) return NULL;
    for (size_t i = 0; i < items.n; i++) {
        if (items.at[i]->kind != KIN_KIND_STRING)
            return kin_state_fail(state, "join needs strings, not a %s", kin_value_type_name(items.at[i]));
        if (i > 0) kin_pieces_add(&joined, self->s);
        kin_pieces_add(&joined, items.at[i]->s);
    }
    return kin_pieces_join(&joined);
}

METHOD(str_find) {
    UNUSED;
    if (arg[0]->kind != KIN_KIND_STRING) return kin_state_fail(state, "find needs a string");
    ptrdiff_t found = kin_string_find(state->values, &self->s, &arg[0]->s, 0);
    kin_string before = kin_string_part(&self->s, 0, found < 0 ? 0 : (size_t)found);
    return kin_value_int(state->values, found < 0 ? -1 : (int64_t)kin_string_n_chars(state->values, &before));
}

METHOD(str_count) {
    UNUSED;
    int64_t n = 0;
    if (arg[0]->kind != KIN_KIND_STRING) return kin_state_fail(state, "count needs a string");
    if (arg[0]->s.len == 0) return kin_value_int(state->values, (int64_t)kin_string_n_chars(state->values, &self->s) + 1);
    for (ptrdiff_t at = 0; (at = kin_string_find(state->values, &self->s, &arg[0]->s, (size_t)at)) != KIN_NOT_FOUND; n++) {
        at += (ptrdiff_t)arg[0]->s.len;
        if (!kin_values_charge(state->values, 1)) return NULL;
    }
    return kin_value_int(state->values, n);
}

// ---- lists and dicts

METHOD(list_count) {
    UNUSED;
    int64_t n = 0;
    if (!kin_values_charge(state->values, self->items->n / 4)) return NULL;
    for (size_t i = 0; i < self->items->n; i++) n += kin_value_equal(state->values, self->items->at[i], arg[0]);
    return kin_value_int(state->values, n);
}

METHOD(list_index) {
    UNUSED;
    if (!kin_values_charge(state->values, self->items->n / 4)) return NULL;
    for (size_t i = 0; i < self->items->n; i++)
        if (kin_value_equal(state->values, self->items->at[i], arg[0])) return kin_value_int(state->values, (int64_t)i);
    return kin_state_fail(state, "the item is not in the list");
}

METHOD(copy) {
    UNUSED;
    return self; // values are immutable
}

METHOD(dict_get) {
    UNUSED;
    if (!kin_value_hashable(arg[0])) return kin_state_fail(state, "a %s cannot be a dict key", kin_value_type_name(arg[0]));
    const kin_value *found = kin_pairs_find(state->values, self->pairs, arg[0]);
    return found ? found : arg[1] ? arg[1] : &kin_the_none;
}

METHOD(dict_keys) {
    UNUSED;
    kin_items items;
    return kin_iterate(state, self, &items) ? kin_value_of_items(state->values, KIN_KIND_VIEW, items) : NULL;
}

METHOD(dict_values) {
    UNUSED;
    kin_items items = {0};
    for (size_t i = 0; i < self->pairs->n; i++)
        if (!kin_items_push(state->values, &items, self->pairs->at[i].item)) return NULL;
    return kin_value_of_items(state->values, KIN_KIND_VIEW, items);
}

bool kin_dict_items(kin_state *state, const kin_value *dict, kin_items *items) {
    *items = (kin_items){0};
    for (size_t i = 0; i < dict->pairs->n; i++) {
        const kin_value **pair = kin_values_alloc(state->values, 2 * sizeof *pair);
        if (!pair || !kin_values_charge(state->values, 1)) return false;
        pair[0] = dict->pairs->at[i].key;
        pair[1] = dict->pairs->at[i].item;
        const kin_value *tuple = kin_value_of_items(state->values, KIN_KIND_TUPLE, (kin_items){.at = pair, .n = 2});
        if (!kin_items_push(state->values, items, tuple)) return false;
    }
    return true;
}

METHOD(dict_items) {
    UNUSED;
    kin_items items;
    return kin_dict_items(state, self, &items) ? kin_value_of_items(state->values, KIN_KIND_VIEW, items) : NULL;
}

METHOD(str_format) {
    (void)arg;
    return kin_format_braces(state, &self->s, all);
}

// ---- the loop

METHOD(loop_cycle) {
    UNUSED;
    if (all->n == 0 || all->n_named > 0) return kin_state_fail(state, "cycle needs values");
    return all->at[self->loop->index0 % all->n];
}

METHOD(loop_changed) {
    UNUSED;
    kin_items items = {.at = all->at, .n = all->n};
    const kin_value *now = kin_value_of_items(state->values, KIN_KIND_TUPLE, items);
    if (!now) return NULL;
    bool changed = !self->loop->last_changed || !kin_value_equal(state->values, self->loop->last_changed, now);
    self->loop->last_changed = now;
    return kin_value_of_bool(changed);
}

// ---- tables

static const kin_function str_methods[] = {
    {"capitalize", "", 0, str_capitalize},
    {"count", "sub ", 1, str_count},
    {"endswith", "suffix ", 1, str_endswith},
    {"find", "sub ", 1, str_find},
    {"format", NULL, 0, str_format},
    {"isdigit", "", 0, str_isdigit},
    {"isspace", "", 0, str_isspace},
    {"join", "iterable ", 1, str_join},
    {"lower", "", 0, str_lower},
    {"lstrip", "chars ", 0, str_lstrip},
    {"removeprefix", "prefix ", 1, str_removeprefix},
    {"removesuffix", "suffix ", 1, str_removesuffix},
    {"replace", "old new count ", 2, str_replace},
    {"rsplit", "sep maxsplit ", 0, str_rsplit},
    {"rstrip", "chars ", 0, str_rstrip},
    {"split", "sep maxsplit ", 0, str_split},
    {"splitlines", "keepends ", 0, str_splitlines},
    {"startswith", "prefix ", 1, str_startswith},
    {"strip", "chars ", 0, str_strip},
    {"title", "", 0, str_title},
    {"upper", "", 0, str_upper},
    {NULL, NULL, 0, NULL},
};
static const kin_function list_methods[] = {
    {"copy", "", 0, copy}, {"count", "value ", 1, list_count}, {"index", "value ", 1, list_index}, {NULL, NULL, 0, NULL}};
static const kin_function dict_methods[] = {
    {"copy", "", 0, copy},      {"get", "key default ", 1, dict_get}, {"items", "", 0, dict_items},
    {"keys", "", 0, dict_keys}, {"values", "", 0, dict_values},       {NULL, NULL, 0, NULL},
};
static const kin_function loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle}, {"changed", NULL, 0, loop_changed}, {NULL, NULL, 0, NULL}};

const kin_value *kin_method_of(kin_state *state, const kin_value *object, kin_str name) {
    const kin_function *table = object->kind == KIN_KIND_STRING                                   ? str_methods
                                : object->kind == KIN_KIND_LIST || object->kind == KIN_KIND_TUPLE ? list_methods
                                : object->kind == KIN_KIND_DICT                                   ? dict_methods
                                : object->kind == KIN_KIND_LOOP                                   ? loop_methods
                                                                                                  : NULL;
    const kin_function *row = table ? kin_function_find(table, name) : NULL;
    kin_value *method = row ? kin_value_new(state->values, KIN_KIND_FUNCTION) : NULL;
    if (!method) return NULL;
    method->function.row = row;
    method->function.self = object;
    return method;
}

bool kin_method_hidden(const kin_value *object, kin_str name) {
    static const char *const hidden[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; object->kind == KIN_KIND_DICT && i < sizeof hidden / sizeof *hidden; i++)
        if (strlen(hidden[i]) == name.len && memcmp(hidden[i], name.at, name.len) == 0) return true;
    return false;
}
