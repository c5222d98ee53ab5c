// A file mapped read-only as a whole. The OS loads and evicts its pages.
//
// The mapping shows writes by other processes, and access beyond a truncated end raises a bus error. Code that computes from a
// file therefore guards the mapping, so that missing pages read as zeros, and calls kin_file_check before it uses a result.
//
// Owner: the caller that opened it; the bytes live until close. Thread: any, nothing mutates.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Identifies a file, with the times of its last write and its last change of any kind (the latter cannot be set back).
typedef struct kin_file_identity {
    uint64_t device, inode, size;
    uint64_t written_s, written_ns, changed_s, changed_ns;
} kin_file_identity;

typedef struct kin_file {
    const uint8_t *bytes; // [size], NULL when size is 0
    uint64_t size;
    int fd;
    int guard;                  // index among the guarded files; -1: not guarded
    kin_file_identity identity; // as of open
} kin_file;

// Fails with "PATH: reason" (missing, a folder, a pipe, no permission, too large to map).
int kin_file_open(kin_file *file, const char *path, kin_err *err);
void kin_file_close(kin_file *file);

// Copies bytes [at, at + n) without touching the mapping. Returns KIN_FAIL if the file is too short (now).
int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n);

// ---- files that change

// Identify an open file, or the file at a path. On KIN_FAIL errno has the reason.
int kin_file_identify(int fd, kin_file_identity *identity);
int kin_file_identify_path(const char *path, kin_file_identity *identity);

typedef enum kin_file_state {
    KIN_FILE_SAME,
    KIN_FILE_TOUCHED, // same size and write time, but renamed, linked, or with that time set back
    KIN_FILE_CHANGED, // written to or truncated
} kin_file_state;

// Compares the open file's present state with `identity`.
kin_file_state kin_file_check(const kin_file *file, const kin_file_identity *identity);

// For an open file that others may legitimately write to: true if a page of its mapping was missing, or the file is shorter now.
bool kin_file_is_cut(const kin_file *file);

// From now until close, missing pages of the mapping read as zeros, provided that the program's bus error handler calls
// kin_file_mend. Has no effect if too many files are guarded.
void kin_file_guard(kin_file *file);

// For a bus error handler: maps zeros at `at` and beyond, if it is in a guarded mapping; otherwise returns false.
// Async-signal-safe.
bool kin_file_mend(uintptr_t at);
