// System calls of tests that differ between Linux and macOS.
#ifndef KIN_TESTKIT_OS_H
#define KIN_TESTKIT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

// Mounts an empty file system of that size ("64k") on `dir`, visible to this process only: call it in a child. Returns false if
// that is not possible: on systems other than Linux, or without the right to mount.
bool mount_small_disk(const char *dir, const char *size);

// Asks the OS to drop the file's pages from its cache. Does nothing if there is no such call.
void drop_cached_pages(int fd);

// Gets the times when the file was last read [0], written [1] and changed [2]; the first two suit utimensat(). Returns 0, or -1
// with errno.
int read_file_times(const char *path, struct timespec times[3]);

// Returns the bytes that the allocator reserved for that block of malloc(): at least the requested size.
size_t allocated_bytes(void *at);

#endif
