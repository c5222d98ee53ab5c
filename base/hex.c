#include "base/hex.h"

#include "base/err.h"

char *kin_hex_put(char *to, const uint8_t *bytes, size_t n) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

int kin_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int kin_hex_get(uint8_t *bytes, const char *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int high = kin_hex_digit(from[2 * i]), low = kin_hex_digit(from[2 * i + 1]);
        if (high < 0 || low < 0) return KIN_FAIL;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}
