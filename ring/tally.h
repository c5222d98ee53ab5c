// A tally: which chunks of a model are here, which are wanted, and how much is missing.
//
// Plain data; bits are as in HAVE: bit i % 8 of byte i / 8 is chunk i. Owner: ring/fetch.c. Thread: one at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/store.h"

typedef struct kin_tally {
    const kin_manifest *manifest; // the store's
    uint32_t n_chunks;
    uint8_t *here;    // bits
    uint8_t *missing; // bits: wanted, and not here
    uint8_t *first;   // bits: of the missing ones those that are wanted before all others
    uint32_t n_wanted, n_missing, n_first_missing;
    uint64_t bytes_wanted, bytes_here; // of what is wanted
} kin_tally;

// Nothing is wanted, and what the store has is here.
int kin_tally_init(kin_tally *t, kin_store *store, kin_err *err);
void kin_tally_fini(kin_tally *t); // zeroed is allowed

size_t kin_tally_bits(const kin_tally *t); // bytes of such bits
uint32_t kin_tally_chunk_bytes(const kin_tally *t, uint32_t i_chunk);
bool kin_tally_is_here(const kin_tally *t, uint32_t i_chunk);

void kin_tally_want_nothing(kin_tally *t);
void kin_tally_want(kin_tally *t, uint32_t i_chunk, bool is_first); // not wanted so far

bool kin_tally_add(kin_tally *t, uint32_t i_chunk); // it came; false: it was here before
