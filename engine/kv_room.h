// Room for pages of the KV cache on a disk: how much all of them may take, and which leave first.
//
// The folder is looked through now and then, not for each page: other processes write there, too.
//
// Owner and thread: who keeps the struct, one.
#pragma once

#include <stdint.h>

#include "base/err.h"

typedef struct kin_kv_room {
    uint64_t cap;  // bytes of all pages; 0: a twentieth of the disk
    uint64_t left; // bytes that may be written before the folder is looked through again
} kin_kv_room;

// Room for a file of n bytes more in the folders of `dir`: where there is none, the least recently used files leave, until a
// tenth of the cap is free again. A twentieth of the disk, at most 1 GiB, stays free. Fails, removing nothing, where n alone is
// too much.
int kin_kv_room_make(kin_kv_room *room, const char *dir, uint64_t n, kin_err *err);
