// Small files as a whole: read at once, replaced at once. And the folders that they lie in.
//
// Thread: any. Nothing is kept between calls. After the last byte that is read there is a NUL, which is not counted.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Makes a folder and those above it, where they are missing: for all to read (0755).
int kin_folder_make(const char *path, kin_err *err);

// Makes the folders above a file, where they are missing: for nobody but their owner (0700).
int kin_folder_make_private_above(const char *path, kin_err *err);

// The whole content; the caller frees *bytes (never NULL after success). 0; KIN_ABSENT without such a file; KIN_FAIL otherwise,
// also if it has more than `max` bytes.
int kin_whole_file_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err);

// All bytes of a file, a pipe, or stdin ("-"). The caller frees *bytes (never NULL after success). KIN_FAIL too if it is more
// than `max` bytes, or if a signal interrupts the reading.
int kin_whole_input_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err);

// Replaces the file, or makes it (0600): other processes, also after a crash, find the old content or the new one, never a
// mixture.
int kin_whole_file_write(const char *path, const void *bytes, size_t n, kin_err *err);
