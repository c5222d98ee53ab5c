#include "testkit/silent_console.h"

static void ignore_line(const char *fmt, ...) {
    (void)fmt;
}

static void show_nothing(const char *line) {
    (void)line;
}

static void no_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user, (void)what, (void)done, (void)total;
}

static void clear_nothing(void) {}

kin_console kin_silent_console(atomic_bool *stop) {
    return (kin_console){
        .stop = stop, .log = ignore_line, .status = show_nothing, .progress = no_progress, .clear_progress = clear_nothing};
}
