// Files that hold pages of the KV cache (engine/kv/page.h) on a disk, as opaque bytes:
//
//   DIR/kv/HASH16/KEY32        HASH16 and KEY32 are the page's name in hexadecimal digits
//
// A page is written under a temporary name and then renamed, so a reader finds a whole page or none. The data need not reach the
// disk before the name does: a torn page fails to unseal. Several processes may share a folder.
//
// Plain functions: any thread, blocking.
#pragma once

#include <stdbool.h>

#include "engine/kv/page.h"
#include "engine/kv/room.h"

// The name of a stored page: a folder for a secret and a variant (engine/kv/store.h), and the page's key.
typedef struct kin_page_name {
    uint8_t folder[8];
    kin_page_key key;
} kin_page_name;

typedef struct kin_kv_path {
    char text[1200];
} kin_kv_path;

kin_kv_path kin_kv_file_path(const char *dir, const kin_page_name *name);

bool kin_kv_file_has(const char *dir, const kin_page_name *name);

// Writes bytes // u8 [n]. Removes other pages if there is no room.
int kin_kv_file_write(const char *dir, kin_kv_room *room, const kin_page_name *name, const uint8_t *bytes, size_t n,
                      kin_err *err);

// Reads a whole file, at most `most` bytes -> bytes // u8 [*n]. KIN_ABSENT: there is no such file, or it cannot be opened now.
int kin_kv_file_read(const char *dir, const kin_page_name *name, uint8_t *bytes, size_t most, size_t *n, kin_err *err);

// Reads n bytes from offset `at`. KIN_ABSENT: the file is shorter than that, or as above.
int kin_kv_file_read_piece(const char *dir, const kin_page_name *name, uint64_t at, uint8_t *bytes, size_t n, kin_err *err);

void kin_kv_file_remove(const char *dir, const kin_page_name *name);
