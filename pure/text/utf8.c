#include "pure/text/utf8.h"

#include <stdbool.h>

// Bounds of the second byte, which excludes overlong forms, surrogates and values above U+10FFFF (Unicode, table 3-7).
static bool second_fits(uint8_t first, uint8_t second) {
    uint8_t low = 0x80, high = 0xbf;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    return second >= low && second <= high;
}

int kin_utf8_len(const char *at, size_t n) {
    if (n == 0) return 0;
    const uint8_t *p = (const uint8_t *)at;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return -1;

    int len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n > 1 && !second_fits(p[0], p[1])) return -1;
    for (int i = 2; i < len && (size_t)i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return -1;
    }
    return n >= (size_t)len ? len : 0;
}

int kin_utf8_put(char *out, uint32_t codepoint) {
    if (codepoint < 0x80) {
        out[0] = (char)codepoint;
        return 1;
    }
    int len = codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, codepoint >>= 6) out[i] = (char)(0x80 | (codepoint & 0x3f));
    out[0] = (char)((0xf00u >> len & 0xf0) | codepoint);
    return len;
}

uint32_t kin_utf8_get(const char *at, int len) {
    const uint8_t *p = (const uint8_t *)at;
    if (len == 1) return p[0];
    uint32_t codepoint = p[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) codepoint = codepoint << 6 | (p[i] & 0x3f);
    return codepoint;
}
