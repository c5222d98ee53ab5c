// Records the actions of a step function as lines of text, and keeps the story's clock. For tests written as stories.
//
// Include it once per program. A test adds a line for every action and then expects the lines.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "tests/place.h"

#define MS ((kin_time)1000000)

static kin_time now;
static char trace[65536];

static inline void add(const char *fmt, ...) KIN_PRINTF(1, 2);

static inline void add(const char *fmt, ...) {
    size_t n = strlen(trace);
    va_list args;
    va_start(args, fmt);
    vsnprintf(trace + n, sizeof trace - n, fmt, args);
    va_end(args);
}

static inline void forget(void) {
    trace[0] = '\0';
}

// Compares the actions since the last expect, line by line.
static inline void expect(const char *wanted) {
    if (strcmp(trace, wanted) != 0) fail_msg("at %.3f s:\n--- wanted\n%s--- got\n%s", (double)now / 1e9, wanted, trace);
    forget();
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))
