#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kin_err_set(kin_err *err, const char *fmt, ...) {
    if (!err) return KIN_FAIL;
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return KIN_FAIL;
}

int kin_err_prefix(kin_err *err, const char *fmt, ...) {
    if (!err) return KIN_FAIL;
    char prefix[sizeof err->text];
    const kin_err sentence = *err;
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    return kin_err_set(err, "%s: %s", prefix, sentence.text);
}

_Noreturn void kin_assert_failed(const char *what, const char *file, int line) {
    fprintf(stderr, "kin: broken invariant: %s (%s:%d)\n", what, file, line);
    abort();
}
