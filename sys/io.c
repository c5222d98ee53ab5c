#include "sys/io.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

ssize_t kin_io_read(int fd, void *to, size_t n, uint64_t at) {
    return kin_io_read_least(fd, to, n, n, at);
}

ssize_t kin_io_read_least(int fd, void *to, size_t n, size_t least, uint64_t at) {
    for (size_t done = 0;;) {
        ssize_t got = done < least ? pread(fd, (uint8_t *)to + done, n - done, (off_t)(at + done)) : 0;
        if (got == 0) return (ssize_t)done;
        if (got < 0 && errno != EINTR) return KIN_FAIL;
        if (got > 0) done += (size_t)got;
    }
}

int kin_io_write(int fd, const void *from, size_t n, uint64_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const uint8_t *)from + done, n - done, (off_t)(at + done));
        if (put == 0) errno = ENOSPC;
        if (put == 0 || (put < 0 && errno != EINTR)) return KIN_FAIL;
        if (put > 0) done += (size_t)put;
    }
    return 0;
}

size_t kin_io_unacknowledged(int fd) {
    int n = 0;
#if defined(SIOCOUTQ)
    if (ioctl(fd, SIOCOUTQ, &n) != 0) return 0;
#elif defined(SO_NWRITE)
    socklen_t size = sizeof n;
    if (getsockopt(fd, SOL_SOCKET, SO_NWRITE, &n, &size) != 0) return 0;
#else
    (void)fd;
#endif
    return n > 0 ? (size_t)n : 0;
}

void kin_io_limit_window(int fd, size_t n) {
#ifdef TCP_WINDOW_CLAMP
    int most = n > 0 && n < INT_MAX ? (int)n : INT_MAX;
    setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &most, sizeof most);
#else
    (void)fd, (void)n;
#endif
}

int kin_io_sync(int fd) {
#ifdef __APPLE__ // its headers do not declare fdatasync
    return fsync(fd) == 0 ? 0 : KIN_FAIL;
#else
    return fdatasync(fd) == 0 ? 0 : KIN_FAIL;
#endif
}

void kin_io_block_sigpipe(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
