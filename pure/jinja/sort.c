#include "pure/jinja/sort.h"

#include <string.h>

static int string_less(kin_values *values, const kin_string *a, const kin_string *b) {
    size_t n = a->len < b->len ? a->len : b->len;
    int order = n > 0 ? memcmp(a->at, b->at, n) : 0; // UTF-8 sorts in code point order
    kin_values_charge_bytes(values, n);
    return order ? order < 0 : a->len < b->len;
}

static int items_less(kin_values *values, const kin_items *a, const kin_items *b) {
    if (!kin_values_charge(values, (a->n < b->n ? a->n : b->n) / 4)) return KIN_FAIL;
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (!kin_value_equal(values, a->at[i], b->at[i])) return kin_value_less(values, a->at[i], b->at[i]);
    }
    return a->n < b->n;
}

int kin_value_less(kin_values *values, const kin_value *a, const kin_value *b) {
    if (!kin_values_charge(values, 1)) return KIN_FAIL;
    if (kin_value_is_integer(a) && kin_value_is_integer(b)) return kin_value_integer(a) < kin_value_integer(b);
    if (kin_value_is_number(a) && kin_value_is_number(b)) return kin_value_number(a) < kin_value_number(b);
    if (a->kind != b->kind) return KIN_FAIL;
    if (a->kind == KIN_KIND_STRING) return string_less(values, &a->s, &b->s);
    if (a->kind == KIN_KIND_LIST || a->kind == KIN_KIND_TUPLE) return items_less(values, a->items, b->items);
    return KIN_FAIL;
}

// Merges [0, half) and [half, n) of `pairs` through `space` [n], stably.
static bool merge(kin_values *values, kin_pair *pairs, size_t half, size_t n, kin_pair *space, bool reverse) {
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        int takes_b = a == half;
        if (a < half && b < n) {
            const kin_value *left = pairs[a].key, *right = pairs[b].key;
            takes_b = reverse ? kin_value_less(values, left, right) : kin_value_less(values, right, left);
            if (takes_b < 0) return false;
        }
        space[i] = takes_b ? pairs[b++] : pairs[a++];
    }
    memcpy(pairs, space, n * sizeof *pairs);
    return true;
}

static bool sort(kin_values *values, kin_pair *pairs, size_t n, kin_pair *space, bool reverse) {
    if (n < 2) return true;
    return sort(values, pairs, n / 2, space, reverse) && sort(values, pairs + n / 2, n - n / 2, space, reverse) &&
           merge(values, pairs, n / 2, n, space, reverse);
}

bool kin_sort_pairs(kin_values *values, kin_pair *pairs, size_t n, bool reverse) {
    kin_pair *space = kin_values_alloc(values, n * sizeof *space);
    return space && sort(values, pairs, n, space, reverse);
}

const kin_pairs *kin_sorted_pairs(kin_values *values, const kin_pairs *pairs) {
    kin_pairs *sorted = kin_values_alloc(values, sizeof *sorted);
    if (!sorted) return NULL;
    *sorted = (kin_pairs){.n = pairs->n, .at = kin_values_alloc(values, pairs->n * sizeof *sorted->at)};
    if (!sorted->at) return NULL;
    if (pairs->n > 0) memcpy(sorted->at, pairs->at, pairs->n * sizeof *sorted->at);
    return kin_sort_pairs(values, sorted->at, sorted->n, false) ? sorted : NULL;
}
