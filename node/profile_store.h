// Profiles of this machine that were measured before, as JSON in the cache directory: measuring takes seconds and disturbs.
//
// One file for each fingerprint (engine/profile.h), so a run with other threads or another GPU does not undo what is kept. Memory
// is never taken from the file. A file that cannot be read is measured over; a disk that could not be measured is tried again
// each time.
//
// Plain functions. Thread: the one that computes.
#pragma once

#include "engine/profile.h"
#include "node/console.h"

// The profile: from the cache, or measured now, with a line on stderr, and kept. cache_dir: NULL keeps nothing, and measures no
// disk. refresh: measure in any case. Ctrl-C ends it with an error.
int kin_profile_obtain(kin_device_facts *out, const kin_devices *devices, const char *name, const char *cache_dir, bool refresh,
                       const kin_console *console, kin_err *err);

// The profile as a file has it, which `kin profile --json` wrote and somebody may have edited. Memory is looked up anew.
int kin_profile_read(kin_device_facts *out, const kin_devices *devices, const char *name, const char *path, kin_err *err);
