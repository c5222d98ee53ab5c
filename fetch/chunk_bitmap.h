// A bitmap: which chunks of a model are here, which are wanted, and how much is missing.
//
// Plain data; bits are as in HAVE: bit i % 8 of byte i / 8 is chunk i. Owner: fetch/fetch.c. Thread: one at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/store.h"

typedef struct kin_chunk_bitmap {
    const kin_manifest *manifest; // the store's
    uint32_t n_chunks;
    uint8_t *here;    // bits
    uint8_t *missing; // bits: wanted, and not here
    uint8_t *first;   // bits: of the missing ones those that are wanted before all others
    uint32_t n_wanted, n_missing, n_first_missing;
    uint64_t bytes_wanted, bytes_here; // of what is wanted
} kin_chunk_bitmap;

// Nothing is wanted, and what the store has is here.
int kin_chunk_bitmap_init(kin_chunk_bitmap *t, kin_store *store, kin_err *err);
void kin_chunk_bitmap_fini(kin_chunk_bitmap *t); // zeroed is allowed

size_t kin_chunk_bitmap_bits(const kin_chunk_bitmap *t); // bytes of such bits
uint32_t kin_chunk_bitmap_chunk_bytes(const kin_chunk_bitmap *t, uint32_t i_chunk);
bool kin_chunk_bitmap_is_here(const kin_chunk_bitmap *t, uint32_t i_chunk);

void kin_chunk_bitmap_want_nothing(kin_chunk_bitmap *t);
void kin_chunk_bitmap_want(kin_chunk_bitmap *t, uint32_t i_chunk, bool is_first); // not wanted so far

bool kin_chunk_bitmap_add(kin_chunk_bitmap *t, uint32_t i_chunk); // it came; false: it was here before
