#include "base/log.h"

#include <stdarg.h>

#include "base/sentence.h"

static kin_log_sink log_sink;
static void *log_user;

void kin_log_set_sink(kin_log_sink sink, void *user) {
    log_sink = sink;
    log_user = user;
}

void kin_log(kin_log_level level, const char *fmt, ...) {
    if (!log_sink) return;
    char line[2048];
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(line, sizeof line, fmt, args);
    va_end(args);
    log_sink(log_user, level, line);
}
