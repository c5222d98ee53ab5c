#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kin_err_set(kin_err *err, const char *fmt, ...) {
    if (!err) return KIN_FAIL;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return KIN_FAIL;
}

int kin_err_prefix(kin_err *err, const char *fmt, ...) {
    if (!err) return KIN_FAIL;
    char prefix[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix - 2, fmt, args);
    va_end(args);
    strcat(prefix, ": ");

    size_t n = strlen(prefix);
    memmove(err->text + n, err->text, sizeof err->text - n);
    memcpy(err->text, prefix, n);
    err->text[sizeof err->text - 1] = '\0';
    return KIN_FAIL;
}

_Noreturn void kin_assert_failed(const char *what, const char *file, int line) {
    fprintf(stderr, "kin: broken invariant: %s (%s:%d)\n", what, file, line);
    abort();
}
