// A file mapped read-only as a whole. Pages are the OS's to load and to take back.
//
// The mapping shows what others write to the file, and a page behind a new end of the file is a bus error. Whoever computes from
// it asks kin_file_check before a result is given out, and guards it: then such a page is zeros, and kin_file_check says so.
//
// Owner: whoever opened it; the bytes live until close. Thread: any, nothing mutates.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Which file it is, and when it was written to and changed in any way (the latter cannot be set back).
typedef struct kin_file_identity {
    uint64_t device, inode, size;
    uint64_t written_s, written_ns, changed_s, changed_ns;
} kin_file_identity;

typedef struct kin_file {
    const uint8_t *bytes; // [size], NULL when size is 0
    uint64_t size;
    int fd;
    int guard;                  // its place among those that are guarded; -1: it is not
    kin_file_identity identity; // when it was opened
} kin_file;

// Fails with "PATH: reason" (missing, a folder, a pipe, no permission, too large to map).
int kin_file_open(kin_file *file, const char *path, kin_err *err);
void kin_file_close(kin_file *file);

// Copies bytes [at, at + n) without touching the mapping. KIN_FAIL if they are not there (any more).
int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n);

// ---- files that change

// Of an open file; of the file that a path leads to. KIN_FAIL: errno says why.
int kin_file_identify(int fd, kin_file_identity *identity);
int kin_file_identify_path(const char *path, kin_file_identity *identity);

typedef enum kin_file_state {
    KIN_FILE_SAME,
    KIN_FILE_TOUCHED, // of the same size and last written at the same time, but renamed, linked, or with that time set back
    KIN_FILE_CHANGED, // written to, or cut
} kin_file_state;

// How the open file is now, against `identity`.
kin_file_state kin_file_check(const kin_file *file, const kin_file_identity *identity);

// Of an open file that others may write to, by right: whether a page of its mapping was missing, or its end is.
bool kin_file_is_cut(const kin_file *file);

// From now on, until close, a page of the mapping that is not there any more is zeros for who reads it, where the program handles
// bus errors with kin_file_mend. Without effect where too many files are guarded.
void kin_file_guard(kin_file *file);

// For a handler of bus errors: puts zeros at `at` and behind it, if that is in a guarded mapping. False: it is not. Calls nothing
// that a signal handler may not.
bool kin_file_mend(uintptr_t at);
