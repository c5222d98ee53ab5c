#include "app/terminal/word_wrap.h"

#include <string.h>

#include "app/terminal/text_layout.h"

static void put(kin_word_wrap *w, const char *text, size_t n) {
    if (n > 0) w->put(w->user, text, n);
}

static void put_spaces(kin_word_wrap *w) {
    for (; w->n_spaces > 0; w->n_spaces--, w->column++) put(w, " ", 1);
}

static void put_word(kin_word_wrap *w, int columns) {
    if (w->n_word == 0) return;
    bool fits = w->column + w->n_spaces + w->width <= columns;
    if (!fits && w->column > 0 && !w->is_code) {
        put(w, "\n", 1);
        w->column = w->n_spaces = 0;
    }
    put_spaces(w);
    put(w, w->word, w->n_word);
    w->column = (w->column + w->width - 1) % columns + 1; // position after the terminal has wrapped a wide word
    w->n_word = 0;
    w->width = 0;
}

static void end_line(kin_word_wrap *w, int columns) {
    put_word(w, columns);
    put_spaces(w);
    put(w, "\n", 1);
    w->column = 0;
    w->n_ticks = 0;
}

// Three backticks at the beginning of a line begin or end code.
static void count_tick(kin_word_wrap *w, char c) {
    if (w->n_ticks < 0 || (c == ' ' && w->n_ticks == 0)) return;
    w->n_ticks = c == '`' ? w->n_ticks + 1 : -1;
    if (w->n_ticks == 3) w->is_code = !w->is_code;
}

void kin_word_wrap_add(kin_word_wrap *w, const char *text, size_t n, int columns) {
    for (size_t i = 0, len; i < n; i += len) {
        int width;
        len = kin_text_character(text + i, n - i, &width);
        if (text[i] == '\n') {
            end_line(w, columns);
            continue;
        }
        count_tick(w, text[i]);
        if (text[i] == ' ') {
            put_word(w, columns);
            w->n_spaces++;
            continue;
        }
        bool is_wide = width == 2 && text[i] != '\t'; // Chinese and Japanese have no spaces
        if (is_wide || w->n_word + len > sizeof w->word) put_word(w, columns);
        memcpy(w->word + w->n_word, text + i, len);
        w->n_word += len;
        w->width += width;
        if (is_wide) put_word(w, columns);
    }
}

void kin_word_wrap_end(kin_word_wrap *w, int columns) {
    put_word(w, columns);
    w->n_spaces = 0;
}
