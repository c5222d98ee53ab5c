// Measures disk throughput: of an existing file, as a reference for kin's streaming, and of a disk, for the planner.
//
// Reads bypass the page cache; if that is impossible there is no result, because it would measure the cache. Layers below the
// operating system (the disk's own cache, a virtual machine's host) count as disk.
//
// Stateless functions; they start and end some threads.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

// Returns the bytes that the user may still write to the disk of that folder; 0: unknown.
uint64_t kin_disk_free(const char *folder);

// Measures bytes per second of large direct reads, several in flight, over up to `bytes` of the file, spread over all of it.
// Fails if the file cannot be read past the page cache.
int kin_disk_rate(const char *path, uint64_t bytes, double *rate, kin_err *err);

typedef struct kin_disk_speed {
    double bytes_s;        // large direct reads, several in flight
    double random_bytes_s; // small direct reads at random offsets
} kin_disk_speed;

// Measures the disk that holds `folder`, with a temporary file of at most `bytes` that has no name, so it disappears with the
// process at the latest. Writes less if the disk is nearly full or slow. stop: once true, it returns an error early; may be NULL.
int kin_disk_measure(const char *folder, uint64_t bytes, const atomic_bool *stop, kin_disk_speed *speed, kin_err *err);
