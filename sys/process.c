#include "sys/process.h"

#ifdef __linux__

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXITING = 4 }; // the kernel's PF_EXITING

static FILE *open_of(int pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return fopen(path, "re");
}

// Parses "1234 (a name) S 1 1234 1234 0 -1 4194560 ...": the state, and after five numbers the flags.
static bool has_begun_to_end(int pid) {
    char line[512] = "", state = ' ';
    unsigned flags = 0;
    FILE *f = open_of(pid, "stat");
    if (!f) return false;
    const char *name_end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    if (!name_end || sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2) return false;
    return state == 'Z' || state == 'X' || flags & EXITING;
}

// True if SIGKILL is pending for a thread or the process: "SigPnd:\t0000000000000100".
static bool was_killed(int pid) {
    char line[256];
    uint64_t pending, all = 0;
    FILE *f = open_of(pid, "status");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "SigPnd: %" SCNx64, &pending) == 1 || sscanf(line, "ShdPnd: %" SCNx64, &pending) == 1) all |= pending;
    }
    if (f) fclose(f);
    return all >> (SIGKILL - 1) & 1;
}

bool kin_process_own_path(char *buf, size_t n) {
    ssize_t len = readlink("/proc/self/exe", buf, n);
    if (len <= 0 || (size_t)len >= n) return false;
    buf[len] = '\0';
    return true;
}

bool kin_process_is_ending(int pid) {
    return has_begun_to_end(pid) || was_killed(pid);
}

bool kin_process_wait_end(int pid, int timeout_ms) {
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (p.fd < 0) return true;
    bool has_ended = poll(&p, 1, timeout_ms) != 0;
    close(p.fd);
    return has_ended;
}

#else

#ifdef __APPLE__
#include <limits.h>
#include <mach-o/dyld.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

bool kin_process_own_path(char *buf, size_t n) {
    char named[PATH_MAX], path[PATH_MAX];
    uint32_t size = sizeof named;
    if (_NSGetExecutablePath(named, &size) != 0 || !realpath(named, path)) return false;
    return (size_t)snprintf(buf, n, "%s", path) < n;
}
#else
bool kin_process_own_path(char *buf, size_t n) {
    (void)buf, (void)n;
    return false;
}
#endif

bool kin_process_is_ending(int pid) {
    (void)pid;
    return false;
}

bool kin_process_wait_end(int pid, int timeout_ms) {
    (void)pid, (void)timeout_ms;
    return true;
}

#endif
