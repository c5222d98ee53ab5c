// The prepacked cache: one file per model and CPU variant that holds weights in the layout this CPU multiplies fastest.
//
// ggml repacks weights into anonymous memory, which the OS cannot take back. Kept in a file and mapped from there,
// the same bytes cost nothing at the next start and stay reclaimable. The file is cut into units (a block of a layer each,
// page-aligned); a unit becomes valid by one small write after its bytes are safely on disk, so a kill or a full disk
// at any moment loses only units that were not finished. A file that is truncated or damaged is noticed and begun anew.
//
// Layout of the file, all little-endian:
//   0   8  magic "kinpack1"
//   8   8  bytes of the whole file
//   16  8  units n
//   24  16 key: what the content was made from
//   40  8  hash of bytes 0..40
//   64  n x 32: offset, bytes, hash of the content, seal; the seal (a hash of the other three and of the key) says "valid"
//   then the units, each at a multiple of 4096
//
// Owner: one kin_weights. Threads: commit may run on a second thread while others map; has/map/reserve from the owner's.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_PACKED_ALIGN 4096

typedef struct kin_packed kin_packed;

typedef struct kin_packed_key {
    uint64_t model;   // content of the weights
    uint64_t variant; // layout: ggml version and CPU features
} kin_packed_key;

// Opens or creates DIR/KEY.pack (and DIR itself) for units of the given sizes. An existing file that does not fit or is damaged
// is begun anew, with a line in the log. Fails if the directory cannot be used or another process is writing the same file.
int kin_packed_open(kin_packed **out, const char *dir, kin_packed_key key, size_t n_units, const uint64_t *unit_bytes, kin_err *err);
void kin_packed_close(kin_packed *packed);

const char *kin_packed_path(const kin_packed *packed);

bool kin_packed_has(const kin_packed *packed, size_t i);

// Gives unit i its disk space, so that writing through a mapping cannot fail later. Fails when the disk is full.
int kin_packed_reserve(kin_packed *packed, size_t i, kin_err *err);

// Maps unit i at `at` (page-aligned, replacing what is mapped there), for reading, or for filling it in.
int kin_packed_map(kin_packed *packed, size_t i, void *at, bool writable, kin_err *err);

// Makes unit i, filled in at `at`, valid: its bytes go to the disk, then its seal. The mapping becomes read-only.
int kin_packed_commit(kin_packed *packed, size_t i, void *at, kin_err *err);

// No more commits will come for now: other processes may open the file.
void kin_packed_settle(kin_packed *packed);
