// The disk's own speed, to hold ours against.
#pragma once

#include <stdint.h>

#include "base/err.h"

// Bytes per second of large direct reads, several in flight, over up to `bytes` of the file, spread over all of it.
// Fails where the file cannot be read past the page cache: the figure would be the cache's.
int kin_disk_rate(const char *path, uint64_t bytes, double *rate, kin_err *err);
