// Memory of one's own is all that a page can map.
#pragma once

#include <stddef.h>

enum { PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32 };
#define MAP_FAILED ((void *)-1)

void *mmap(void *at, size_t n, int protection, int flags, int fd, long long offset); // zeros
int munmap(void *p, size_t n);
