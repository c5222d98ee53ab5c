#include "sys/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "sys/parallel.h"

enum {
    REQUEST_BYTES = 2 << 20,
    SMALL_BYTES = 256 << 10, // between a page and an expert's matrix in size
    N_IN_FLIGHT = 4,
    ALIGN = 4096,
    LEAST_REQUESTS = 4, // with fewer there is no result
    FREE_SHARE = 16,    // at most this fraction of the free bytes is written
    MOST_MS = 1500,     // limit for writing, and for each reading
};

// Requests of one kind to one file.
typedef struct requests {
    int fd;
    size_t bytes;          // per request
    uint64_t step;         // distance between requests
    const uint32_t *order; // positions in the order of the requests; NULL: sequential
    size_t first;          // first request
    bool write;
    const atomic_bool *stop;
    kin_time deadline; // 0: none
    atomic_int failed;
    atomic_size_t n_done;
} requests;

static bool is_over(const requests *r) {
    return atomic_load(&r->failed) || (r->stop && atomic_load(r->stop)) || (r->deadline && kin_clock_now() > r->deadline);
}

static void *aligned(size_t bytes) {
    void *buffer = NULL;
    return posix_memalign(&buffer, ALIGN, bytes) == 0 ? buffer : NULL;
}

static void do_one(void *user, size_t i) {
    requests *r = user;
    if (is_over(r)) return;
    uint64_t *buffer = aligned(r->bytes);
    i += r->first;
    off_t at = (off_t)((r->order ? r->order[i] : i) * r->step);
    ssize_t n = -1;
    errno = 0;
    if (buffer && r->write) {
        kin_rng rng;
        kin_rng_seed(&rng, i); // incompressible data
        for (size_t k = 0; k < r->bytes / sizeof *buffer; k++) buffer[k] = kin_rng_u64(&rng);
        n = pwrite(r->fd, buffer, r->bytes, at);
    } else if (buffer) {
        n = pread(r->fd, buffer, r->bytes, at);
    }
    if (n == (ssize_t)r->bytes)
        atomic_fetch_add(&r->n_done, 1);
    else
        atomic_store(&r->failed, errno ? errno : EIO);
    free(buffer);
}

// Returns bytes per second of n requests, or of those done before the deadline. The first quarter is excluded: the burst that a
// disk or a limit allows after idle time says nothing about the sustained rate.
static double rate_of(requests *r, size_t n) {
    kin_parallel(N_IN_FLIGHT, n / 4, do_one, r);
    atomic_store(&r->n_done, 0);
    r->first = n / 4;
    kin_time begun = kin_clock_now();
    kin_parallel(N_IN_FLIGHT, n - n / 4, do_one, r);
    double seconds = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    return (double)(atomic_load(&r->n_done) * r->bytes) / (seconds > 0 ? seconds : 1e-9);
}

int kin_disk_rate(const char *path, uint64_t bytes, double *rate, kin_err *err) {
#ifdef O_DIRECT
    requests r = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT), .bytes = REQUEST_BYTES};
    struct stat st;
    if (r.fd < 0 || fstat(r.fd, &st) != 0 || st.st_size < REQUEST_BYTES) {
        if (r.fd >= 0) close(r.fd);
        return kin_err_set(err, "%s: cannot read the file with direct I/O", path);
    }
    uint64_t n_possible = (uint64_t)st.st_size / REQUEST_BYTES, n = bytes / REQUEST_BYTES;
    if (n > n_possible) n = n_possible;
    if (n == 0) n = 1;
    r.step = n_possible / n * REQUEST_BYTES;
    *rate = rate_of(&r, n);
    close(r.fd);
    int failed = atomic_load(&r.failed);
    return failed ? kin_err_set(err, "%s: %s", path, strerror(failed)) : 0;
#else
    (void)bytes;
    (void)rate;
    return kin_err_set(err, "%s: this system does not support direct I/O", path);
#endif
}

// ---- a disk

// Opens a file without a name for writing.
static int open_nameless(const char *folder, kin_err *err) {
    char path[1024];
    int n = snprintf(path, sizeof path, "%s/measure-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path) return kin_err_set(err, "%s: the path is too long", folder);
    int fd = mkstemp(path);
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    unlink(path);
    return fd;
}

// Bypasses the page cache from now on.
static bool make_direct(int fd) {
#if defined(O_DIRECT)
    return fcntl(fd, F_SETFL, O_DIRECT) == 0;
#elif defined(F_NOCACHE)
    return fcntl(fd, F_NOCACHE, 1) == 0;
#else
    (void)fd;
    return false;
#endif
}

static kin_time soon(void) {
    return kin_clock_now() + (kin_time)MOST_MS * 1000000;
}

// Writes until the file is full or time is up. Returns how many consecutive requests can be read back.
static size_t fill(int fd, uint64_t bytes, const atomic_bool *stop) {
    requests w = {.fd = fd, .bytes = REQUEST_BYTES, .step = REQUEST_BYTES, .write = true, .stop = stop, .deadline = soon()};
    kin_parallel(N_IN_FLIGHT, (size_t)(bytes / REQUEST_BYTES), do_one, &w);
    fsync(fd);
    size_t n_done = atomic_load(&w.n_done);
    return n_done > N_IN_FLIGHT ? n_done - N_IN_FLIGHT : 0; // the last ones may have left a gap
}

static void shuffle(uint32_t *order, size_t n) {
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)(kin_rng_u64(&rng) % i);
        uint32_t other = order[k];
        order[k] = order[i - 1];
        order[i - 1] = other;
    }
}

static int measure_file(int fd, size_t n, const atomic_bool *stop, kin_disk_speed *speed, kin_err *err) {
    requests large = {.fd = fd, .bytes = REQUEST_BYTES, .step = REQUEST_BYTES, .stop = stop, .deadline = soon()};
    speed->bytes_s = rate_of(&large, n);
    size_t n_small = n * (REQUEST_BYTES / SMALL_BYTES);
    uint32_t *order = malloc(n_small * sizeof *order);
    if (!order) return kin_err_set(err, "out of memory");
    shuffle(order, n_small);
    requests small = {.fd = fd, .bytes = SMALL_BYTES, .step = SMALL_BYTES, .order = order, .stop = stop, .deadline = soon()};
    speed->random_bytes_s = rate_of(&small, n_small / 2);
    free(order);
    int failed = atomic_load(&large.failed) ? atomic_load(&large.failed) : atomic_load(&small.failed);
    return failed ? kin_err_set(err, "cannot read: %s", strerror(failed)) : 0;
}

uint64_t kin_disk_free(const char *folder) {
    struct statvfs vfs;
    return statvfs(folder, &vfs) == 0 ? (uint64_t)vfs.f_bavail * vfs.f_frsize : 0;
}

int kin_disk_measure(const char *folder, uint64_t bytes, const atomic_bool *stop, kin_disk_speed *speed, kin_err *err) {
    struct statvfs vfs;
    *speed = (kin_disk_speed){0};
    if (statvfs(folder, &vfs) != 0) return kin_err_set(err, "%s: %s", folder, strerror(errno));
    uint64_t most = (uint64_t)vfs.f_bavail * vfs.f_frsize / FREE_SHARE;
    if (bytes > most) bytes = most;
    if (bytes < (uint64_t)LEAST_REQUESTS * REQUEST_BYTES) return kin_err_set(err, "%s: the disk is nearly full", folder);
    int fd = open_nameless(folder, err), rc = KIN_FAIL;
    if (fd < 0) return KIN_FAIL;
    bool direct = make_direct(fd);
    size_t n = direct ? fill(fd, bytes, stop) : 0;
    if (!direct)
        kin_err_set(err, "%s: this disk does not support direct I/O", folder);
    else if (stop && atomic_load(stop))
        kin_err_set(err, "stopped");
    else if (n < LEAST_REQUESTS)
        kin_err_set(err, "%s: the disk is full, or too slow to be measured", folder);
    else if ((rc = measure_file(fd, n, stop, speed, err)) != 0)
        kin_err_prefix(err, "%s", folder);
    if (rc != 0) *speed = (kin_disk_speed){0};
    close(fd);
    return rc;
}
