// A record on disk of the file parts that were verified against their hashes since this machine booted, so that each part is read
// and hashed once per boot and per change of the files, not at every start of a program.
//
// A record, all little-endian:
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

// Returns a hash of inode, size and change times of an open file: it differs after every write, and for a copy. Chain the files
// of a set through `seed`; the first has seed 1. Returns 0 if one of them cannot be read.
uint64_t kin_file_stamp(int fd, uint64_t seed);

// Combines the stamp with the current boot. Returns 0 if the system does not report its boot; then nothing is recorded.
uint64_t kin_checks_state(uint64_t stamp);

// Sets the bits // [(n + 7) / 8] recorded in the file at `path`; none if the file is absent, damaged, or of another state.
void kin_checks_load(uint8_t *bits, size_t n, const char *path, uint64_t state);

// Replaces the record. Bits in an existing record of the same state are kept.
int kin_checks_save(const uint8_t *bits, size_t n, const char *path, uint64_t state, kin_err *err);

static inline bool kin_checks_has(const uint8_t *bits, size_t i) {
    return bits[i / 8] >> (i % 8) & 1;
}

static inline void kin_checks_add(uint8_t *bits, size_t i) {
    bits[i / 8] |= (uint8_t)(1 << i % 8);
}
