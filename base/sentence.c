#include "base/sentence.h"

#include <stdio.h>
#include <string.h>

static const char dots[] = "...";
enum { DOTS = sizeof dots - 1 };

void kin_sentence_cut(char *text, size_t n) {
    if (n < DOTS) {
        text[0] = '\0';
        return;
    }
    size_t end = n - DOTS;
    while (end > 0 && text[end - 1] != ' ') end--;
    if (end == 0) { // one long word: cut it between UTF-8 characters
        end = n - DOTS;
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
    }
    memcpy(text + end, dots, sizeof dots);
}

void kin_sentence_vprint(char *to, size_t size, const char *fmt, va_list args) {
    int n = vsnprintf(to, size, fmt, args);
    if (n >= 0 && (size_t)n >= size && size > 0) kin_sentence_cut(to, size - 1);
}

void kin_sentence_print(char *to, size_t size, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    kin_sentence_vprint(to, size, fmt, args);
    va_end(args);
}
