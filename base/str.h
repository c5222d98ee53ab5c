// A borrowed string: bytes that belong to another object, not NUL-terminated.
#pragma once

#include <stddef.h>

typedef struct kin_str {
    const char *at;
    size_t len;
} kin_str;
