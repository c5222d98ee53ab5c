#include "fetch/chunk_parts.h"

#include <stdlib.h>

static void remove_part(kin_chunk_parts *parts, int i) {
    free(parts->list[i].bytes);
    parts->list[i] = parts->list[--parts->n];
}

static int find_part(const kin_chunk_parts *parts, uint32_t i_chunk) {
    for (int i = 0; i < parts->n; i++) {
        if (parts->list[i].i_chunk == i_chunk) return i;
    }
    return -1;
}

static int find_shortest(const kin_chunk_parts *parts) {
    int shortest = 0;
    for (int i = 1; i < parts->n; i++) {
        if (parts->list[i].n_here < parts->list[shortest].n_here) shortest = i;
    }
    return shortest;
}

void kin_chunk_parts_put(kin_chunk_parts *parts, const kin_chunk_part *part) {
    int i = find_part(parts, part->i_chunk);
    if (i < 0 && parts->n == KIN_CHUNK_PARTS_MAX) i = find_shortest(parts);
    if (i >= 0 && parts->list[i].n_here >= part->n_here) {
        free(part->bytes);
        return;
    }
    if (i >= 0) remove_part(parts, i);
    parts->list[parts->n++] = *part;
}

kin_chunk_part kin_chunk_parts_pop(kin_chunk_parts *parts, uint32_t i_chunk) {
    int i = find_part(parts, i_chunk);
    if (i < 0) return (kin_chunk_part){.i_chunk = i_chunk};
    kin_chunk_part taken = parts->list[i];
    parts->list[i] = parts->list[--parts->n];
    return taken;
}

void kin_chunk_parts_keep(kin_chunk_parts *parts, const uint8_t *missing) {
    for (int i = parts->n - 1; i >= 0; i--) {
        uint32_t chunk = parts->list[i].i_chunk;
        if (!missing || !(missing[chunk / 8] >> chunk % 8 & 1)) remove_part(parts, i);
    }
}
