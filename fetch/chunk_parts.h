// Beginnings of chunks: what came of a chunk before its source was lost, so that the rest can be had from the same source or from
// another one. A chunk is checked against its hash when it is whole; until then a part is as good as the peers that sent it.
//
// Plain data; bytes are on the heap, and belong to the list while they are in it. Owner: fetch/fetch.c. Thread: one at a time.
#pragma once

#include <stdint.h>

// In memory at a time, beside the chunks in flight: as many as are asked for at a time.
enum { KIN_CHUNK_PARTS_MAX = 16 };

typedef struct kin_chunk_part {
    uint32_t i_chunk;
    uint32_t n_here;   // bytes, from its first one on
    uint32_t n_before; // of these: here before the present source was asked
    uint64_t senders;  // bits of the peers that the bytes are from (fetch/download_peers.h)
    uint8_t *bytes;    // with room for the whole chunk; NULL: nothing is here
} kin_chunk_part;

typedef struct kin_chunk_parts {
    kin_chunk_part list[KIN_CHUNK_PARTS_MAX];
    int n;
} kin_chunk_parts;

// The bytes are the list's now. Of two parts of one chunk the longer one stays, and where the list is full the shortest one goes.
void kin_chunk_parts_put(kin_chunk_parts *parts, const kin_chunk_part *part);

// Takes the part of this chunk out of the list; nothing is here: one without bytes.
kin_chunk_part kin_chunk_parts_take(kin_chunk_parts *parts, uint32_t i_chunk);

// Only those of chunks in `missing` stay: bit i % 8 of byte i / 8 is chunk i. NULL: none.
void kin_chunk_parts_keep(kin_chunk_parts *parts, const uint8_t *missing);
