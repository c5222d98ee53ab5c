#include "pure/chat/stop_words.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/text_buffer.h"

typedef struct word {
    const char *at;    // [len]
    uint16_t *shorter; // [len] [i]: length of the longest proper suffix of the first i + 1 bytes that is a prefix of the word
    uint16_t len;
    uint16_t n_matched; // length of the longest prefix of the word that the text ends with; < len
} word;

struct kin_stop_words {
    word words[KIN_STOP_WORDS_MAX];
    size_t n;
    char *bytes;          // of all words
    uint16_t *tables;     // of all words
    kin_text_buffer text; // the part that was returned, then the held part
    size_t n_given;       // bytes that were returned
    bool is_found;
};

// ---- one word

static uint16_t next_matched(const word *w, uint16_t n_matched, char byte) {
    while (n_matched > 0 && w->at[n_matched] != byte) n_matched = w->shorter[n_matched - 1];
    return w->at[n_matched] == byte ? n_matched + 1 : 0;
}

static void prepare(word *w) {
    w->shorter[0] = 0;
    for (uint16_t i = 1; i < w->len; i++) w->shorter[i] = next_matched(w, w->shorter[i - 1], w->at[i]);
}

// ---- open and close

int kin_stop_words_new(kin_stop_words **out, const kin_str *words, size_t n, kin_err *err) {
    size_t n_bytes = 0;
    *out = NULL;
    if (n > KIN_STOP_WORDS_MAX) return kin_err_set(err, "stop: %zu strings, but the limit is 64", n);
    for (size_t i = 0; i < n; i++) {
        if (words[i].len == 0) return kin_err_set(err, "stop: string %zu is empty; omit it", i);
        if (words[i].len > KIN_STOP_WORDS_MAX_BYTES)
            return kin_err_set(err, "stop: string %zu has %zu bytes, but the limit is 1024", i, words[i].len);
        n_bytes += words[i].len;
    }
    kin_stop_words *stop = calloc(1, sizeof *stop);
    if (!stop) return kin_err_set(err, "stop: out of memory");
    stop->bytes = malloc(n_bytes + 1);
    stop->tables = malloc((n_bytes + 1) * sizeof *stop->tables);
    if (!stop->bytes || !stop->tables) {
        kin_stop_words_free(stop);
        return kin_err_set(err, "stop: out of memory");
    }
    size_t begin = 0;
    for (size_t i = 0; i < n; begin += words[i++].len) {
        stop->words[i] = (word){stop->bytes + begin, stop->tables + begin, (uint16_t)words[i].len, 0};
        memcpy(stop->bytes + begin, words[i].at, words[i].len);
        prepare(&stop->words[i]);
    }
    stop->n = n;
    *out = stop;
    return 0;
}

void kin_stop_words_free(kin_stop_words *stop) {
    if (!stop) return;
    kin_text_fini(&stop->text);
    free(stop->tables);
    free(stop->bytes);
    free(stop);
}

// ---- the text

// Reads a byte. Returns the index of the longest word that ends with it, or -1; *n_held: bytes that may be the beginning of a
// word. n_least: words that begin in so many of the last bytes are ignored.
static int read_byte(kin_stop_words *stop, char byte, size_t n_least, size_t *n_held) {
    int found = -1;
    *n_held = 0;
    for (size_t i = 0; i < stop->n; i++) {
        word *w = &stop->words[i];
        w->n_matched = next_matched(w, w->n_matched, byte);
        if (w->n_matched <= n_least) w->n_matched = 0;
        if (w->n_matched > *n_held) *n_held = w->n_matched;
        if (w->n_matched < w->len) continue;
        if (found < 0 || w->len > stop->words[found].len) found = (int)i;
    }
    return found;
}

static void forget_given(kin_stop_words *stop) {
    stop->text.len -= stop->n_given;
    if (stop->text.len > 0) memmove(stop->text.at, stop->text.at + stop->n_given, stop->text.len);
    stop->n_given = 0;
}

static int push(kin_stop_words *stop, const char *at, size_t len, bool is_inside, kin_str *before, int *found) {
    size_t n_held = 0;
    kin_assert(!stop->is_found);
    *found = -1;
    *before = (kin_str){"", 0};
    if (len == 0) return 0;
    forget_given(stop);
    size_t begin = stop->text.len;
    kin_text_put(&stop->text, at, len);
    if (stop->text.failed) return KIN_FAIL;
    size_t end = begin;
    for (; end < stop->text.len && *found < 0; end++)
        *found = read_byte(stop, stop->text.at[end], is_inside ? end - begin + 1 : 0, &n_held);
    stop->is_found = *found >= 0;
    stop->n_given = end - (stop->is_found ? stop->words[*found].len : n_held);
    *before = (kin_str){stop->text.at, stop->n_given};
    return 0;
}

int kin_stop_words_push(kin_stop_words *stop, const char *at, size_t len, kin_str *before, int *found) {
    return push(stop, at, len, false, before, found);
}

int kin_stop_words_push_inside(kin_stop_words *stop, const char *at, size_t len, kin_str *before, int *found) {
    return push(stop, at, len, true, before, found);
}

kin_str kin_stop_words_flush(kin_stop_words *stop) {
    if (stop->is_found) return (kin_str){"", 0};
    forget_given(stop);
    stop->n_given = stop->text.len;
    for (size_t i = 0; i < stop->n; i++) stop->words[i].n_matched = 0;
    return (kin_str){stop->text.at ? stop->text.at : "", stop->text.len};
}
