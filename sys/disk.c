#include "sys/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/parallel.h"

enum { REQUEST_BYTES = 2 << 20, N_IN_FLIGHT = 4, ALIGN = 4096 };

typedef struct probe {
    int fd;
    uint64_t step; // from one request to the next
    atomic_int failed;
} probe;

static void read_one(void *user, size_t i) {
    probe *p = user;
    void *buffer = NULL;
    if (posix_memalign(&buffer, ALIGN, REQUEST_BYTES) != 0 ||
        pread(p->fd, buffer, REQUEST_BYTES, (off_t)(i * p->step)) != REQUEST_BYTES) {
        atomic_store(&p->failed, errno ? errno : EIO);
    }
    free(buffer);
}

int kin_disk_rate(const char *path, uint64_t bytes, double *rate, kin_err *err) {
#ifdef O_DIRECT
    probe p = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT)};
    struct stat st;
    if (p.fd < 0 || fstat(p.fd, &st) != 0 || st.st_size < REQUEST_BYTES) {
        if (p.fd >= 0) close(p.fd);
        return kin_err_set(err, "%s: cannot be read directly", path);
    }
    uint64_t n_possible = (uint64_t)st.st_size / REQUEST_BYTES, n = bytes / REQUEST_BYTES;
    if (n > n_possible) n = n_possible;
    if (n == 0) n = 1;
    p.step = n_possible / n * REQUEST_BYTES;
    kin_time begun = kin_clock_now();
    kin_parallel(N_IN_FLIGHT, n, read_one, &p);
    *rate = (double)(n * REQUEST_BYTES) / (kin_clock_ms(begun, kin_clock_now()) / 1e3);
    close(p.fd);
    int failed = atomic_load(&p.failed);
    return failed ? kin_err_set(err, "%s: %s", path, strerror(failed)) : 0;
#else
    (void)bytes;
    (void)rate;
    return kin_err_set(err, "%s: this system has no direct reads", path);
#endif
}
