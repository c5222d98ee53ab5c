#include "pure/text/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kin_text_put(kin_text_buffer *text, const char *at, size_t len) {
    if (text->failed) return;
    if (len >= KIN_TEXT_BUFFER_MAX - text->len) {
        text->failed = true;
        return;
    }
    if (text->len + len + 1 > text->cap) {
        size_t cap = 2 * (text->len + len) + 64;
        char *grown = realloc(text->at, cap);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->at = grown;
        text->cap = cap;
    }
    if (len > 0) memcpy(text->at + text->len, at, len);
    text->len += len;
    text->at[text->len] = '\0';
}

void kin_text_print(kin_text_buffer *text, const char *fmt, ...) {
    char some[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(some, sizeof some, fmt, args);
    va_end(args);
    kin_assert(n >= 0 && n < (int)sizeof some);
    kin_text_put(text, some, (size_t)n);
}

void kin_text_fini(kin_text_buffer *text) {
    free(text->at);
    *text = (kin_text_buffer){0};
}
