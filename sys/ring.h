// Memory that is mapped twice in a row: a ring buffer in which a piece that runs over the end continues at the beginning.
#pragma once

#include <stddef.h>
#include <stdint.h>

// n bytes (a multiple of the page size), visible at [p, p + n) and again at [p + n, p + 2 n). Zero at first and paid for as it
// is touched. NULL if there is none.
uint8_t *kin_ring_map(size_t n);
void kin_ring_unmap(uint8_t *ring, size_t n);

// Gives the memory back; the ring is as new. Where the OS cannot, nothing happens.
void kin_ring_forget(uint8_t *ring, size_t n);

// Bytes of all rings of this process, each counted once. From any thread.
uint64_t kin_ring_bytes(void);
