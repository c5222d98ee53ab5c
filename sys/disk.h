// The disk's own speed: of an existing file, to compare kin's reading with, and of a disk, to plan with.
//
// Reads go past the page cache; where that is not possible there is no figure, because it would be the cache's. What lies below
// the operating system (the disk's own cache, a virtual machine's host) counts as disk.
//
// Plain functions; they start some threads and end them.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

// Bytes that a user may still write to the disk of that folder; 0: not known.
uint64_t kin_disk_free(const char *folder);

// Bytes per second of large direct reads, several in flight, over up to `bytes` of the file, spread over all of it.
// Fails where the file cannot be read past the page cache: the figure would be the cache's.
int kin_disk_rate(const char *path, uint64_t bytes, double *rate, kin_err *err);

typedef struct kin_disk_speed {
    double bytes_s;        // large direct reads, several in flight
    double random_bytes_s; // small ones, anywhere
} kin_disk_speed;

// Measures the disk that `folder` is on, with a file of at most `bytes` that is written there and has no name, so it is gone
// with the process at the latest. Less is written where the disk is nearly full or slow. stop: NULL, or once true it ends early
// with an error.
int kin_disk_measure(const char *folder, uint64_t bytes, const atomic_bool *stop, kin_disk_speed *speed, kin_err *err);
