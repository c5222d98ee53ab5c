#include "pure/tokenizer/byte_alphabet.h"

#include <stdbool.h>

#include "pure/text/utf8.h"

static bool is_printable(uint32_t c) {
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

static uint32_t character_of(uint8_t byte) {
    if (is_printable(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    return byte == 0xad ? 0x143 : 0x121u + (byte - 0x7fu);
}

static int byte_of(uint32_t character) {
    if (is_printable(character)) return (int)character;
    if (character >= 0x100 && character <= 0x120) return (int)(character - 0x100);
    if (character >= 0x121 && character <= 0x142) return (int)(character - 0x121 + 0x7f);
    return character == 0x143 ? 0xad : -1;
}

int kin_byte_alphabet_put(char *out, uint8_t byte) {
    return kin_utf8_put(out, character_of(byte));
}

int64_t kin_byte_alphabet_decode(char *out, const char *text, size_t len) {
    int64_t n = 0;
    for (size_t at = 0; at < len;) {
        int n_bytes = kin_utf8_len(text + at, len - at);
        if (n_bytes <= 0) return -1;
        int byte = byte_of(kin_utf8_get(text + at, n_bytes));
        if (byte < 0) return -1;
        out[n++] = (char)byte;
        at += (size_t)n_bytes;
    }
    return n;
}
