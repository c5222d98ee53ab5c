#include "pure/tokenizer/merger.h"

#include <stdlib.h>

void kin_merger_fini(kin_merger *merger) {
    free(merger->symbols);
    free(merger->heap);
    *merger = (kin_merger){0};
}

int kin_merger_begin(kin_merger *merger, size_t n, kin_err *err) {
    merger->n = merger->n_heap = 0;
    if (n <= merger->cap) return 0;
    kin_merger_fini(merger);
    size_t cap = n + n / 2 + 64;
    merger->symbols = malloc(cap * sizeof *merger->symbols);
    merger->heap = malloc(2 * cap * sizeof *merger->heap); // at first n - 1; each of n - 1 joins removes one and adds two
    if (!merger->symbols || !merger->heap) {
        kin_merger_fini(merger);
        return kin_err_set(err, "tokenizer: out of memory");
    }
    merger->cap = cap;
    return 0;
}

void kin_merger_add(kin_merger *merger, uint32_t at, uint32_t len, uint32_t id) {
    kin_assert(merger->n < merger->cap);
    int32_t i = (int32_t)merger->n++;
    merger->symbols[i] = (kin_symbol){.at = at, .len = len, .id = id, .prev = i - 1, .next = -1};
    if (i > 0) merger->symbols[i - 1].next = i;
}

static void push(kin_merger *merger, kin_candidate candidate) {
    kin_assert(merger->n_heap < 2 * merger->cap);
    kin_candidate *heap = merger->heap;
    size_t i = merger->n_heap++;
    for (; i > 0 && heap[(i - 1) / 2].order > candidate.order; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = candidate;
}

static kin_candidate pop(kin_merger *merger) {
    kin_candidate *heap = merger->heap;
    kin_candidate top = heap[0], last = heap[--merger->n_heap];
    size_t i = 0, n = merger->n_heap;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= last.order) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void consider(kin_merger *merger, int32_t left, kin_merge_rule rule, const void *rules, const char *text) {
    if (left < 0) return;
    const kin_symbol *symbol = &merger->symbols[left];
    if (symbol->next < 0) return;
    const kin_symbol *neighbour = &merger->symbols[symbol->next];
    uint32_t order, id;
    if (!rule(rules, text, symbol, neighbour, &order, &id)) return;
    push(merger, (kin_candidate){(uint64_t)order << 32 | (uint32_t)left, symbol->next, symbol->len + neighbour->len, id});
}

void kin_merger_run(kin_merger *merger, kin_merge_rule rule, const void *rules, const char *text) {
    kin_symbol *symbols = merger->symbols;
    for (size_t i = 0; i + 1 < merger->n; i++) consider(merger, (int32_t)i, rule, rules, text);
    while (merger->n_heap > 0) {
        kin_candidate best = pop(merger);
        kin_symbol *left = &symbols[(uint32_t)best.order], *right = &symbols[best.right];
        if (left->len == 0 || right->len == 0 || left->len + right->len != best.len) continue; // stale
        left->len = best.len;
        left->id = best.id;
        right->len = 0;
        left->next = right->next;
        if (right->next >= 0) symbols[right->next].prev = (int32_t)(left - symbols);
        consider(merger, left->prev, rule, rules, text);
        consider(merger, (int32_t)(left - symbols), rule, rules, text);
    }
}
