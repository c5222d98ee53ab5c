#include "pure/text/string_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

static uint32_t hash_of(const char *at, size_t len) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    const uint8_t *p = (const uint8_t *)at;
    uint64_t h = len * odd;
    for (; len >= 8; p += 8, len -= 8) {
        h = (h ^ kin_get_u64(p)) * odd;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < len; i++) tail |= (uint64_t)p[i] << (8 * i);
    h = (h ^ tail) * odd;
    h = (h ^ h >> 32) * odd;
    return (uint32_t)(h >> 32);
}

// Returns the slot of the string, or the free slot for it.
static kin_string_slot *slot_of(const kin_string_table *table, uint32_t hash, const char *at, size_t len) {
    uint32_t mask = table->n_slots - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        kin_string_slot *slot = &table->slots[i];
        if (slot->id_plus_1 == 0) return slot;
        if (slot->hash != hash) continue;
        uint32_t id = slot->id_plus_1 - 1;
        if (kin_string_table_len(table, id) == len && memcmp(kin_string_table_at(table, id), at, len) == 0) return slot;
    }
}

static int grow_slots(kin_string_table *table, uint64_t n) {
    uint64_t n_slots = 16;
    while (n_slots * 2 / 3 < n) n_slots *= 2;
    if (n_slots <= table->n_slots) return 0;
    if (n_slots > UINT32_MAX) return KIN_FAIL;

    kin_string_slot *old = table->slots;
    uint32_t n_old = table->n_slots;
    kin_string_slot *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return KIN_FAIL;
    table->slots = slots;
    table->n_slots = (uint32_t)n_slots;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].id_plus_1 == 0) continue;
        uint32_t at = old[i].hash & (table->n_slots - 1);
        while (slots[at].id_plus_1 != 0) at = (at + 1) & (table->n_slots - 1);
        slots[at] = old[i];
    }
    free(old);
    return 0;
}

static int grow_strings(kin_string_table *table, uint64_t n, uint64_t n_bytes) {
    if (n_bytes > KIN_STRING_TABLE_MAX_BYTES || n >= UINT32_MAX / 2) return KIN_FAIL;
    if (n > table->cap || !table->begin) {
        uint64_t cap = n + n / 2 + 16;
        uint32_t *begin = realloc(table->begin, (cap + 1) * sizeof *begin);
        if (!begin) return KIN_FAIL;
        table->begin = begin;
        table->cap = (uint32_t)cap;
    }
    if (n_bytes > table->cap_bytes || !table->bytes) {
        uint64_t cap = n_bytes + n_bytes / 2 + 64;
        char *bytes = realloc(table->bytes, cap);
        if (!bytes) return KIN_FAIL;
        table->bytes = bytes;
        table->cap_bytes = cap;
    }
    return 0;
}

int kin_string_table_init(kin_string_table *table, uint32_t n, size_t n_bytes) {
    *table = (kin_string_table){0};
    if (grow_strings(table, n, n_bytes) < 0 || grow_slots(table, n) < 0) {
        kin_string_table_fini(table);
        return KIN_FAIL;
    }
    table->begin[0] = 0;
    return 0;
}

void kin_string_table_fini(kin_string_table *table) {
    free(table->bytes);
    free(table->begin);
    free(table->slots);
    *table = (kin_string_table){0};
}

int64_t kin_string_table_add(kin_string_table *table, const char *at, size_t len) {
    uint32_t hash = hash_of(at, len);
    kin_string_slot *slot = slot_of(table, hash, at, len);
    if (slot->id_plus_1 != 0) return slot->id_plus_1 - 1;

    uint32_t n_slots = table->n_slots;
    if (grow_strings(table, (uint64_t)table->n + 1, (uint64_t)table->n_bytes + len) < 0) return -1;
    if (grow_slots(table, (uint64_t)table->n + 1) < 0) return -1;
    if (table->n_slots != n_slots) slot = slot_of(table, hash, at, len);

    if (len > 0) memcpy(table->bytes + table->n_bytes, at, len);
    table->n_bytes += len;
    uint32_t id = table->n++;
    table->begin[table->n] = (uint32_t)table->n_bytes;
    *slot = (kin_string_slot){.hash = hash, .id_plus_1 = table->n};
    return id;
}

int64_t kin_string_table_find(const kin_string_table *table, const char *at, size_t len) {
    return (int64_t)slot_of(table, hash_of(at, len), at, len)->id_plus_1 - 1;
}
