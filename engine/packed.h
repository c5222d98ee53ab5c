// The prepacked cache: one file per model and CPU variant that holds weights in the layout this CPU multiplies fastest.
//
// ggml repacks weights into anonymous memory, which the OS cannot take back. Kept in a file and mapped from there,
// the same bytes cost nothing at the next start and stay reclaimable. The file is cut into weight blocks, each at a
// multiple of 64 KiB; a block becomes valid by one small write after its bytes are safely on disk, so a kill or a full disk at
// any moment loses only blocks that were not finished. A file that is truncated or damaged is noticed and begun anew.
//
// When a block is trusted. Its content is checked against its hash once for every start of the machine and every change of the
// file (sys/checks.h; the note is FILE.checked, whose time of change also says when the file was used last). And a block
// remembers the hash of the weights that it was made from, and how the model's files looked then: where they look different,
// because they were repaired, edited, copied or touched, the weights are hashed again, and a block that was made from other
// weights is dropped.
//
// Layout of the file, all little-endian:
//   0   8  magic "kinpack3"
//   8   8  bytes of the whole file
//   16  8  blocks n
//   24  16 key: what the content was made from
//   40  8  hash of bytes 0..40
//   64  n x 48: offset, bytes, hash of the content, hash of the source, stamp of the source's files, seal; the seal (a hash of
//       the others and of the key) says "valid"
//   then the blocks, each at a multiple of KIN_PACKED_ALIGN
//
// Owner: each kin_weights its own opening. Threads: any for what concerns a block, as long as each block has one at a time.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_PACKED_ALIGN (64 << 10) // the largest page that a machine may have
#define KIN_PACKED_SUFFIX ".pack"
#define KIN_PACKED_CHECKED_SUFFIX ".checked" // after that

typedef struct kin_packed kin_packed;

typedef struct kin_packed_key {
    uint64_t model;   // content of the weights
    uint64_t variant; // layout: ggml version and CPU features
} kin_packed_key;

// Whether DIR/KEY.pack is there, sound or not.
bool kin_packed_exists(const char *dir, kin_packed_key key);

// Opens or creates DIR/KEY.pack (and DIR itself) for blocks of the given sizes. An existing file that does not fit or is damaged
// is begun anew, with a line in the log. Fails if the directory cannot be used or another process is writing the same file.
// source_stamp: of the files that the blocks are made from (kin_file_stamp); 0: the key says all of their content.
int kin_packed_open(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                    const uint64_t *block_bytes, kin_err *err);

// The same, and the process has the file open once: who shares it again has what the others know of its blocks, and is not locked
// out by their writing. Each closes it.
int kin_packed_share(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                     const uint64_t *block_bytes, kin_err *err);

// Notes what was checked, if the file has not changed since it was opened.
void kin_packed_close(kin_packed *packed);

const char *kin_packed_path(const kin_packed *packed);
int kin_packed_fd(const kin_packed *packed); // open until close

// Where block i is in the file.
uint64_t kin_packed_offset(const kin_packed *packed, size_t i);

bool kin_packed_has(kin_packed *packed, size_t i);

// Whether the source's files look as they did when block i was made, or last compared.
bool kin_packed_is_current(kin_packed *packed, size_t i);

// Where it is not current: source_hash is the source's hash now. True if the block was made from that source; else it is
// dropped.
bool kin_packed_renew(kin_packed *packed, size_t i, uint64_t source_hash);

// Whether the content of block i was checked already, or written by us.
bool kin_packed_is_checked(kin_packed *packed, size_t i);

// Checks the content of block i against its hash: as it is at `bytes` // [its size], or NULL: in the file. Where it is not what
// was written the block is dropped.
typedef enum kin_packed_result {
    KIN_PACKED_SOUND,
    KIN_PACKED_DAMAGED,
    KIN_PACKED_STOPPED, // or it could not be read
} kin_packed_result;

kin_packed_result kin_packed_check(kin_packed *packed, size_t i, const void *bytes);

// The same in the background: the file is read past the page cache where that works, until `stop`.
kin_packed_result kin_packed_check_behind(kin_packed *packed, size_t i, const atomic_bool *stop);

// Writes the content of block i // [its size] to the file. It can be mapped from now on, but is not valid for later starts
// before it is sealed. Fails, leaving the block absent, when the disk is full or another process uses the file.
int kin_packed_write(kin_packed *packed, size_t i, const void *bytes, uint64_t source_hash, kin_err *err);

// The same for a block that was found damaged, while others may be written or sealed: it is valid when this returns.
int kin_packed_mend(kin_packed *packed, size_t i, const void *bytes, uint64_t source_hash, kin_err *err);

// The hash that sources are known by // [n]; chain the parts of one by `seed`, the first with 0.
uint64_t kin_packed_hash(const void *bytes, size_t n, uint64_t seed);

// Maps block i read-only at `at` (a multiple of the page size, up to a multiple of KIN_PACKED_ALIGN bytes from there, replacing
// what is mapped there). Fails where pages are larger than KIN_PACKED_ALIGN.
int kin_packed_map(const kin_packed *packed, size_t i, void *at, kin_err *err);

// Makes all blocks that were written valid: waits until their bytes are on the disk, then seals them there. May take seconds.
int kin_packed_seal(kin_packed *packed, kin_err *err);
