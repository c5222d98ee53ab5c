// Limits the disk space of pages of the KV cache, and removes the least recently used ones.
//
// The folder is scanned now and then, not for each page, since other processes write there too.
//
// Owner and thread: those of the code that holds the struct.
#pragma once

#include <stdint.h>

#include "base/err.h"

typedef struct kin_kv_room {
    uint64_t cap;  // bytes of all pages; 0: a twentieth of the disk
    uint64_t left; // bytes that may be written before the next scan
} kin_kv_room;

// Makes room for a file of n more bytes in the folders of `dir`: if there is none, removes the least recently used files until a
// tenth of the cap is free again. A twentieth of the disk, at most 1 GiB, stays free. Fails, removing nothing, if n alone is too
// large.
int kin_kv_room_make(kin_kv_room *room, const char *dir, uint64_t n, kin_err *err);
