// Returns true if madvise has an effect. qemu-user returns 0 for all advice, known or not, and passes none of it on.
#pragma once

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static inline bool madvise_is_real(void) {
    enum { NO_SUCH_ADVICE = 12345 };
    size_t n = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    bool is_real = madvise(page, n, NO_SUCH_ADVICE) != 0;
    munmap(page, n);
    return is_real;
}
