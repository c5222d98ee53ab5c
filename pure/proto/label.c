#include "pure/proto/label.h"

#include <stdint.h>
#include <string.h>

#include "base/sentence.h"
#include "pure/text/utf8.h"

// Returns the bytes of the clean character at the start, or 0 if there is none.
static size_t clean_len(const char *at, size_t n) {
    int len = kin_utf8_len(at, n);
    if (len <= 0) return 0;
    uint32_t c = kin_utf8_get(at, len);
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    return control ? 0 : (size_t)len;
}

bool kin_label_is_clean(const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t len = clean_len(text + i, n - i);
        if (len == 0) return false;
        i += len;
    }
    return true;
}

// Returns true if the whole text fits.
static bool set(char *to, size_t most, const char *text) {
    size_t n_text = strlen(text), n = 0, i = 0;
    while (i < n_text) {
        size_t len = clean_len(text + i, n_text - i);
        const char *from = len ? text + i : "?";
        if (len == 0) len = 1;
        if (len > most - n) break;
        memcpy(to + n, from, len);
        n += len;
        i += len;
    }
    to[n] = 0;
    return i == n_text;
}

char *kin_label_set(char *to, size_t most, const char *text) {
    set(to, most, text);
    return to;
}

char *kin_label_set_sentence(char *to, size_t most, const char *text) {
    if (!set(to, most, text)) kin_sentence_cut(to, strlen(to));
    return to;
}
