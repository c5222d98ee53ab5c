#include "fetch/chunk_bitmap.h"

#include <stdlib.h>
#include <string.h>

static bool bit(const uint8_t *bits, uint32_t i) {
    return bits[i / 8] >> i % 8 & 1;
}

static void set_bit(uint8_t *bits, uint32_t i, bool value) {
    uint8_t one = (uint8_t)(1 << i % 8);
    bits[i / 8] = (uint8_t)(value ? bits[i / 8] | one : bits[i / 8] & ~one);
}

int kin_chunk_bitmap_init(kin_chunk_bitmap *t, kin_store *store, kin_err *err) {
    *t = (kin_chunk_bitmap){.manifest = kin_store_manifest(store), .n_chunks = kin_store_manifest(store)->n_chunks};
    t->here = calloc(kin_chunk_bitmap_bits(t), 1);
    t->missing = calloc(kin_chunk_bitmap_bits(t), 1);
    t->first = calloc(kin_chunk_bitmap_bits(t), 1);
    if (!t->here || !t->missing || !t->first) {
        kin_chunk_bitmap_fini(t);
        return kin_err_set(err, "out of memory");
    }
    kin_store_bitmap(store, t->here);
    return 0;
}

void kin_chunk_bitmap_fini(kin_chunk_bitmap *t) {
    free(t->here);
    free(t->missing);
    free(t->first);
    *t = (kin_chunk_bitmap){0};
}

size_t kin_chunk_bitmap_bits(const kin_chunk_bitmap *t) {
    return ((size_t)t->n_chunks + 7) / 8;
}

uint32_t kin_chunk_bitmap_chunk_bytes(const kin_chunk_bitmap *t, uint32_t i_chunk) {
    return kin_manifest_chunk(t->manifest, i_chunk).bytes;
}

bool kin_chunk_bitmap_is_here(const kin_chunk_bitmap *t, uint32_t i_chunk) {
    return bit(t->here, i_chunk);
}

void kin_chunk_bitmap_want_nothing(kin_chunk_bitmap *t) {
    memset(t->missing, 0, kin_chunk_bitmap_bits(t));
    memset(t->first, 0, kin_chunk_bitmap_bits(t));
    t->n_wanted = t->n_missing = t->n_first_missing = 0;
    t->bytes_wanted = t->bytes_here = 0;
}

void kin_chunk_bitmap_want(kin_chunk_bitmap *t, uint32_t i_chunk, bool is_first) {
    uint32_t n = kin_chunk_bitmap_chunk_bytes(t, i_chunk);
    t->bytes_wanted += n;
    t->n_wanted++;
    if (bit(t->here, i_chunk)) {
        t->bytes_here += n;
        return;
    }
    set_bit(t->missing, i_chunk, true);
    t->n_missing++;
    if (!is_first) return;
    set_bit(t->first, i_chunk, true);
    t->n_first_missing++;
}

bool kin_chunk_bitmap_add(kin_chunk_bitmap *t, uint32_t i_chunk) {
    if (bit(t->here, i_chunk)) return false;
    set_bit(t->here, i_chunk, true);
    if (bit(t->missing, i_chunk)) {
        t->bytes_here += kin_chunk_bitmap_chunk_bytes(t, i_chunk);
        t->n_missing--;
    }
    t->n_first_missing -= bit(t->first, i_chunk);
    set_bit(t->missing, i_chunk, false);
    set_bit(t->first, i_chunk, false);
    return true;
}
