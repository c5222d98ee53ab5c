// Which parts of files were checked against their hashes since this machine started: a note on the disk, so that each part is
// read and hashed once for every start of the machine and every change of the files, not at every start of a program.
//
// A note, all little-endian:
//   0   8  magic "kinchkd1"
//   8   8  state: a hash of the boot and of the files' inodes, sizes and times of change
//   16  8  parts n
//   24  (n + 7) / 8: bit i % 8 of byte i / 8 is part i
//       8  hash of all before
//
// Thread: any. Nothing is kept between calls.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Inode, size and times of change of an open file, as a hash: it differs after every write, and for a copy. Chain the files of
// a set by `seed`, the first with 1. 0 where one of them cannot be read.
uint64_t kin_file_stamp(int fd, uint64_t seed);

// What a note is about: files with that stamp, since this boot. 0: the system does not say when it was started; nothing is noted.
uint64_t kin_checks_state(uint64_t stamp);

// Sets those of bits // [(n + 7) / 8] that the note at `path` has; none where the note is absent, damaged, or of another state.
void kin_checks_load(uint8_t *bits, size_t n, const char *path, uint64_t state);

// Replaces the note. What a note of the same state has besides stays in it.
int kin_checks_save(const uint8_t *bits, size_t n, const char *path, uint64_t state, kin_err *err);

static inline bool kin_checks_has(const uint8_t *bits, size_t i) {
    return bits[i / 8] >> (i % 8) & 1;
}

static inline void kin_checks_add(uint8_t *bits, size_t i) {
    bits[i / 8] |= (uint8_t)(1 << i % 8);
}
