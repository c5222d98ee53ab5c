// Partial chunks: the received beginning of a chunk whose download broke, so that the rest can be fetched from the same peer or
// from another one. A chunk is verified against its hash only when it is complete; until then it is only as trustworthy as
// the peers that sent it.
//
// Plain data; bytes are on the heap, and the list owns them while they are in it. Owner: fetch/fetch.c. Thread: one at a time.
#pragma once

#include <stdint.h>

// Most parts in memory, beside the chunks in flight: the number of chunks requested at a time.
enum { KIN_CHUNK_PARTS_MAX = 16 };

typedef struct kin_chunk_part {
    uint32_t i_chunk;
    uint32_t n_here;   // bytes received, from offset 0
    uint32_t n_before; // the part of n_here received before the present peer was asked
    uint64_t senders;  // bit set of the peers that sent the bytes (fetch/download_peers.h)
    uint8_t *bytes;    // room for the whole chunk; NULL: nothing received
} kin_chunk_part;

typedef struct kin_chunk_parts {
    kin_chunk_part list[KIN_CHUNK_PARTS_MAX];
    int n;
} kin_chunk_parts;

// Takes over the bytes. Of two parts of one chunk the longer one is kept; if the list is full, the shortest one is dropped.
void kin_chunk_parts_put(kin_chunk_parts *parts, const kin_chunk_part *part);

// Removes the part of this chunk from the list and returns it; without one it returns a part without bytes.
kin_chunk_part kin_chunk_parts_pop(kin_chunk_parts *parts, uint32_t i_chunk);

// Drops the parts of all chunks that are not in `missing`: bit i % 8 of byte i / 8 is chunk i. NULL: drops all.
void kin_chunk_parts_keep(kin_chunk_parts *parts, const uint8_t *missing);
