// A file that is being downloaded: FILE.part, which has the bytes that arrived, and FILE.part.state, which tells which are
// missing. A process that is stopped or killed leaves both, and the next one continues.
//
// FILE.part is locked while a process downloads it. The state is one block, overwritten in place: it survives the end of the
// process, but after a crash of the machine it may be ahead of the data. So the content's hash decides in the end; without a
// hash, a state from before the last start of the machine counts for nothing.
//
// Owner: the caller; one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/pull/byte_ranges.h"

enum { KIN_PART_PATH = 1100 };

typedef struct kin_part_file {
    char path[KIN_PART_PATH]; // of the finished file
    int fd, state_fd;
    uint64_t size;
    char identity[200]; // SHA-256 or ETag: bytes of another identity are not used
    bool has_hash, was_begun;
    kin_byte_ranges missing;
} kin_part_file;

typedef enum kin_part_outcome {
    KIN_PART_OPENED,
    KIN_PART_BUSY, // another process has it, or finished it a moment ago
    KIN_PART_FAILED,
} kin_part_outcome;

// Opens or creates and locks it. On KIN_PART_FAILED err has the reason.
kin_part_outcome kin_part_file_open(kin_part_file *part, const char *path, uint64_t size, const char *sha256, const char *etag,
                                    kin_err *err);

// Writes which bytes are missing.
int kin_part_file_save(kin_part_file *part, const kin_byte_ranges *missing, kin_err *err);

// Forgets all bytes.
int kin_part_file_begin_anew(kin_part_file *part, kin_err *err);

// Makes FILE of it and closes it; otherwise close leaves it for the next process.
int kin_part_file_finish(kin_part_file *part, kin_err *err);
void kin_part_file_close(kin_part_file *part);

// Returns how many bytes another process still has to fetch; UINT64_MAX: unknown.
uint64_t kin_part_file_missing(const char *path);

// Removes both files. A process that downloads it keeps its own.
void kin_part_file_remove(const char *path);
