// Records which chunks of a model are present: a set of chunk numbers, and the file that stores it (layout: model/store.h).
//
// Owner and lock: the store's. Reading and writing the file blocks on the disk, for at most 256 KiB.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/sha256.h"

typedef struct kin_chunk_notes {
    uint32_t n_chunks;
    uint64_t key;    // derived from the content hash: seals of other models do not match
    uint64_t *words; // [(n_chunks + 63) / 64], bit i % 64 of word i / 64 is chunk i
} kin_chunk_notes;

// Creates an empty set. Fails only if out of memory.
int kin_chunk_notes_init(kin_chunk_notes *notes, uint32_t n_chunks, const uint8_t hash[KIN_SHA256_BYTES], kin_err *err);
void kin_chunk_notes_fini(kin_chunk_notes *notes); // a zeroed struct is allowed

bool kin_chunk_notes_get(const kin_chunk_notes *notes, uint32_t i_chunk);
void kin_chunk_notes_set(kin_chunk_notes *notes, uint32_t i_chunk, bool there);
bool kin_chunk_notes_any(const kin_chunk_notes *notes, uint32_t begin, uint32_t end);

static inline size_t kin_chunk_notes_n_words(const kin_chunk_notes *notes) {
    return ((size_t)notes->n_chunks + 63) / 64;
}

// Adds the chunks of the file's valid records. A damaged or truncated file, or that of another model, adds fewer or none.
void kin_chunk_notes_load(kin_chunk_notes *notes, int fd);

// Writes the set to the file. Returns 0, or KIN_FAIL with errno set.
int kin_chunk_notes_save(const kin_chunk_notes *notes, int fd);
