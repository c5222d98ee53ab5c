// The prepacked cache: one file per model and CPU variant, with weights in the layout that this CPU multiplies fastest.
//
// ggml repacks weights into anonymous memory, which the OS cannot reclaim. Stored in a file and mapped from there, the same bytes
// cost nothing at the next start and stay reclaimable. The file is divided into weight blocks, each at a multiple of 64 KiB. A
// block becomes valid by one small write after its bytes are safely on disk, so a kill or a full disk at any moment loses only
// unfinished blocks. A truncated or damaged file is detected and recreated.
//
// When a block is trusted: its content is checked against its hash once per boot of the machine and per change of the file
// (sys/checks.h; the record is FILE.checked, whose mtime is also the last use of the file). A block also stores the hash of the
// weights that it was made from, and a stamp of the model's files at that time. If the files look different now, because they
// were repaired, edited, copied or touched, the weights are hashed again, and a block that was made from other weights is
// dropped.
//
// Layout of the file, all little-endian:
//   0   8  magic "kinpack4"
//   8   8  bytes of the whole file
//   16  8  blocks n
//   24  16 key: what the content was made from
//   40  8  hash of bytes 0..40
//   64  n x 48: offset, bytes, hash of the content, hash of the source, stamp of the source's files, seal (a hash of the others
//       and of the key): a correct seal marks the block as valid
//   then the blocks, each at a multiple of KIN_PACKED_ALIGN. A block of experts has one expert after the other, each at a
//   multiple of 4096 from the block's begin: the expert's packed matrices, each at a multiple of 64 from the expert's begin
//
// Owner: each kin_weights has its own handle. Threads: any, as long as each block is handled by one thread at a time.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KIN_PACKED_ALIGN (64 << 10) // the largest page size of any machine
#define KIN_PACKED_PIECE (1 << 20)  // blocks are hashed in pieces
#define KIN_PACKED_SUFFIX ".pack"
#define KIN_PACKED_CHECKED_SUFFIX ".checked" // appended to the cache file's name
#define KIN_PACKED_EXPERTS_SUFFIX ".experts" // the same, of the counts of experts (engine/expert_history.h)

typedef struct kin_packed kin_packed;

typedef struct kin_packed_key {
    uint64_t model;   // content of the weights
    uint64_t variant; // layout: ggml version and CPU features
} kin_packed_key;

// True if DIR/KEY.pack exists, valid or not.
bool kin_packed_exists(const char *dir, kin_packed_key key);

// Opens or creates DIR/KEY.pack (and DIR itself) for blocks of the given sizes. An existing file that does not match or is
// damaged is recreated, and logged. Fails if the directory cannot be used or another process is writing the same file.
// source_stamp: stamp of the files that the blocks are made from (kin_file_stamp); 0: the key already identifies their content.
int kin_packed_open(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                    const uint64_t *block_bytes, kin_err *err);

// Does the same, but shares one open file within the process: later callers see what is known of its blocks, and are not locked
// out by each other's writes. Each caller closes its handle.
int kin_packed_share(kin_packed **out, const char *dir, kin_packed_key key, uint64_t source_stamp, size_t n_blocks,
                     const uint64_t *block_bytes, kin_err *err);

// Records which blocks were checked, if the file has not changed since it was opened.
void kin_packed_close(kin_packed *packed);

const char *kin_packed_path(const kin_packed *packed);
kin_packed_key kin_packed_get_key(const kin_packed *packed);
int kin_packed_fd(const kin_packed *packed); // open until close

// Returns the offset of block i in the file.
uint64_t kin_packed_offset(const kin_packed *packed, size_t i);

bool kin_packed_has(kin_packed *packed, size_t i);

// True if the source files look as they did when block i was made or last compared.
bool kin_packed_is_current(kin_packed *packed, size_t i);

// For a block that is not current: source_hash is the present hash of its source. Returns true if the block was made from that
// source; otherwise drops it.
bool kin_packed_renew(kin_packed *packed, size_t i, uint64_t source_hash);

// True if the content of block i was already checked, or written by this process.
bool kin_packed_is_checked(kin_packed *packed, size_t i);

// Checks the content of block i against its hash, at `bytes` // [its size], or in the file if NULL. A damaged block is dropped.
typedef enum kin_packed_result {
    KIN_PACKED_SOUND,
    KIN_PACKED_DAMAGED,
    KIN_PACKED_STOPPED, // or it could not be read
} kin_packed_result;

kin_packed_result kin_packed_check(kin_packed *packed, size_t i, const void *bytes);

// Does the same in the background: reads the file, past the page cache if possible, until `stop`.
kin_packed_result kin_packed_check_behind(kin_packed *packed, size_t i, const atomic_bool *stop);

// Writes the content of block i // [its size] to the file. It can be mapped from now on, but is not valid for later starts until
// it is sealed. Fails, leaving the block absent, if the disk is full or another process uses the file.
int kin_packed_write(kin_packed *packed, size_t i, const void *bytes, uint64_t source_hash, kin_err *err);

// Does the same in parts: writes the bytes [begin, end) of block i, from `bytes` on. The parts follow one another; all but the
// last end at multiples of KIN_PACKED_PIECE. *hash: 0 at first. Then note the block as written.
int kin_packed_write_part(kin_packed *packed, size_t i, const void *bytes, uint64_t begin, uint64_t end, uint64_t *hash,
                          kin_err *err);
void kin_packed_note_written(kin_packed *packed, size_t i, uint64_t hash, uint64_t source_hash);

// Does the same for a block that was found damaged, while others may be written or sealed; the block is valid on return.
int kin_packed_mend(kin_packed *packed, size_t i, const void *bytes, uint64_t source_hash, kin_err *err);

// Returns the hash that identifies sources // [n]; chain the parts of one source by `seed`, starting with 0.
uint64_t kin_packed_hash(const void *bytes, size_t n, uint64_t seed);

// Maps block i read-only at `at` (a multiple of the page size), replacing existing mappings up to a multiple of KIN_PACKED_ALIGN
// bytes from there. Fails if pages are larger than KIN_PACKED_ALIGN.
int kin_packed_map(const kin_packed *packed, size_t i, void *at, kin_err *err);

// Makes all written blocks valid: waits until their bytes are on the disk, then seals them. May take seconds. Lets other
// processes use the file again, even if it fails; call it also after a block of which not all parts could be written.
int kin_packed_seal(kin_packed *packed, kin_err *err);
