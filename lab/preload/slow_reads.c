// slow_reads: makes the direct reads of a program (LD_PRELOAD) as slow as those of a disk with a constant rate: one read after
// the other, each takes its bytes over KIN_LAB_READS (bytes per second), also after a rest. The kernel's throttle works in slices
// and grants a whole slice at once after a rest, so disks of devices that wait for each other would seem faster than they are.
//
// The real disk must be faster. Reads through the page cache are not slowed down: neither mapped files nor read().
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t pread_function(int fd, void *to, size_t n, off_t at);

static pread_function *real_pread;
static double bytes_per_ns;
static _Atomic uint64_t free_ns; // when the disk will have finished its requests

__attribute__((constructor)) static void begin(void) {
    const char *rate = getenv("KIN_LAB_READS");
    *(void **)&real_pread = dlsym(RTLD_NEXT, "pread64");
    bytes_per_ns = rate ? atof(rate) * 1e-9 : 0;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t done_at(size_t n) {
    uint64_t now = now_ns(), free = atomic_load(&free_ns), done;
    do {
        done = (free > now ? free : now) + (uint64_t)((double)n / bytes_per_ns);
    } while (!atomic_compare_exchange_weak(&free_ns, &free, done));
    return done;
}

static void sleep_until(uint64_t ns) {
    const struct timespec t = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

ssize_t pread64(int fd, void *to, size_t n, off_t at) {
    if (!real_pread) begin(); // another library's constructor ran before ours
    if (bytes_per_ns <= 0 || !(fcntl(fd, F_GETFL) & O_DIRECT)) return real_pread(fd, to, n, at);
    const uint64_t done = done_at(n);
    const ssize_t got = real_pread(fd, to, n, at);
    const int why = errno;
    sleep_until(done);
    errno = why;
    return got;
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    return pread64(fd, to, n, at);
}
