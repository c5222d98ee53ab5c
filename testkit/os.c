#include "testkit/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif
#ifdef __linux__
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#endif

#include "sys/file_times.h"

bool mount_small_disk(const char *dir, const char *size) {
#ifdef __linux__
    char options[32];
    snprintf(options, sizeof options, "size=%s", size);
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", dir, "tmpfs", 0, options) == 0;
#else
    (void)dir, (void)size;
    return false;
#endif
}

void drop_cached_pages(int fd) {
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
    (void)fd;
#endif
}

int read_file_times(const char *path, struct timespec times[3]) {
    struct stat st;
    if (stat(path, &st) != 0) return -1;
    times[0] = kin_file_read_time(&st);
    times[1] = kin_file_written_time(&st);
    times[2] = kin_file_changed_time(&st);
    return 0;
}

size_t allocated_bytes(void *at) {
#ifdef __APPLE__
    return malloc_size(at);
#else
    return malloc_usable_size(at);
#endif
}
