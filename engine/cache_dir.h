// The cache folder (prepacked weights, fetched weights, KV pages): lists its entries, limits its size, and removes the least
// recently used.
//
//   DIR/*.pack                 prepacked weights (engine/packed.h); *.pack.checked, *.pack.experts belong to them
//   DIR/models/HASH16/         the parts of a model that a device has fetched (model/store.h)
//   DIR/kv/HASH16/             pages of the KV cache (engine/kv/store.h), with a limit of their own
//
// DIR, DIR/models and DIR/kv may be links to another disk; symbolic links below them are not followed.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

typedef enum kin_cache_kind {
    KIN_CACHE_PACK,
    KIN_CACHE_MODEL,
    KIN_CACHE_KV,
} kin_cache_kind;

typedef struct kin_cache_entry {
    kin_cache_kind kind;
    char path[1024];
    uint64_t bytes; // on the disk
    time_t used;    // last use
} kin_cache_entry;

// Returns the end of the entry's path, for display.
const char *kin_cache_entry_name(const kin_cache_entry *entry);

// Lists at most 1024 entries, least recently used first. The caller frees *list, even if it is empty.
size_t kin_cache_dir_list(const char *dir, kin_cache_entry **list);

// Fails if a kin process uses the entry, or if the folder cannot be changed.
int kin_cache_dir_remove(const kin_cache_entry *entry, kin_err *err);

// Makes room for a new cache file of `need` bytes in `dir`: removes the least recently used files that no process has open, until
// all of them and the new one fit within `cap` bytes (0: a fifth of the disk). Logs each removal. Fails, removing nothing, if
// `need` alone exceeds the cap or the disk could not hold it even then.
int kin_cache_dir_make_room(const char *dir, uint64_t need, uint64_t cap, kin_err *err);

// Does the same for `need` more bytes of fetched weights, within `cap` bytes for all fetched weights (0: half of the disk).
// Removes prepacked weights too if the disk has too little room. A twentieth of the disk, at most 1 GiB, stays free.
int kin_cache_dir_make_room_for_model(const char *dir, uint64_t need, uint64_t cap, kin_err *err);
