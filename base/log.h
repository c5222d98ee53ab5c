// The log: lines for people, written by the libraries. Only app/ decides where they go (stderr).
//
// Thread: any. The sink is set once, before other threads start.
#pragma once

#include "base/err.h"

typedef enum kin_log_level {
    KIN_LOG_DEBUG,
    KIN_LOG_INFO,
    KIN_LOG_WARN,
} kin_log_level;

typedef void (*kin_log_sink)(void *user, kin_log_level level, const char *line);

// Without a sink all lines are dropped. `line` has no newline and lives for the call.
void kin_log_set_sink(kin_log_sink sink, void *user);

void kin_log(kin_log_level level, const char *fmt, ...) KIN_PRINTF(2, 3);
