// A bitmap of a model's chunks: which are present, which are wanted, and how many are missing.
//
// Plain data; bit order as in HAVE: bit i % 8 of byte i / 8 is chunk i. Owner: fetch/fetch.c. Thread: one at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/store.h"

typedef struct kin_chunk_bitmap {
    const kin_manifest *manifest; // the store's
    uint32_t n_chunks;
    uint8_t *here;    // bits: present
    uint8_t *missing; // bits: wanted, but not present
    uint8_t *first;   // bits: the missing chunks that are wanted before all others
    uint32_t n_wanted, n_missing, n_first_missing;
    uint64_t bytes_wanted, bytes_here; // of the wanted chunks
} kin_chunk_bitmap;

// Initially nothing is wanted; the chunks in the store are present.
int kin_chunk_bitmap_init(kin_chunk_bitmap *t, kin_store *store, kin_err *err);
void kin_chunk_bitmap_fini(kin_chunk_bitmap *t); // a zeroed struct is allowed

size_t kin_chunk_bitmap_bits(const kin_chunk_bitmap *t); // bytes of one such bit array
uint32_t kin_chunk_bitmap_chunk_bytes(const kin_chunk_bitmap *t, uint32_t i_chunk);
bool kin_chunk_bitmap_is_here(const kin_chunk_bitmap *t, uint32_t i_chunk);

void kin_chunk_bitmap_want_nothing(kin_chunk_bitmap *t);
void kin_chunk_bitmap_want(kin_chunk_bitmap *t, uint32_t i_chunk, bool is_first); // requires that it was not wanted before

bool kin_chunk_bitmap_add(kin_chunk_bitmap *t, uint32_t i_chunk); // marks a chunk as present; returns false if it already was
