// failing_io: makes calls of a program (LD_PRELOAD) on some files fail, as on a disk that is damaged or full.
//
//     KIN_LAB_FAILS=CALL:ERROR:PART[:EVERY]     read:EIO:/kv/     write:ENOSPC:.pack     open:EIO:/kv/:3
//
// CALL is read, write or open; ERROR EIO or ENOSPC; PART a part of the file's path. With EVERY each EVERY-th such call fails,
// else all. A call that fails does nothing. Mapped files are read without a call, so they do not fail.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t pread_function(int fd, void *to, size_t n, off_t at);
typedef ssize_t pwrite_function(int fd, const void *from, size_t n, off_t at);
typedef int open_function(const char *path, int flags, ...);

static pread_function *real_pread;
static pwrite_function *real_pwrite;
static open_function *real_open;
static char call[8], part[256];
static int error, every = 1;
static atomic_int n_calls;

__attribute__((constructor)) static void begin(void) {
    char name[8] = "";
    const char *rule = getenv("KIN_LAB_FAILS");
    *(void **)&real_pread = dlsym(RTLD_NEXT, "pread64");
    *(void **)&real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    *(void **)&real_open = dlsym(RTLD_NEXT, "open64");
    if (!rule || sscanf(rule, "%7[^:]:%7[^:]:%255[^:]:%d", call, name, part, &every) < 3) return;
    error = strcmp(name, "ENOSPC") == 0 ? ENOSPC : EIO;
}

static bool fails(const char *what, const char *path) {
    if (error == 0 || strcmp(call, what) != 0 || !strstr(path, part) || atomic_fetch_add(&n_calls, 1) % every != every - 1)
        return false;
    errno = error;
    return true;
}

static bool fails_at(const char *what, int fd) {
    char link[32], path[4096];
    if (error == 0 || strcmp(call, what) != 0) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return fails(what, path);
}

ssize_t pread64(int fd, void *to, size_t n, off_t at) {
    if (!real_pread) begin(); // another library's constructor ran before this one
    return fails_at("read", fd) ? -1 : real_pread(fd, to, n, at);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    return pread64(fd, to, n, at);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) {
    if (!real_pwrite) begin();
    return fails_at("write", fd) ? -1 : real_pwrite(fd, from, n, at);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    return pwrite64(fd, from, n, at);
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    if (!real_open) begin();
    return fails("open", path) ? -1 : real_open(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    return open64(path, flags, mode);
}
