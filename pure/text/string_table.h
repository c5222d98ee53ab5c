// String table: numbers byte strings 0, 1, 2, ... in the order in which they are first added, and finds them again.
//
// Grows as needed; strings are never removed. All strings are stored end to end in one block. After the last add any thread may
// read it.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_string_slot {
    uint32_t hash;
    uint32_t id_plus_1; // 0: free
} kin_string_slot;

typedef struct kin_string_table {
    char *bytes; // [n_bytes]
    size_t n_bytes, cap_bytes;
    uint32_t *begin; // [n + 1] string i is bytes [begin[i], begin[i + 1])
    uint32_t n, cap;
    kin_string_slot *slots; // [n_slots], a power of 2; at most 2/3 used
    uint32_t n_slots;
} kin_string_table;

#define KIN_STRING_TABLE_MAX_BYTES UINT32_MAX // of all strings together

// Makes an empty table with room for n strings of n_bytes in total. Returns 0, or KIN_FAIL if memory runs out.
int kin_string_table_init(kin_string_table *table, uint32_t n, size_t n_bytes);
void kin_string_table_fini(kin_string_table *table);

// Returns the number of the string, which is added if it is new; -1 if memory runs out or a limit is exceeded.
int64_t kin_string_table_add(kin_string_table *table, const char *at, size_t len);

// Returns the number of the string, or -1 if it is absent.
int64_t kin_string_table_find(const kin_string_table *table, const char *at, size_t len);

static inline const char *kin_string_table_at(const kin_string_table *table, uint32_t id) {
    return table->bytes + table->begin[id];
}

static inline size_t kin_string_table_len(const kin_string_table *table, uint32_t id) {
    return table->begin[id + 1] - table->begin[id];
}
