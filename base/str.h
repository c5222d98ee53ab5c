// A borrowed string: bytes that belong to another object, not NUL-terminated.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct kin_str {
    const char *at;
    size_t len;
} kin_str;

static inline bool kin_str_eq(kin_str s, const char *text) {
    return s.len == strlen(text) && (s.len == 0 || memcmp(s.at, text, s.len) == 0);
}

// JSON's white space.
static inline bool kin_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
