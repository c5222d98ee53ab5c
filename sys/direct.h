// Reads that bypass the page cache.
#pragma once

// Returns another descriptor of the open file `fd` with direct reads (which must be block-aligned: 4096 suffices). Returns -1 if
// the file system does not support it. The caller closes it.
int kin_direct_open(int fd);
