// A file mapped read-only as a whole. Pages are the OS's to load and to take back.
//
// Owner: whoever opened it; the bytes live until close. Thread: any, nothing mutates.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_file {
    const uint8_t *bytes; // [size], NULL when size is 0
    uint64_t size;
    int fd;
} kin_file;

// Fails with "PATH: reason" (missing, a folder, a pipe, no permission, too large to map).
int kin_file_open(kin_file *file, const char *path, kin_err *err);
void kin_file_close(kin_file *file);

// Copies bytes [at, at + n) without touching the mapping. KIN_FAIL if they are not there (any more).
int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n);
