#include "pure/text/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "pure/text/utf8.h"

static bool is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static bool moves_text(uint32_t c) {
    return c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

size_t kin_escape_char(const char *text, size_t n, char shown[KIN_ESCAPE_CHAR]) {
    int len = kin_utf8_len(text, n);
    uint32_t c = len > 0 ? kin_utf8_get(text, len) : 0;
    if (len <= 0) {
        snprintf(shown, KIN_ESCAPE_CHAR, "\\x%02x", (unsigned char)text[0]);
        return 1;
    }
    const char *named = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (named) {
        strcpy(shown, named);
    } else if (is_control(c)) {
        snprintf(shown, KIN_ESCAPE_CHAR, "\\x%02x", c);
    } else if (moves_text(c)) {
        snprintf(shown, KIN_ESCAPE_CHAR, "\\u{%x}", c);
    } else {
        memcpy(shown, text, (size_t)len);
        shown[len] = '\0';
    }
    return (size_t)len;
}

char *kin_escape(char *to, size_t size, const char *text, size_t n) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        char shown[KIN_ESCAPE_CHAR];
        i += kin_escape_char(text + i, n - i, shown);
        size_t len = strlen(shown);
        if (len >= size - used) break;
        memcpy(to + used, shown, len);
        used += len;
    }
    to[used] = '\0';
    return to;
}
