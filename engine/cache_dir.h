// The folder of prepacked weights: how much it may hold, and who leaves first.
#pragma once

#include <stdint.h>

#include "base/err.h"

// Makes room for a new cache file of `need` bytes in `dir`: files that were not used for longest are removed, as far as nobody
// has them open, until all together stay within `cap` bytes (0: a fifth of the disk). Each removal is a line in the log.
// Fails, removing nothing, if `need` alone is beyond the cap or the disk has not that much free even then.
int kin_cache_dir_make_room(const char *dir, uint64_t need, uint64_t cap, kin_err *err);
