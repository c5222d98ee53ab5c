// Rows of a table in the model's file that is much larger than memory (kin_ngram): they are read one by one where they lie, and
// some thousands stay in memory. The table itself is never loaded, packed or copied.
//
// A row's place in the cache follows from its number; a row that has the same place replaces it. Owner and thread: the head's.
#pragma once

#include "model/model.h"

typedef struct kin_row_cache kin_row_cache;

int kin_row_cache_open(kin_row_cache **out, const kin_gguf *gguf, const kin_gguf_tensor *table, kin_err *err);
void kin_row_cache_close(kin_row_cache *cache);

// Returns the memory of a cache of rows of this width.
enum { KIN_ROW_CACHE_PLACES = 4096 };
static inline uint64_t kin_row_cache_bytes(int width) {
    return KIN_ROW_CACHE_PLACES * ((uint64_t)width * sizeof(float) + sizeof(uint64_t));
}

// to // f32 [n, t->ne[0]]: these rows. All that are not in memory are asked of the disk before the first one is awaited.
int kin_row_cache_read(kin_row_cache *cache, const uint64_t *rows, size_t n, float *to, kin_err *err);

// Returns how many rows were read from the file.
uint64_t kin_row_cache_n_read(const kin_row_cache *cache);
