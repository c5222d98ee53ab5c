#include "pure/jinja/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "pure/jinja/value_impl.h"
#include "pure/text/utf8.h"

enum { INDEX_FROM = 8 }; // dicts with more pairs have an index

// Enough for a template that visits every pair of a thousand messages; about one or two seconds of computing.
static const uint64_t max_steps = 20 * 1000 * 1000;

struct kin_values {
    kin_arena *arena;
    uint64_t steps_left;
    const char *error;
    kin_tail tail;
};

const kin_value kin_the_undefined = {.kind = KIN_KIND_UNDEFINED};
const kin_value kin_the_none = {.kind = KIN_KIND_NONE};
const kin_value kin_the_true = {.kind = KIN_KIND_BOOL, .b = true};
const kin_value kin_the_false = {.kind = KIN_KIND_BOOL, .b = false};
const kin_value kin_the_empty_string = {.kind = KIN_KIND_STRING, .s = {.at = "", .origin = KIN_ORIGIN_TEMPLATE, .ascii = true}};

// ---- heap

kin_values *kin_values_new(size_t max_bytes) {
    kin_values *values = calloc(1, sizeof *values);
    if (!values) return NULL;
    values->arena = kin_arena_new(max_bytes);
    values->steps_left = max_steps;
    if (values->arena) return values;
    free(values);
    return NULL;
}

void kin_values_free(kin_values *values) {
    if (!values) return;
    kin_arena_free(values->arena);
    free(values);
}

int kin_values_check(const kin_values *values, kin_err *err) {
    return values->error ? kin_err_set(err, "%s", values->error) : 0;
}

const char *kin_values_error(const kin_values *values) {
    return values->error;
}

void kin_values_set_error(kin_values *values, const char *sentence) {
    if (!values->error) values->error = sentence;
}

void *kin_values_alloc(kin_values *values, size_t n) {
    void *at = values->error ? NULL : kin_arena_alloc(values->arena, n);
    if (!at) kin_values_set_error(values, "the request exceeds the memory limit");
    return at;
}

void kin_values_limit_steps(kin_values *values, uint64_t n_steps) {
    if (n_steps < values->steps_left) values->steps_left = n_steps;
}

bool kin_values_charge(kin_values *values, uint64_t steps) {
    if (values->error) return false;
    if (steps > values->steps_left) {
        values->steps_left = 0;
        kin_values_set_error(values, "the template exceeds the step limit");
        return false;
    }
    values->steps_left -= steps;
    return true;
}

bool kin_values_charge_bytes(kin_values *values, size_t bytes) {
    return kin_values_charge(values, bytes / 64);
}

kin_tail *kin_values_tail(kin_values *values) {
    return &values->tail;
}

// ---- constructors

kin_value *kin_value_new(kin_values *values, kin_kind kind) {
    kin_value *value = kin_values_alloc(values, sizeof *value);
    if (value) value->kind = kind;
    return value;
}

const kin_value *kin_value_of_bool(bool b) {
    return b ? &kin_the_true : &kin_the_false;
}

kin_value *kin_value_of_string(kin_values *values, kin_string s) {
    kin_value *value = kin_value_new(values, KIN_KIND_STRING);
    if (value) value->s = s;
    return value;
}

kin_value *kin_value_of_bytes(kin_values *values, const char *at, size_t len, kin_origin origin) {
    kin_string s = {.at = at, .len = len, .origin = origin, .ascii = true};
    for (size_t i = 0; i < len && s.ascii; i++) s.ascii = (unsigned char)at[i] < 0x80;
    return kin_value_of_string(values, s);
}

kin_value *kin_value_of_items(kin_values *values, kin_kind kind, kin_items items) {
    kin_value *value = kin_value_new(values, kind);
    if (!value) return NULL;
    value->items = kin_values_alloc(values, sizeof *value->items);
    if (!value->items) return NULL;
    *value->items = items;
    return kin_values_charge(values, items.n / 8) && kin_value_set_depth(values, value) ? value : NULL;
}

// Makes room for one more element by doubling. *at is [*cap] elements of `size` bytes, n of them used.
static bool grow(kin_values *values, void **at, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t new_cap = *cap ? 2 * *cap : 4;
    void *grown = kin_values_alloc(values, new_cap * size);
    if (!grown) return false;
    if (n > 0) memcpy(grown, *at, n * size);
    *at = grown;
    *cap = new_cap;
    return true;
}

bool kin_items_push(kin_values *values, kin_items *items, const kin_value *item) {
    void *at = items->at;
    if (!item || !grow(values, &at, items->n, &items->cap, sizeof *items->at)) return false;
    items->at = at;
    items->at[items->n++] = item;
    return true;
}

bool kin_value_set_depth(kin_values *values, kin_value *value) {
    int depth = 0;
    if (kin_value_is_sequence(value)) {
        for (size_t i = 0; i < value->items->n; i++) {
            if (value->items->at[i]->depth > depth) depth = value->items->at[i]->depth;
            value->unhashable |= !kin_value_hashable(value->items->at[i]);
        }
    } else if (value->kind == KIN_KIND_DICT) {
        for (size_t i = 0; i < value->pairs->n; i++)
            if (value->pairs->at[i].item->depth > depth) depth = value->pairs->at[i].item->depth;
    }
    if (depth >= KIN_VALUE_MAX_DEPTH) {
        kin_values_set_error(values, "lists and dicts are nested too deeply");
        return false;
    }
    value->depth = (uint8_t)(depth + 1);
    return true;
}

// ---- dicts

static uint64_t hash_of(const kin_value *key) {
    double number;
    switch (key->kind) {
    case KIN_KIND_STRING: return kin_hash64(key->s.at, key->s.len, 1);
    case KIN_KIND_BOOL:
    case KIN_KIND_INT:
    case KIN_KIND_FLOAT: // equal numbers of these three kinds are the same key
        number = kin_value_number(key);
        number = number == 0 ? 0 : number;
        return kin_hash64(&number, sizeof number, 2);
    default: return key->kind;
    }
}

// Returns the slot of the key in the index, or the free slot for it.
static size_t slot_of(kin_values *values, const kin_pairs *pairs, const kin_value *key) {
    size_t slot = hash_of(key) & (pairs->n_index - 1);
    while (pairs->index[slot] && !kin_value_equal(values, pairs->at[pairs->index[slot] - 1].key, key))
        slot = (slot + 1) & (pairs->n_index - 1);
    return slot;
}

static bool rebuild_index(kin_values *values, kin_pairs *pairs) {
    pairs->n_index = 4 * pairs->cap;
    pairs->index = kin_values_alloc(values, pairs->n_index * sizeof *pairs->index);
    if (!pairs->index) return false;
    for (size_t i = 0; i < pairs->n; i++) pairs->index[slot_of(values, pairs, pairs->at[i].key)] = (uint32_t)i + 1;
    return true;
}

// Returns the position of the key, or n.
static size_t position_of(kin_values *values, const kin_pairs *pairs, const kin_value *key) {
    if (key->kind == KIN_KIND_STRING) kin_values_charge_bytes(values, key->s.len);
    if (pairs->index) {
        uint32_t found = pairs->index[slot_of(values, pairs, key)];
        return found ? found - 1 : pairs->n;
    }
    size_t i = 0;
    while (i < pairs->n && !kin_value_equal(values, pairs->at[i].key, key)) i++;
    return i;
}

bool kin_pairs_put(kin_values *values, kin_pairs *pairs, const kin_value *key, const kin_value *item) {
    if (!key || !item || kin_values_error(values) || !kin_value_hashable(key)) return false;
    size_t i = position_of(values, pairs, key);
    if (i < pairs->n) {
        pairs->at[i].item = item;
        return true;
    }
    void *at = pairs->at;
    bool grew = pairs->n == pairs->cap;
    if (!grow(values, &at, pairs->n, &pairs->cap, sizeof *pairs->at)) return false;
    pairs->at = at;
    pairs->at[pairs->n++] = (kin_pair){key, item};
    if (pairs->n <= INDEX_FROM) return true;
    if (grew) return rebuild_index(values, pairs);
    pairs->index[slot_of(values, pairs, key)] = (uint32_t)pairs->n;
    return true;
}

const kin_value *kin_pairs_find(kin_values *values, const kin_pairs *pairs, const kin_value *key) {
    if (!kin_value_hashable(key)) return NULL;
    size_t i = position_of(values, pairs, key);
    return i < pairs->n ? pairs->at[i].item : NULL;
}

const kin_value *kin_pairs_find_name(kin_values *values, const kin_pairs *pairs, const char *name, size_t len) {
    kin_value key = {.kind = KIN_KIND_STRING, .s = {.at = name, .len = len}};
    return kin_pairs_find(values, pairs, &key);
}

// ---- the public builders

kin_value *kin_value_none(kin_values *values) {
    return kin_value_new(values, KIN_KIND_NONE);
}

kin_value *kin_value_bool(kin_values *values, bool b) {
    kin_value *value = kin_value_new(values, KIN_KIND_BOOL);
    if (value) value->b = b;
    return value;
}

kin_value *kin_value_int(kin_values *values, int64_t i) {
    kin_value *value = kin_value_new(values, KIN_KIND_INT);
    if (value) value->i = i;
    return value;
}

kin_value *kin_value_float(kin_values *values, double f) {
    kin_value *value = kin_value_new(values, KIN_KIND_FLOAT);
    if (value) value->f = f;
    return value;
}

kin_value *kin_value_string(kin_values *values, const char *at, size_t len, kin_origin origin) {
    if (len > KIN_VALUE_MAX_STRING) {
        kin_values_set_error(values, "a string is longer than 64 MiB");
        return NULL;
    }
    for (size_t i = 0; i < len;) {
        int n = (unsigned char)at[i] < 0x80 ? 1 : kin_utf8_len(at + i, len - i);
        if (n <= 0) {
            kin_values_set_error(values, "a string is not UTF-8");
            return NULL;
        }
        i += (size_t)n;
    }
    return kin_value_of_bytes(values, at, len, origin);
}

kin_value *kin_value_list(kin_values *values) {
    return kin_value_of_items(values, KIN_KIND_LIST, (kin_items){0});
}

kin_value *kin_value_dict(kin_values *values) {
    kin_value *value = kin_value_new(values, KIN_KIND_DICT);
    if (!value) return NULL;
    value->pairs = kin_values_alloc(values, sizeof *value->pairs);
    value->depth = 1;
    return value->pairs ? value : NULL;
}

// Prepares to put the item into the container: the item becomes immutable, and the container at least one level deeper.
static bool enter_value(kin_values *values, kin_value *container, kin_value *item) {
    if (!container || !item) return false;
    kin_assert(!container->frozen);
    item->frozen = true;
    if (item->depth >= KIN_VALUE_MAX_DEPTH) {
        kin_values_set_error(values, "lists and dicts are nested too deeply");
        return false;
    }
    if (container->depth <= item->depth) container->depth = item->depth + 1;
    return true;
}

void kin_value_append(kin_values *values, kin_value *list, kin_value *item) {
    if (!enter_value(values, list, item)) return;
    kin_assert(list->kind == KIN_KIND_LIST);
    kin_items_push(values, list->items, item);
}

void kin_value_put(kin_values *values, kin_value *dict, const char *key, size_t key_len, kin_value *item) {
    if (!enter_value(values, dict, item)) return;
    kin_assert(dict->kind == KIN_KIND_DICT);
    kin_pairs_put(values, dict->pairs, kin_value_string(values, key, key_len, KIN_ORIGIN_INPUT), item);
}

// ---- Python's view of values

bool kin_value_is_integer(const kin_value *value) {
    return value->kind == KIN_KIND_INT || value->kind == KIN_KIND_BOOL;
}

bool kin_value_is_number(const kin_value *value) {
    return kin_value_is_integer(value) || value->kind == KIN_KIND_FLOAT;
}

int64_t kin_value_integer(const kin_value *value) {
    return value->kind == KIN_KIND_BOOL ? value->b : value->i;
}

double kin_value_number(const kin_value *value) {
    return value->kind == KIN_KIND_FLOAT ? value->f : (double)kin_value_integer(value);
}

bool kin_value_is_sequence(const kin_value *value) {
    return value->kind == KIN_KIND_LIST || value->kind == KIN_KIND_TUPLE || value->kind == KIN_KIND_RANGE ||
           value->kind == KIN_KIND_VIEW || value->kind == KIN_KIND_ITERATOR;
}

bool kin_value_truth(const kin_value *value) {
    switch (value->kind) {
    case KIN_KIND_UNDEFINED:
    case KIN_KIND_NONE: return false;
    case KIN_KIND_BOOL: return value->b;
    case KIN_KIND_INT: return value->i != 0;
    case KIN_KIND_FLOAT: return value->f != 0;
    case KIN_KIND_STRING: return value->s.len > 0;
    case KIN_KIND_LIST:
    case KIN_KIND_TUPLE:
    case KIN_KIND_RANGE:
    case KIN_KIND_VIEW: return value->items->n > 0;
    case KIN_KIND_DICT: return value->pairs->n > 0;
    default: return true;
    }
}

bool kin_value_hashable(const kin_value *value) {
    if (value->kind == KIN_KIND_TUPLE) return !value->unhashable;
    return value->kind != KIN_KIND_LIST && value->kind != KIN_KIND_DICT && value->kind != KIN_KIND_VIEW;
}

static bool items_equal(kin_values *values, const kin_items *a, const kin_items *b) {
    if (a->n != b->n || !kin_values_charge(values, a->n / 4)) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!kin_value_equal(values, a->at[i], b->at[i])) return false;
    return true;
}

static bool pairs_equal(kin_values *values, const kin_pairs *a, const kin_pairs *b) {
    if (a->n != b->n || !kin_values_charge(values, a->n)) return false;
    for (size_t i = 0; i < a->n; i++) {
        const kin_value *other = kin_pairs_find(values, b, a->at[i].key);
        if (!other || !kin_value_equal(values, a->at[i].item, other)) return false;
    }
    return true;
}

bool kin_value_equal(kin_values *values, const kin_value *a, const kin_value *b) {
    if (kin_value_is_integer(a) && kin_value_is_integer(b)) return kin_value_integer(a) == kin_value_integer(b);
    if (kin_value_is_number(a) && kin_value_is_number(b)) return kin_value_number(a) == kin_value_number(b);
    if (a == b) return true;
    if (a->kind != b->kind || !kin_values_charge(values, 1)) return false;
    switch (a->kind) {
    case KIN_KIND_UNDEFINED:
    case KIN_KIND_NONE: return true;
    case KIN_KIND_STRING:
        if (a->s.len != b->s.len) return false;
        return kin_values_charge_bytes(values, a->s.len) && memcmp(a->s.at, b->s.at, a->s.len) == 0;
    case KIN_KIND_LIST:
    case KIN_KIND_TUPLE:
    case KIN_KIND_RANGE: return items_equal(values, a->items, b->items);
    case KIN_KIND_DICT: return pairs_equal(values, a->pairs, b->pairs);
    default: return false; // the other kinds are equal only to themselves
    }
}

const char *kin_value_type_name(const kin_value *value) {
    static const char *const names[] = {
        [KIN_KIND_UNDEFINED] = "undefined", [KIN_KIND_NONE] = "none",
        [KIN_KIND_BOOL] = "bool",           [KIN_KIND_INT] = "int",
        [KIN_KIND_FLOAT] = "float",         [KIN_KIND_STRING] = "str",
        [KIN_KIND_LIST] = "list",           [KIN_KIND_DICT] = "dict",
        [KIN_KIND_TUPLE] = "tuple",         [KIN_KIND_RANGE] = "range",
        [KIN_KIND_VIEW] = "dict view",      [KIN_KIND_ITERATOR] = "generator",
        [KIN_KIND_NAMESPACE] = "namespace", [KIN_KIND_LOOP] = "loop",
        [KIN_KIND_FUNCTION] = "function",   [KIN_KIND_MACRO] = "macro",
    };
    return names[value->kind];
}
