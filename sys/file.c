#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/io.h"

// What it is, and what to do.
static int fail_kind(const char *path, mode_t mode, kin_err *err) {
    if (S_ISDIR(mode)) return kin_err_set(err, "%s: is a folder; a file is needed", path);
    if (S_ISFIFO(mode)) return kin_err_set(err, "%s: is a pipe; save what comes from it to a file, which can be mapped", path);
    return kin_err_set(err, "%s: is no regular file", path);
}

int kin_file_open(kin_file *file, const char *path, kin_err *err) {
    *file = (kin_file){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer must not block
    if (fd < 0) return kin_err_set(err, "%s: %s", path, strerror(errno));

    struct stat st;
    if (fstat(fd, &st) != 0) {
        kin_err_set(err, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        fail_kind(path, st.st_mode, err);
        goto fail;
    }
    file->size = (uint64_t)st.st_size;
    if (file->size > 0) {
        void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            kin_err_set(err, "%s: cannot map %llu bytes: %s", path, (unsigned long long)file->size, strerror(errno));
            goto fail;
        }
        file->bytes = map;
    }
    file->fd = fd;
    return 0;

fail:
    close(fd);
    return KIN_FAIL;
}

void kin_file_close(kin_file *file) {
    if (!file) return;
    if (file->bytes) munmap((void *)file->bytes, (size_t)file->size);
    if (file->fd >= 0) close(file->fd);
    *file = (kin_file){.fd = -1};
}

int kin_file_read(const kin_file *file, uint64_t at, void *to, size_t n) {
    return kin_io_read(file->fd, to, n, at) == (ssize_t)n ? 0 : KIN_FAIL;
}
