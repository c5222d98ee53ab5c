// Filters for lists and dicts.
#include <string.h>

#include "pure/jinja/functions.h"
#include "pure/jinja/sort.h"
#include "pure/jinja/words.h"

#define FILTER(name)                                                                                                             \
    static const kin_value *name(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all)
#define UNUSED (void)state, (void)self, (void)arg, (void)all

static bool truth_of(const kin_value *arg) {
    return arg && kin_value_truth(arg);
}

// ---- attributes by a path: "a.b.0"

// Converts one part of a path to a key; a number is an index.
static const kin_value *part_key(kin_state *state, const kin_value *part) {
    int64_t i = 0;
    size_t k = 0;
    for (; k < part->s.len && k < 9 && part->s.at[k] >= '0' && part->s.at[k] <= '9'; k++) i = i * 10 + (part->s.at[k] - '0');
    return k > 0 && k == part->s.len ? kin_value_int(state->values, i) : part;
}

// Splits a path into keys. A NULL path has no keys.
static bool path_keys(kin_state *state, const kin_value *path, kin_items *keys) {
    static const kin_string point = {.at = ".", .len = 1};
    kin_items parts = {0};
    *keys = (kin_items){0};
    if (!path || path->kind == KIN_KIND_NONE) return true;
    if (kin_value_is_integer(path)) return kin_items_push(state->values, keys, path);
    if (path->kind != KIN_KIND_STRING) return kin_state_fail(state, "the name of an attribute must be a string");
    if (memchr(path->s.at, ',', path->s.len)) return kin_state_fail(state, "several attributes are not supported");
    if (!kin_string_split(state->values, &path->s, &point, -1, false, &parts)) return false;
    for (size_t i = 0; i < parts.n; i++)
        if (!kin_items_push(state->values, keys, part_key(state, parts.at[i]))) return false;
    return true;
}

static const kin_value *follow(kin_state *state, const kin_value *item, const kin_items *keys, const kin_value *missing) {
    for (size_t i = 0; item && i < keys->n; i++) {
        item = kin_get_item(state, item, keys->at[i]);
        if (item && item->kind == KIN_KIND_UNDEFINED && missing) item = missing;
    }
    return item;
}

// Returns the sort key of an item.
static const kin_value *sort_key(kin_state *state, const kin_value *item, const kin_items *keys, bool case_sensitive) {
    const kin_value *key = follow(state, item, keys, NULL);
    if (!key || case_sensitive || key->kind != KIN_KIND_STRING) return key;
    return kin_string_case(state->values, &key->s, KIN_CASE_LOWER);
}

// ---- ends, joins

FILTER(do_first) {
    UNUSED;
    if (self->kind == KIN_KIND_STRING && self->s.len > 0)
        return kin_get_item(state, self, &(const kin_value){.kind = KIN_KIND_INT});
    kin_items items;
    if (self->kind == KIN_KIND_ITERATOR && self->items->n > 0) {
        const kin_value *first = self->items->at[0];
        self->items->at++;
        self->items->n--;
        return first;
    }
    if (!kin_iterate(state, self, &items)) return NULL;
    return items.n > 0 ? items.at[0] : &kin_the_undefined;
}

FILTER(do_last) {
    UNUSED;
    if (self->kind == KIN_KIND_STRING && self->s.len > 0)
        return kin_get_item(state, self, &(const kin_value){.kind = KIN_KIND_INT, .i = -1});
    if (self->kind == KIN_KIND_ITERATOR) return kin_state_fail(state, "a generator has no last item");
    kin_items items;
    if (!kin_iterate(state, self, &items)) return NULL;
    return items.n > 0 ? items.at[items.n - 1] : &kin_the_undefined;
}

FILTER(do_join) {
    UNUSED;
    kin_items items, keys;
    kin_pieces joined = {.values = state->values};
    const kin_value *between = arg[0] ? kin_str_of(state, arg[0]) : &kin_the_empty_string;
    if (!between || !path_keys(state, arg[1], &keys) || !kin_iterate(state, self, &items)) return NULL;
    for (size_t i = 0; i < items.n; i++) {
        const kin_value *item = follow(state, items.at[i], &keys, NULL), *text = item ? kin_str_of(state, item) : NULL;
        if (!text) return NULL;
        if (i > 0) kin_pieces_add(&joined, between->s);
        kin_pieces_add(&joined, text->s);
    }
    return kin_pieces_join(&joined);
}

FILTER(do_list) {
    UNUSED;
    kin_items items;
    return kin_iterate(state, self, &items) ? kin_value_of_items(state->values, KIN_KIND_LIST, items) : NULL;
}

FILTER(do_items) {
    UNUSED;
    kin_items items = {0};
    if (self->kind == KIN_KIND_DICT && !kin_dict_items(state, self, &items)) return NULL;
    if (self->kind != KIN_KIND_DICT && self->kind != KIN_KIND_UNDEFINED)
        return kin_state_fail(state, "items needs a dict, not a %s", kin_value_type_name(self));
    return kin_value_of_items(state->values, KIN_KIND_ITERATOR, items);
}

FILTER(do_reverse) {
    UNUSED;
    if (self->kind == KIN_KIND_STRING) {
        size_t n = kin_string_n_chars(state->values, &self->s);
        return kin_string_pick(state->values, &self->s, (int64_t)n - 1, -1, n);
    }
    kin_items items, reversed;
    if (!kin_iterate(state, self, &items)) return NULL;
    reversed = (kin_items){.n = items.n, .at = kin_values_alloc(state->values, items.n * sizeof *items.at)};
    if (!reversed.at) return NULL;
    for (size_t i = 0; i < items.n; i++) reversed.at[i] = items.at[items.n - 1 - i];
    return kin_value_of_items(state->values, self->kind == KIN_KIND_ITERATOR ? KIN_KIND_LIST : KIN_KIND_ITERATOR, reversed);
}

// ---- choosing and mapping

// Returns the items to map or to choose from. As in Jinja, a false value has none.
static bool source_items(kin_state *state, const kin_value *self, kin_items *items) {
    *items = (kin_items){0};
    return !kin_value_truth(self) || kin_iterate(state, self, items);
}

// Returns the arguments from index `from` on.
static kin_arguments rest_of(const kin_arguments *all, size_t from) {
    kin_arguments rest = *all;
    rest.at += from;
    rest.n -= from;
    return rest;
}

// Returns the items for which a test (argument `from`; without it, their truth) holds, or does not hold if !wanted.
static const kin_value *choose(kin_state *state, const kin_value *self, const kin_arguments *all, const kin_items *keys,
                               size_t from, bool wanted) {
    kin_items items, chosen = {0};
    kin_arguments rest = {0};
    const kin_function *test = NULL;
    if (all->n > from) {
        const kin_value *name = all->at[from];
        rest = rest_of(all, from + 1);
        if (name->kind == KIN_KIND_STRING) test = kin_test_find((kin_str){name->s.at, name->s.len});
        if (!test) return kin_state_fail(state, "unknown test");
    }
    if (!source_items(state, self, &items)) return NULL;
    for (size_t i = 0; i < items.n; i++) {
        const kin_value *holds = follow(state, items.at[i], keys, NULL);
        if (holds && test) holds = kin_function_call(state, test, holds, &rest);
        if (!holds || !kin_values_charge(state->values, 1)) return NULL;
        if (kin_value_truth(holds) == wanted && !kin_items_push(state->values, &chosen, items.at[i])) return NULL;
    }
    return kin_value_of_items(state->values, KIN_KIND_ITERATOR, chosen);
}

static const kin_value *choose_by_attribute(kin_state *state, const kin_value *self, const kin_arguments *all, bool wanted) {
    kin_items keys;
    if (all->n == 0) return kin_state_fail(state, "expected the name of an attribute");
    return path_keys(state, all->at[0], &keys) ? choose(state, self, all, &keys, 1, wanted) : NULL;
}

FILTER(do_select) {
    UNUSED;
    return choose(state, self, all, &(const kin_items){0}, 0, true);
}

FILTER(do_reject) {
    UNUSED;
    return choose(state, self, all, &(const kin_items){0}, 0, false);
}

FILTER(do_selectattr) {
    UNUSED;
    return choose_by_attribute(state, self, all, true);
}

FILTER(do_rejectattr) {
    UNUSED;
    return choose_by_attribute(state, self, all, false);
}

static const kin_value *named(const kin_arguments *all, const char *name) {
    for (size_t i = 0; i < all->n_named; i++)
        if (all->named[i].name.len == strlen(name) && memcmp(all->named[i].name.at, name, strlen(name)) == 0)
            return all->named[i].value;
    return NULL;
}

// map("filter", ...) or map(attribute="a.b", default=x).
FILTER(do_map) {
    UNUSED;
    kin_items items, keys = {0}, mapped = {0};
    kin_arguments rest = {0};
    const kin_function *filter = NULL;
    const kin_value *attribute = all->n == 0 ? named(all, "attribute") : NULL,
                    *missing = attribute ? named(all, "default") : NULL;
    if (missing && missing->kind == KIN_KIND_NONE) missing = NULL;
    if (attribute && all->n_named > (missing ? 2 : 1)) return kin_state_fail(state, "map takes only an attribute and a default");
    if (!attribute) {
        if (all->n > 0 && all->at[0]->kind == KIN_KIND_STRING)
            filter = kin_filter_find((kin_str){all->at[0]->s.at, all->at[0]->s.len});
        if (!filter) return kin_state_fail(state, "map: unknown filter");
        rest = rest_of(all, 1);
    }
    if (!path_keys(state, attribute, &keys) || !source_items(state, self, &items)) return NULL;
    for (size_t i = 0; i < items.n; i++) {
        const kin_value *item = follow(state, items.at[i], &keys, missing);
        if (item && filter) item = kin_function_call(state, filter, item, &rest);
        if (!kin_values_charge(state->values, 1) || !kin_items_push(state->values, &mapped, item)) return NULL;
    }
    return kin_value_of_items(state->values, KIN_KIND_ITERATOR, mapped);
}

// ---- order

// Returns the items, sorted by their keys. Each pair is a key and its item.
static const kin_value *sorted(kin_state *state, kin_pair *pairs, size_t n, bool reverse) {
    if (!kin_sort_pairs(state->values, pairs, n, reverse))
        return kin_state_fail(state, "cannot sort items that cannot be compared");
    kin_items items = {.n = n, .at = kin_values_alloc(state->values, n * sizeof *items.at)};
    if (!items.at) return NULL;
    for (size_t i = 0; i < n; i++) items.at[i] = pairs[i].item;
    return kin_value_of_items(state->values, KIN_KIND_LIST, items);
}

// Pairs each item with its sort key.
static kin_pair *keyed(kin_state *state, const kin_items *items, const kin_items *keys, bool case_sensitive) {
    kin_pair *pairs = kin_values_alloc(state->values, items->n * sizeof *pairs);
    for (size_t i = 0; pairs && i < items->n; i++) {
        const kin_value *key = sort_key(state, items->at[i], keys, case_sensitive);
        if (!key) return NULL;
        pairs[i] = (kin_pair){key, items->at[i]};
    }
    return pairs;
}

FILTER(do_sort) {
    UNUSED;
    kin_items items, keys;
    if (!path_keys(state, arg[2], &keys) || !kin_iterate(state, self, &items)) return NULL;
    kin_pair *pairs = keyed(state, &items, &keys, truth_of(arg[1]));
    return pairs ? sorted(state, pairs, items.n, truth_of(arg[0])) : NULL;
}

FILTER(do_dictsort) {
    UNUSED;
    kin_items items;
    bool by_value = arg[1] && arg[1]->kind == KIN_KIND_STRING && kin_string_is(&arg[1]->s, "value");
    kin_items key = {.n = 1, .at = (const kin_value *[]){&(const kin_value){.kind = KIN_KIND_INT, .i = by_value}}};
    if (self->kind != KIN_KIND_DICT) return kin_state_fail(state, "dictsort needs a dict, not a %s", kin_value_type_name(self));
    if (!kin_dict_items(state, self, &items)) return NULL;
    kin_pair *pairs = keyed(state, &items, &key, truth_of(arg[0]));
    return pairs ? sorted(state, pairs, items.n, truth_of(arg[2])) : NULL;
}

static const kin_value *extreme(kin_state *state, const kin_value *self, const kin_value **arg, bool largest) {
    kin_items items, keys;
    if (!path_keys(state, arg[1], &keys) || !kin_iterate(state, self, &items)) return NULL;
    if (items.n == 0) return &kin_the_undefined;
    kin_pair *pairs = keyed(state, &items, &keys, truth_of(arg[0]));
    size_t best = 0;
    for (size_t i = 1; pairs && i < items.n; i++) {
        const kin_value *a = pairs[largest ? best : i].key, *b = pairs[largest ? i : best].key;
        int less = kin_value_less(state->values, a, b);
        if (less < 0) return kin_state_fail(state, "cannot find the minimum or maximum of items that cannot be compared");
        if (less) best = i;
    }
    return pairs ? pairs[best].item : NULL;
}

FILTER(do_min) {
    UNUSED;
    return extreme(state, self, arg, false);
}

FILTER(do_max) {
    UNUSED;
    return extreme(state, self, arg, true);
}

FILTER(do_sum) {
    UNUSED;
    kin_items items, keys;
    const kin_value *sum = arg[1] ? arg[1] : kin_value_int(state->values, 0);
    if (!path_keys(state, arg[0], &keys) || !kin_iterate(state, self, &items)) return NULL;
    for (size_t i = 0; sum && i < items.n; i++) {
        const kin_value *item = follow(state, items.at[i], &keys, NULL);
        sum = item ? kin_binary(state, '+', sum, item) : NULL;
    }
    return sum;
}

FILTER(do_unique) {
    UNUSED;
    kin_items items, keys, unique = {0};
    kin_pairs seen = {0};
    if (!path_keys(state, arg[1], &keys) || !kin_iterate(state, self, &items)) return NULL;
    for (size_t i = 0; i < items.n; i++) {
        const kin_value *key = sort_key(state, items.at[i], &keys, truth_of(arg[0]));
        if (!key) return NULL;
        if (!kin_value_hashable(key)) return kin_state_fail(state, "unique: a %s cannot be a dict key", kin_value_type_name(key));
        if (kin_pairs_find(state->values, &seen, key)) continue;
        if (!kin_pairs_put(state->values, &seen, key, key) || !kin_items_push(state->values, &unique, items.at[i])) return NULL;
    }
    return kin_value_of_items(state->values, KIN_KIND_ITERATOR, unique);
}

const kin_function kin_list_filters[] = {
    {"dictsort", "case_sensitive by reverse ", 0, do_dictsort},
    {"first", "", 0, do_first},
    {"items", "", 0, do_items},
    {"join", "d attribute ", 0, do_join},
    {"last", "", 0, do_last},
    {"list", "", 0, do_list},
    {"map", NULL, 0, do_map},
    {"max", "case_sensitive attribute ", 0, do_max},
    {"min", "case_sensitive attribute ", 0, do_min},
    {"reject", NULL, 0, do_reject},
    {"rejectattr", NULL, 0, do_rejectattr},
    {"reverse", "", 0, do_reverse},
    {"select", NULL, 0, do_select},
    {"selectattr", NULL, 0, do_selectattr},
    {"sort", "reverse case_sensitive attribute ", 0, do_sort},
    {"sum", "attribute start ", 0, do_sum},
    {"unique", "case_sensitive attribute ", 0, do_unique},
    {NULL, NULL, 0, NULL},
};
