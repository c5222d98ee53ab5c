#include "app/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/hex.h"
#include "sys/file.h"

// ---- /proc/self/maps: "7f00-7f20 r--s 00000000 fe:01 1234    /a/b", one line per mapping

typedef struct reader {
    int fd;
    char bytes[512];
    size_t n, next;
} reader;

// Returns the next byte; -1 at the end.
static int get(reader *r) {
    if (r->next == r->n) {
        ssize_t got = read(r->fd, r->bytes, sizeof r->bytes);
        if (got <= 0) return -1;
        r->n = (size_t)got;
        r->next = 0;
    }
    return (unsigned char)r->bytes[r->next++];
}

// Parses a hexadecimal number; returns the byte after it.
static int get_number(reader *r, uintptr_t *number) {
    *number = 0;
    for (;;) {
        int c = get(r), digit = c < 0 ? -1 : kin_hex_digit((char)c);
        if (digit < 0) return c;
        *number = *number * 16 + (uintptr_t)digit;
    }
}

// Reads the rest of a line from its first '/' on. Returns false if the line has no '/'.
static bool get_path(reader *r, char *path, size_t n) {
    size_t len = 0;
    for (int c = get(r); c >= 0 && c != '\n'; c = get(r)) {
        if ((len == 0 && c != '/') || len + 1 >= n) continue;
        path[len++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    path[len] = '\0';
    return len > 0;
}

bool kin_bus_error_find(int maps_fd, uintptr_t at, char *path, size_t n) {
    reader r = {.fd = maps_fd};
    uintptr_t begin, end;
    while (get_number(&r, &begin) == '-') {
        get_number(&r, &end);
        bool has_path = get_path(&r, path, n);
        if (at >= begin && at < end) return has_path;
    }
    return false;
}

// ---- the signal

static void write_stderr(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void on_bus_error(int sig, siginfo_t *info, void *context) {
    static atomic_bool is_reported;
    static char path[1024];
    (void)context;
    if (kin_file_mend((uintptr_t)info->si_addr)) return; // the computing code checks for truncation
    while (atomic_exchange(&is_reported, true)) pause(); // another thread reports it and ends the process
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps >= 0 && kin_bus_error_find(maps, (uintptr_t)info->si_addr, path, sizeof path)) {
        write_stderr("\nkin: ");
        write_stderr(path);
        write_stderr(": cannot be read: the file was truncated or its disk failed; restore the file and restart kin\n");
        _exit(KIN_EXIT_FAILED);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

void kin_bus_error_watch(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGURG); // whose handler may leave this one (sys/team/interrupt.h)
    sigaction(SIGBUS, &action, NULL);
}
