#include "sys/ring.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/pages.h"

static atomic_ullong mapped_bytes;

// Opens an anonymous memory file.
static int open_memory(void) {
#ifdef __linux__
    return memfd_create("kin-ring", MFD_CLOEXEC);
#else
    char name[64];
    snprintf(name, sizeof name, "/kin-ring-%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) shm_unlink(name);
    return fd;
#endif
}

uint8_t *kin_ring_map(size_t n) {
    kin_assert(n % kin_page_bytes() == 0);
    int fd = open_memory();
    if (fd < 0) return NULL;
    uint8_t *ring = NULL;
    if (ftruncate(fd, (off_t)n) == 0) {
        void *both = mmap(NULL, 2 * n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ring = both == MAP_FAILED ? NULL : both;
    }
    for (size_t half = 0; half < 2 && ring; half++) {
        if (mmap(ring + half * n, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) continue;
        munmap(ring, 2 * n);
        ring = NULL;
    }
    close(fd);
    if (ring) atomic_fetch_add(&mapped_bytes, n);
    return ring;
}

void kin_ring_unmap(uint8_t *ring, size_t n) {
    if (!ring) return;
    munmap(ring, 2 * n);
    atomic_fetch_sub(&mapped_bytes, n);
}

void kin_ring_forget(uint8_t *ring, size_t n) {
#ifdef MADV_REMOVE
    if (ring) madvise(ring, n, MADV_REMOVE);
#else
    (void)ring;
    (void)n;
#endif
}

uint64_t kin_ring_bytes(void) {
    return atomic_load(&mapped_bytes);
}
