// Finds one of many names in O(log n), and detects duplicates when it is built.
//
// A sorted array rather than a hash table: names come from untrusted files, and no input makes sorting slow. Owner: the struct
// that holds it. Nothing is copied: the names live elsewhere and outlive the index.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct kin_name {
    const char *at; // [len], not NUL-terminated
    size_t len;
    size_t i; // the name's index in the owner's array
} kin_name;

typedef struct kin_name_index {
    kin_name *sorted; // [n]
    size_t n;
} kin_name_index;

// Takes over `names` (malloc'ed, [n]) and sorts it.
void kin_name_index_init(kin_name_index *index, kin_name *names, size_t n);
void kin_name_index_fini(kin_name_index *index);

// Returns the entry whose name equals `text`, or NULL.
const kin_name *kin_name_index_find(const kin_name_index *index, const char *text, size_t len);

// Returns a name that occurs twice (the later of the two); NULL if all differ.
const kin_name *kin_name_index_duplicate(const kin_name_index *index);
