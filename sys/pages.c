#include "sys/pages.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t fake_bytes;

void kin_page_bytes_fake(uint64_t n) {
    fake_bytes = n;
}

static uint64_t real_page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t kin_page_bytes(void) {
    return fake_bytes ? fake_bytes : real_page_bytes();
}

uint64_t kin_pages_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_majflt;
}

// Returns the whole pages that [begin, begin + n) touches, in units of the real page size: pages around them may be unmapped.
static uint8_t *pages_of(const void *begin, uint64_t *n) {
    uintptr_t page = real_page_bytes(), first = (uintptr_t)begin / page * page;
    *n = ((uintptr_t)begin + *n + page - 1) / page * page - first;
    return (uint8_t *)first;
}

bool kin_pages_held(const void *begin, uint64_t n) {
#ifdef __linux__
    enum { AT_ONCE = 512 };
    unsigned char in_memory[AT_ONCE];
    uint8_t *pages = pages_of(begin, &n);
    uint64_t page = real_page_bytes(); // the kernel reports one byte per page
    for (uint64_t at = 0; at < n; at += AT_ONCE * page) {
        size_t n_pages = (size_t)((n - at < AT_ONCE * page ? n - at : AT_ONCE * page) / page);
        if (mincore(pages + at, n_pages * page, in_memory) != 0) return true;
        for (size_t i = 0; i < n_pages; i++) {
            if (!(in_memory[i] & 1)) return false;
        }
    }
#else
    (void)begin;
    (void)n;
#endif
    return true;
}

void kin_pages_announce(const void *begin, uint64_t n) {
    enum { AT_ONCE = 128 << 10 }; // Linux truncates a longer WILLNEED to the disk's largest request
    uint8_t *pages = pages_of(begin, &n);
    for (uint64_t at = 0; at < n; at += AT_ONCE) madvise(pages + at, n - at < AT_ONCE ? n - at : AT_ONCE, MADV_WILLNEED);
}

// Returns false if they cannot be read.
static bool touch(const uint8_t *pages, uint64_t n) {
#ifdef MADV_POPULATE_READ
    if (madvise((void *)pages, n, MADV_POPULATE_READ) == 0) return true;
    if (errno != EINVAL) return false;
#endif
    volatile const uint8_t *p = pages; // kernels before 5.14, and other systems
    for (uint64_t i = 0; i < n; i += real_page_bytes()) (void)p[i];
    return true;
}

int kin_pages_fetch(const void *begin, uint64_t n, bool huge) {
    uint8_t *pages = pages_of(begin, &n);
    while (n > 0) {
        uint64_t left = KIN_HUGE_PAGE - (uintptr_t)pages % KIN_HUGE_PAGE, part = huge && left < n ? left : n;
        // Linux reads announced data into small pages; it allocates a huge page when its first byte is touched.
        if (huge && !touch(pages, 1)) return EIO;
        if (!huge || !kin_pages_held(pages, part)) kin_pages_announce(pages, part);
        if (!touch(pages, part)) return EIO;
        pages += part;
        n -= part;
    }
    return 0;
}

void kin_pages_refuse_huge(const void *begin, uint64_t n) {
#ifdef MADV_NOHUGEPAGE
    uint8_t *pages = pages_of(begin, &n);
    madvise(pages, n, MADV_NOHUGEPAGE);
#else
    (void)begin;
    (void)n;
#endif
}

void kin_pages_read_around(const void *begin, uint64_t n, bool wanted) {
    if (!wanted) kin_pages_refuse_huge(begin, n); // with huge pages Linux reads 2 MiB even in random mode
    uint8_t *pages = pages_of(begin, &n);
    madvise(pages, n, wanted ? MADV_NORMAL : MADV_RANDOM);
}

// Returns the whole pages inside [begin, begin + n): *n bytes of them, perhaps 0.
static void *pages_inside(void *begin, uint64_t *n) {
    uintptr_t page = kin_page_bytes(), first = ((uintptr_t)begin + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)begin + *n) / page * page;
    *n = end > first ? end - first : 0;
    return (void *)first;
}

void kin_pages_drop(void *begin, uint64_t n) {
    void *pages = pages_inside(begin, &n);
    if (n > 0) madvise(pages, n, MADV_DONTNEED);
}

bool kin_pages_advise_huge(void *begin, uint64_t n) {
#ifdef MADV_HUGEPAGE
    void *pages = pages_inside(begin, &n);
    return n > 0 && madvise(pages, n, MADV_HUGEPAGE) == 0;
#else
    (void)begin;
    (void)n;
    return false;
#endif
}
