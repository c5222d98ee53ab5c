// The content of a model by hashes: sizes and names of its files, a SHA-256 per chunk, and one over all, which is the model's
// identity.
//
// Files are cut into chunks of KIN_CHUNK_BYTES; each file begins a new chunk. Chunks are numbered through all files, in order.
//
//   content hash = SHA-256(chunk_bytes u32, n_files u16, size of each file u64, then the chunk hashes in order)
//
// A manifest with the expected content hash is valid, whatever its source, except for the names: they are for display and not
// part of the identity. It has no paths.
//
// As bytes (kin_manifest_write), all little-endian:
//   0   8   magic "kinmani1"
//   8   4   chunk_bytes
//   12  4   n_files
//   16  4   n_chunks
//   20  per file: u64 size, u16 length of the name, the name
//       per chunk: 32 bytes of hash
//       32 bytes of content hash
//
// Plain data. Owner: the code that made it; const after that, and readable by any thread.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/sha256.h"

#define KIN_CHUNK_BYTES ((uint32_t)4 << 20)
#define KIN_CHUNK_BYTES_MIN 4096 // for small models in tests; always a power of two
#define KIN_MANIFEST_FILES_MAX 64
#define KIN_MANIFEST_CHUNKS_MAX ((uint32_t)1 << 20)
#define KIN_MANIFEST_NAME_MAX 255
#define KIN_MANIFEST_BYTES_MAX                                                                                                   \
    (20 + KIN_MANIFEST_FILES_MAX * (10 + KIN_MANIFEST_NAME_MAX) + ((size_t)KIN_MANIFEST_CHUNKS_MAX + 1) * KIN_SHA256_BYTES)

typedef struct kin_manifest_file {
    uint64_t size; // > 0
    char name[KIN_MANIFEST_NAME_MAX + 1];
    uint32_t chunk_begin, chunk_end;
} kin_manifest_file;

typedef struct kin_manifest {
    uint32_t chunk_bytes;
    int n_files;
    kin_manifest_file *files; // [n_files]
    uint32_t n_chunks;
    uint8_t (*hashes)[KIN_SHA256_BYTES]; // [n_chunks]
    uint8_t hash[KIN_SHA256_BYTES];      // the content hash
} kin_manifest;

// ---- from files

typedef struct kin_manifest_progress { // may be read, and stop may be set, while another thread works
    atomic_uint_least64_t done, total; // bytes
    atomic_bool stop;                  // ends the work with an error
} kin_manifest_progress;

typedef struct kin_manifest_options {
    uint32_t chunk_bytes;
    int n_threads;
    const char *cache_dir;           // NULL: nothing is kept
    kin_manifest_progress *progress; // NULL: not reported
} kin_manifest_options;

// Chunks of KIN_CHUNK_BYTES, as many threads as cores up to 8, no cache.
kin_manifest_options kin_manifest_options_defaults(void);

// Reads and hashes files, or finds the result of an earlier start in `cache_dir`: files are recognized by device, inode, size and
// modification times. Only logs if a cache cannot be written. Fails if a file is empty or changes meanwhile.
int kin_manifest_make(kin_manifest *m, const char *const *paths, int n_files, const kin_manifest_options *options, kin_err *err);

void kin_manifest_fini(kin_manifest *m); // a zeroed struct is allowed

// ---- from a peer, piece by piece: begin, fill m->hashes, finish

// Checks sizes and names against the limits above, and allocates the hashes (all zeros).
int kin_manifest_begin(kin_manifest *m, uint32_t chunk_bytes, int n_files, const uint64_t *sizes, const char *const *names,
                       kin_err *err);

// Computes m->hash; fails if it differs from `expected` (NULL: any hash is accepted).
int kin_manifest_finish(kin_manifest *m, const uint8_t *expected, kin_err *err);

// Makes an independent copy.
int kin_manifest_copy(kin_manifest *m, const kin_manifest *from, kin_err *err);

// ---- as bytes

size_t kin_manifest_bytes(const kin_manifest *m);
void kin_manifest_write(const kin_manifest *m, uint8_t *bytes); // [kin_manifest_bytes]

// Parses untrusted bytes, which must end where the manifest does. Fails if the content hash is not the one in the bytes, or not
// `expected`.
int kin_manifest_parse(kin_manifest *m, const uint8_t *bytes, size_t n, const uint8_t *expected, kin_err *err);

// ---- inspection

// Checks a file name: it must be UTF-8, at most KIN_MANIFEST_NAME_MAX bytes, and contain nothing that leads to another folder or
// disturbs a terminal.
int kin_manifest_check_name(const char *name, kin_err *err);

uint64_t kin_manifest_total(const kin_manifest *m); // bytes of all files

typedef struct kin_chunk {
    int i_file;
    uint64_t offset; // in its file
    uint32_t bytes;  // chunk_bytes, or less at the end of a file
} kin_chunk;

kin_chunk kin_manifest_chunk(const kin_manifest *m, uint32_t i_chunk); // i_chunk < n_chunks

// Finds the chunks that hold bytes [offset, offset + bytes) of a file: [*begin, *end). Fails if the file is shorter than that.
int kin_manifest_chunks_of_range(const kin_manifest *m, int i_file, uint64_t offset, uint64_t bytes, uint32_t *begin,
                                 uint32_t *end, kin_err *err);

// Checks whether these are the bytes of that chunk. Fills err if not.
typedef enum kin_chunk_check {
    KIN_CHUNK_RIGHT,
    KIN_CHUNK_WRONG,     // there is no such chunk, or these are not its bytes
    KIN_CHUNK_UNCHECKED, // they could not be hashed
} kin_chunk_check;

kin_chunk_check kin_manifest_check_chunk(const kin_manifest *m, uint32_t i_chunk, const void *bytes, size_t n, kin_err *err);

// A hash as 64 hex digits.
typedef struct kin_hash_hex {
    char text[2 * KIN_SHA256_BYTES + 1];
} kin_hash_hex;

kin_hash_hex kin_hash_to_hex(const uint8_t hash[KIN_SHA256_BYTES]);
