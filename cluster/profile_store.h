// Stored profiles of this machine, as JSON in the cache directory, since measuring takes seconds and disturbs other work.
//
// One file for each fingerprint (engine/profile.h), so that a run with other threads or another GPU does not overwrite the rest.
// Memory is never taken from the file. If a file cannot be read, the machine is measured again; a disk that could not be measured
// is tried again each time.
//
// Plain functions. Thread: the one that computes.
#pragma once

#include "cluster/console.h"
#include "engine/profile.h"

// Returns the profile: from the cache, or measured now, with a line on stderr, and stored. cache_dir NULL: stores nothing, and
// does not measure the disk. refresh: always measures. Ctrl-C ends it with an error.
int kin_profile_obtain(kin_device_facts *out, const kin_devices *devices, const char *name, const char *cache_dir, bool refresh,
                       const kin_console *console, kin_err *err);

// Reads the profile from a file, written by `kin profile --json` and perhaps edited. Memory is read from the system.
int kin_profile_read(kin_device_facts *out, const kin_devices *devices, const char *name, const char *path, kin_err *err);
