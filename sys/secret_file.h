// Files that have a secret, such as a key or a code: read only if no other user may read them.
//
// Thread: any. No state is kept between calls. The caller wipes what was read.
#pragma once

#include <stddef.h>

#include "base/err.h"

// Reads the first *n bytes, at most `max`. Returns 0; KIN_ABSENT if there is no such file, KIN_FAIL otherwise; both with an
// error, which names the command that mends it if other users may read or change the file. A file that systemd hands to a service
// (LoadCredential) may have rights of a group, and one on a read-only mount may be readable by all.
int kin_secret_file_read(const char *path, void *bytes, size_t max, size_t *n, kin_err *err);
