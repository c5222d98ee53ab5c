#include "app/terminal/text_layout.h"

#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <wchar.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "pure/text/escape.h"
#include "pure/text/utf8.h"

enum { TAB = 4 };

// Returns wcwidth in a UTF-8 locale, independent of the user's.
static int width_of(uint32_t codepoint) {
    static locale_t utf8; // kept for the whole run
    if (!utf8) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    if (!utf8) utf8 = newlocale(LC_CTYPE_MASK, "en_US.UTF-8", NULL); // macOS before 15
    locale_t before = utf8 ? uselocale(utf8) : NULL;
    int width = wcwidth((wchar_t)codepoint);
    if (utf8) uselocale(before);
    return width < 0 ? 1 : width;
}

// Writes the character's displayed form to `shown`.
static size_t character(const char *text, size_t n, int *width, char shown[KIN_ESCAPE_CHAR]) {
    size_t len = kin_escape_char(text, n, shown);
    if (*text == '\t') strcpy(shown, "    ");
    bool is_itself = strlen(shown) == len && memcmp(shown, text, len) == 0;
    bool is_ascii = (unsigned char)*text < 0x80;
    *width = *text == '\n' ? 0 : is_itself && !is_ascii ? width_of(kin_utf8_get(text, (int)len)) : (int)strlen(shown);
    return len;
}

size_t kin_text_character(const char *text, size_t n, int *width) {
    char shown[KIN_ESCAPE_CHAR];
    return character(text, n, width, shown);
}

// Advances over a character: `here` is its position, `next` that of the following one.
static void step(char c, int width, int columns, kin_text_place *here, kin_text_place *next) {
    if (c != '\n' && next->column + width > columns) *next = (kin_text_place){next->row + 1, 0};
    *here = *next;
    next->column += width;
    if (c == '\n') *next = (kin_text_place){next->row + 1, KIN_TEXT_INDENT};
}

// In a full row the next character is in the following row.
static kin_text_place settled(kin_text_place p, int columns) {
    return p.column >= columns ? (kin_text_place){p.row + 1, 0} : p;
}

kin_text_place kin_text_place_of(kin_str text, size_t at, int columns) {
    kin_text_place here, next = {0, KIN_TEXT_INDENT};
    int width;
    for (size_t i = 0; i < at && i < text.len;) {
        size_t len = kin_text_character(text.at + i, text.len - i, &width);
        step(text.at[i], width, columns, &here, &next);
        i += len;
    }
    if (at < text.len && text.at[at] != '\n') { // a wide character may not fit
        kin_text_character(text.at + at, text.len - at, &width);
        if (next.column + width > columns) return (kin_text_place){next.row + 1, 0};
    }
    return settled(next, columns);
}

static bool is_beyond(kin_text_place p, kin_text_place place) {
    return p.row > place.row || (p.row == place.row && p.column > place.column);
}

size_t kin_text_at(kin_str text, kin_text_place place, int columns) {
    kin_text_place here, next = {0, KIN_TEXT_INDENT};
    size_t best = 0;
    int width;
    for (size_t i = 0; i < text.len;) {
        size_t len = kin_text_character(text.at + i, text.len - i, &width);
        step(text.at[i], width, columns, &here, &next);
        if (is_beyond(settled(here, columns), place)) return best;
        if (width > 0 || text.at[i] == '\n') best = i;
        i += len;
    }
    return is_beyond(settled(next, columns), place) ? best : text.len;
}

void kin_text_write_rows(FILE *to, kin_str text, int begin, int end, int columns) {
    kin_text_place here = {0, 0}, next = {0, KIN_TEXT_INDENT};
    int width;
    for (size_t i = 0; i < text.len && next.row < end;) {
        char shown[KIN_ESCAPE_CHAR];
        size_t len = character(text.at + i, text.len - i, &width, shown);
        step(text.at[i], width, columns, &here, &next);
        bool is_shown = here.row >= begin && here.row < end;
        if (is_shown && text.at[i] != '\n') fputs(shown, to);
        if (is_shown && text.at[i] == '\n' && next.row < end) fputs("\r\n  ", to);
        i += len;
    }
    if (next.column >= columns && next.row + 1 < end) fputs("\r\n", to);
}

size_t kin_text_before(kin_str text, size_t at) {
    int width = 0;
    while (at > 0 && width == 0) {
        do at--;
        while (at > 0 && ((unsigned char)text.at[at] & 0xc0) == 0x80);
        if (text.at[at] == '\n') break;
        kin_text_character(text.at + at, text.len - at, &width);
    }
    return at;
}

size_t kin_text_after(kin_str text, size_t at) {
    int width;
    if (at >= text.len) return text.len;
    bool is_line_end = text.at[at] == '\n';
    at += kin_text_character(text.at + at, text.len - at, &width);
    while (!is_line_end && at < text.len && text.at[at] != '\n') {
        size_t len = kin_text_character(text.at + at, text.len - at, &width);
        if (width > 0) break;
        at += len;
    }
    return at;
}
