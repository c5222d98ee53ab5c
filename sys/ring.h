// Memory that is mapped twice in a row: a ring buffer in which data that crosses the end continues at the beginning.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Maps n bytes (a multiple of the page size), visible at [p, p + n) and again at [p + n, p + 2 n). Initially zero; memory is
// allocated when it is touched. Returns NULL on failure.
uint8_t *kin_ring_map(size_t n);
void kin_ring_unmap(uint8_t *ring, size_t n);

// Returns the memory to the OS; the ring is zero again. Does nothing if the OS does not support it.
void kin_ring_forget(uint8_t *ring, size_t n);

// Returns the bytes of all rings of this process, each counted once. Any thread.
uint64_t kin_ring_bytes(void);
