// The folder of caches, prepacked and fetched weights and what texts left: what is there, how much it may hold, and what is
// removed first.
//
//   DIR/*.pack                 prepacked weights (engine/packed.h)
//   DIR/models/HASH16/         what a device has fetched of a model (model/store.h)
//   DIR/kv/HASH16/             pages of the KV cache, of texts (engine/kv_store.h); they have a limit of their own
//
// Below DIR, DIR/models and DIR/kv, which may be links to another disk, symbolic links are not followed.
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
    time_t used;    // the last time
} kin_cache_entry;

// The end of its path: what people call it.
const char *kin_cache_entry_name(const kin_cache_entry *entry);

// What is there, least recently used first: at most 1024 entries. *list is the caller's to free, also where it is empty.
size_t kin_cache_dir_list(const char *dir, kin_cache_entry **list);

// Fails if a kin uses it, or where the folder cannot be changed.
int kin_cache_dir_remove(const kin_cache_entry *entry, kin_err *err);

// Makes room for a new cache file of `need` bytes in `dir`: the least recently used files are removed, except those that a
// process has open, until all together stay within `cap` bytes (0: a fifth of the disk). Each removal is a line in the log.
// Fails, removing nothing, if `need` alone is beyond the cap or the disk has not that much free even then.
int kin_cache_dir_make_room(const char *dir, uint64_t need, uint64_t cap, kin_err *err);

// The same for `need` more bytes of fetched weights, within `cap` bytes for all fetched weights (0: half of the disk). Where
// the disk is short, prepacked weights are removed too. A twentieth of the disk, at most 1 GiB, stays free.
int kin_cache_dir_make_room_for_model(const char *dir, uint64_t need, uint64_t cap, kin_err *err);
