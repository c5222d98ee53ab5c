// A model on a device that has only parts of it: files of their full size with holes, and a note of which chunks are in them.
//
//   CACHE/models/HASH16/manifest                  the model's manifest (model/manifest.h); HASH16: the hash's first 16 hex digits
//   CACHE/models/HASH16/chunks                    which chunks are there
//   CACHE/models/HASH16/model.gguf                or model-00001-of-0000N.gguf and so on. Names never come from a peer
//
// `chunks`, little-endian: 16 bytes "kinchnk1", n_chunks u32, zeros; then per 64 chunks: u64 of bits, u64 seal (a hash of the
// content hash, the place and the bits). A record is never torn by a crash (it lies within a sector), and one whose seal is wrong
// counts as empty.
//
//   CACHE/models/HASH16/checked                   which chunks were checked against their hashes since the boot (sys/checks.h)
//
// When a bit is trusted. A chunk's hash is checked before a byte is written. It counts as there for this process as soon as it
// is written, and its bit goes to the disk only after its bytes are safe there (fdatasync; once in KIN_STORE_SYNC_CHUNKS, and
// at close): so a bit survives a kill or a power cut only with its bytes, and what is lost is a few chunks to fetch again.
// Bits on the disk are trusted where `checked` says that the chunks were read and hashed since the machine was started, and
// that the files have not changed since. The other chunks are in doubt: they do not count as there until kin_store_verify has
// read and hashed them.
//
// Locks. One process fills a store (flock on `chunks`), others may read it meanwhile. All hold `manifest` shared, so that a
// process that removes the store can lock it exclusively.
//
// Threads: any, at any time between open and close; one mutex inside, not held while chunks are hashed, read, written or synced.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/manifest.h"

#define KIN_STORE_SYNC_CHUNKS 16

typedef struct kin_store kin_store;

typedef enum kin_store_mode {
    KIN_STORE_READ, // what is there, no more
    KIN_STORE_FILL, // makes the store if need be
} kin_store_mode;

// The manifest is copied. Fails if another process fills the same store (mode FILL), if it is another model's, if it is not there
// (mode READ), or if the disk has no room for its folder.
int kin_store_open(kin_store **out, const char *cache_dir, const kin_manifest *manifest, kin_store_mode mode, kin_err *err);

// The same view of a model whose files are all here, anywhere: has every chunk, cannot be filled. paths // [manifest->n_files]
int kin_store_open_files(kin_store **out, const kin_manifest *manifest, const char *const *paths, kin_err *err);

// Writes what is not on the disk yet.
void kin_store_close(kin_store *store);

// The manifest that a store of this content hash keeps. 0; KIN_ABSENT if there is none, or only a damaged one; KIN_FAIL if it
// cannot be read.
int kin_store_find_manifest(kin_manifest *m, const char *cache_dir, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err);

// Reads and hashes the chunks that are in doubt: those that are right are there afterwards, the others forgotten, with a line
// in the log. Until `stop` (NULL: to the end). Chunks that were checked stay so, also where it fails.
int kin_store_verify(kin_store *store, int n_threads, const atomic_bool *stop, kin_err *err);

// ---- chunks

bool kin_store_has(kin_store *store, uint32_t i_chunk); // false beyond the last
bool kin_store_has_all(kin_store *store, uint32_t begin, uint32_t end);

// Takes the bytes of a chunk from any sender; they are checked first. A chunk that is there already is not written again.
typedef enum kin_store_result {
    KIN_STORE_OK,
    KIN_STORE_WRONG,  // they are not this chunk's: the sender is at fault
    KIN_STORE_FAILED, // they could not be checked or kept: an error of this process or its disk. Nothing that was there is lost,
                      // except what the disk lost
} kin_store_result;

kin_store_result kin_store_put(kin_store *store, uint32_t i_chunk, const void *bytes, size_t n, kin_err *err);

// Reads bytes [offset, offset + n) of a chunk. Fails if it is not there or has not that many; all arguments may be a peer's.
int kin_store_read(kin_store *store, uint32_t i_chunk, uint32_t offset, void *bytes, size_t n, kin_err *err);

// Waits until all that was put is safe on the disk and noted there.
int kin_store_sync(kin_store *store, kin_err *err);

// ---- inspection

const kin_manifest *kin_store_manifest(const kin_store *store);

// The path to open that file with; it lives as long as the store. A range of the file may be read once its chunks are there.
const char *kin_store_path(const kin_store *store, int i_file);

// The chunks of a range, as kin_manifest_chunks_of_range has them.
int kin_store_chunks_of_range(const kin_store *store, int i_file, uint64_t offset, uint64_t bytes, uint32_t *begin, uint32_t *end,
                              kin_err *err);

// Bit i % 8 of byte i / 8 is chunk i. bits // [(n_chunks + 7) / 8]. Returns how many are there.
uint32_t kin_store_bitmap(kin_store *store, uint8_t *bits);

// Whether its files are still where it opened them, as long as they were. They may have been removed or replaced since: what it
// has can then be read through it, but not by their paths. Or cut: then it has not what it says.
bool kin_store_is_in_place(const kin_store *store);

// Bytes that the files take on the disk, holes left out.
uint64_t kin_store_size_on_disk(const kin_store *store);
