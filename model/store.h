// A store: part of a model on a device, as files of full size with holes, and a record of the chunks that are present.
//
//   CACHE/models/HASH16/manifest                  the model's manifest (model/manifest.h); HASH16: the hash's first 16 hex digits
//   CACHE/models/HASH16/chunks                    the chunks that are present
//   CACHE/models/HASH16/model.gguf                or model-00001-of-0000N.gguf and so on. Names never come from a peer
//
// `chunks`, little-endian: 16 bytes "kinchnk1", n_chunks u32, zeros; then for every 64 chunks: u64 of bits, u64 seal (a hash of
// the content hash, the record's place and the bits). A crash cannot tear a record (it lies within a sector), and a record with a
// wrong seal counts as empty.
//
//   CACHE/models/HASH16/checked                   which chunks were checked against their hashes since the boot (sys/checks.h)
//
// When a bit is trusted: a chunk's hash is checked before a byte is written. For this process the chunk is present as soon as it
// is written, but its bit goes to the disk only after its bytes are safe there (fdatasync; once every KIN_STORE_SYNC_CHUNKS, and
// at close). So after a kill or a power cut a bit exists only with its bytes, and the loss is a few chunks to fetch again. Bits
// on the disk are trusted if `checked` says that the chunks were read and hashed since the machine booted, and that the files
// have not changed since. Other chunks are in doubt: they do not count as present until kin_store_verify has read and hashed
// them.
//
// Locks: one process fills a store (flock on `chunks`), others may read it at the same time. All hold a shared lock on
// `manifest`, so that a process that removes the store can lock it exclusively.
//
// Threads: any, at any time between open and close; an internal mutex is not held while chunks are hashed, read, written or
// synced.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/manifest.h"

#define KIN_STORE_SYNC_CHUNKS 16

typedef struct kin_store kin_store;

typedef enum kin_store_mode {
    KIN_STORE_READ, // read only
    KIN_STORE_FILL, // read and fill; creates the store if needed
} kin_store_mode;

// The manifest is copied. Fails if another process fills the same store (mode FILL), if it belongs to another model, if it does
// not exist (mode READ), or if the disk has no room for its folder.
int kin_store_open(kin_store **out, const char *cache_dir, const kin_manifest *manifest, kin_store_mode mode, kin_err *err);

// Opens a model whose files are all complete, anywhere, as a store that has every chunk and cannot be filled. paths //
// [manifest->n_files]
int kin_store_open_files(kin_store **out, const kin_manifest *manifest, const char *const *paths, kin_err *err);

// Writes to the disk what is not there yet.
void kin_store_close(kin_store *store);

// Reads the manifest from the store of this content hash. Returns 0; KIN_ABSENT if there is none, or only a damaged one; KIN_FAIL
// if it cannot be read.
int kin_store_find_manifest(kin_manifest *m, const char *cache_dir, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err);

// Reads and hashes the chunks in doubt: correct ones become present, the others are dropped and logged. Runs until `stop` (NULL:
// to the end). Chunks that were checked keep their state even if it fails.
int kin_store_verify(kin_store *store, int n_threads, const atomic_bool *stop, kin_err *err);

// ---- chunks

bool kin_store_has(kin_store *store, uint32_t i_chunk); // false beyond the last
bool kin_store_has_all(kin_store *store, uint32_t begin, uint32_t end);

// Accepts the bytes of a chunk from any sender; they are checked first. A chunk that is already present is not written again.
typedef enum kin_store_result {
    KIN_STORE_OK,
    KIN_STORE_WRONG,  // not the bytes of this chunk: the sender is at fault
    KIN_STORE_FAILED, // they could not be checked or stored: an error of this process or its disk. Earlier chunks are not lost,
                      // except those that the disk lost
} kin_store_result;

kin_store_result kin_store_put(kin_store *store, uint32_t i_chunk, const void *bytes, size_t n, kin_err *err);

// Reads bytes [offset, offset + n) of a chunk. Fails if the chunk is absent or shorter; all arguments may come from a peer.
int kin_store_read(kin_store *store, uint32_t i_chunk, uint32_t offset, void *bytes, size_t n, kin_err *err);

// Waits until everything that was put is safely on the disk and recorded there.
int kin_store_sync(kin_store *store, kin_err *err);

// ---- inspection

const kin_manifest *kin_store_manifest(const kin_store *store);

// Returns the path to open that file with; it lives as long as the store. A range of the file may be read once its chunks are
// present.
const char *kin_store_path(const kin_store *store, int i_file);

// Finds the chunks of a range: see kin_manifest_chunks_of_range.
int kin_store_chunks_of_range(const kin_store *store, int i_file, uint64_t offset, uint64_t bytes, uint32_t *begin, uint32_t *end,
                              kin_err *err);

// Writes a bitmap: bit i % 8 of byte i / 8 is chunk i. bits // [(n_chunks + 7) / 8]. Returns the number of chunks present.
uint32_t kin_store_bitmap(kin_store *store, uint8_t *bits);

// True if the store's files are still at their paths, with their full size. If they were removed or replaced, their content can
// be read through the store but not by path. If they were truncated, the store lacks chunks that it reports as present.
bool kin_store_is_in_place(const kin_store *store);

// Returns the bytes that the files occupy on the disk, without holes.
uint64_t kin_store_size_on_disk(const kin_store *store);
