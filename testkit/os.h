// System calls of tests that differ between Linux and macOS.
#ifndef KIN_TESTKIT_OS_H
#define KIN_TESTKIT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

// Mounts an empty file system of that size ("64k") on `dir`, visible to this process alone: call it in a child. Returns false
// where that is not possible: on other systems than Linux, or without the right to mount.
bool mount_small_disk(const char *dir, const char *size);

// Asks the OS to drop the pages of that file from its cache. Does nothing where no such call exists.
void drop_cached_pages(int fd);

// Reads when the file was last read [0], written [1] and changed [2]; the first two are what utimensat() takes. Returns 0 or,
// with errno, -1.
int read_file_times(const char *path, struct timespec times[3]);

// Returns how many bytes the allocator gave for that block of malloc(): at least those that were asked for.
size_t allocated_bytes(void *at);

#endif
