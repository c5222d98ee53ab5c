// Small files as a whole: read at once, replaced atomically. Also creates their folders.
//
// Thread: any. No state is kept between calls. Data that was read is followed by a NUL, which is not counted.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Creates a folder and its missing parents, readable by all (0755).
int kin_folder_make(const char *path, kin_err *err);

// Creates the missing folders above a file, accessible to the owner only (0700).
int kin_folder_make_private_above(const char *path, kin_err *err);

// Reads the whole file; the caller frees *bytes (never NULL after success). Returns 0; KIN_ABSENT if there is no such file;
// KIN_FAIL otherwise, also if it has more than `max` bytes.
int kin_whole_file_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err);

// Reads all bytes of a file, a pipe, or stdin ("-"). The caller frees *bytes (never NULL after success). Also fails if there are
// more than `max` bytes, or if a signal interrupts the read.
int kin_whole_input_read(const char *path, size_t max, uint8_t **bytes, size_t *n, kin_err *err);

// Replaces or creates the file (0600): other processes find either the old or the new content, also after a crash.
int kin_whole_file_write(const char *path, const void *bytes, size_t n, kin_err *err);
