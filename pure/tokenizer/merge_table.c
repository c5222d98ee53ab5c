#include "pure/tokenizer/merge_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static kin_merge *slot_of(const kin_merge_table *table, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    uint32_t mask = table->n_slots - 1;
    for (uint32_t i = (uint32_t)(h >> 32) & mask;; i = (i + 1) & mask) {
        kin_merge *slot = &table->slots[i];
        if (slot->left == UINT32_MAX || (slot->left == left && slot->right == right)) return slot;
    }
}

int kin_merge_table_init(kin_merge_table *table, size_t n) {
    size_t n_slots = 16;
    while (n_slots * 2 / 3 < n) n_slots *= 2;
    *table = (kin_merge_table){.slots = malloc(n_slots * sizeof *table->slots), .n_slots = (uint32_t)n_slots};
    if (!table->slots) return KIN_FAIL;
    memset(table->slots, 0xff, n_slots * sizeof *table->slots);
    return 0;
}

void kin_merge_table_fini(kin_merge_table *table) {
    free(table->slots);
    *table = (kin_merge_table){0};
}

void kin_merge_table_add(kin_merge_table *table, kin_merge merge) {
    kin_merge *slot = slot_of(table, merge.left, merge.right);
    if (slot->left == UINT32_MAX) *slot = merge;
}

const kin_merge *kin_merge_table_find(const kin_merge_table *table, uint32_t left, uint32_t right) {
    const kin_merge *slot = slot_of(table, left, right);
    return slot->left == UINT32_MAX ? NULL : slot;
}
