#include "app/terminal/key_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "pure/text/utf8.h"

enum {
    IDLE_MS = 200,
    ESCAPE_MS = 50,    // between the bytes of one key
    PASTE_MS = 5000,   // between the bytes of a paste
    MAX_SEQUENCE = 16, // bytes
    MAX_PASTE = 16 << 20,
    ESC = 27
};

// Returns the next byte; -1: timeout or signal.
static int get(kin_key_reader *r, int ms) {
    if (r->next < r->n) return r->bytes[r->next++];
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (r->is_gone || poll(&p, 1, ms) <= 0) return -1;
    ssize_t n = read(STDIN_FILENO, r->bytes, sizeof r->bytes);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) r->is_gone = true;
    if (n <= 0) return -1;
    r->n = (size_t)n;
    r->next = 1;
    return r->bytes[0];
}

bool kin_key_reader_has_more(const kin_key_reader *r) {
    return r->next < r->n;
}

bool kin_key_reader_pop_interrupt(kin_key_reader *r) {
    if (r->next == r->n && get(r, 0) >= 0) r->next--;
    for (size_t i = r->next; i < r->n; i++) {
        if (r->bytes[i] != 'C' - '@') continue;
        r->next = i + 1;
        return true;
    }
    return false;
}

static kin_key_press press(kin_press_kind kind) {
    return (kin_key_press){.kind = kind};
}

static kin_key_press text_press(const kin_key_reader *r) {
    return r->text.len > 0 ? (kin_key_press){KIN_PRESS_TEXT, r->text.at, r->text.len} : press(KIN_PRESS_NONE);
}

// Appends a character that begins with this byte; drops it if it is invalid. A byte that interrupts it is treated as a key.
static void add_character(kin_key_reader *r, int first, int ms) {
    char bytes[KIN_UTF8_MAX] = {(char)first};
    size_t n = 1;
    int c;
    while (kin_utf8_len(bytes, n) == 0 && n < sizeof bytes && (c = get(r, ms)) >= 0) bytes[n++] = (char)c;
    if (n > 1 && kin_utf8_len(bytes, n) < 0) r->next--;
    if (kin_utf8_len(bytes, n) == (int)n) kin_text_put(&r->text, bytes, n);
}

// ---- pasted text

static const char paste_end[] = "\033[201~";

// Reads up to the end mark. Lines may end with CR, LF or both, depending on the terminal.
static kin_key_press read_paste(kin_key_reader *r) {
    size_t n_end = 0;
    bool after_cr = false;
    int c;
    while (paste_end[n_end] && (c = get(r, PASTE_MS)) >= 0) {
        if (c == paste_end[n_end]) {
            n_end++;
            continue;
        }
        // An escape that is not the mark: its printable bytes are text. The mark may begin where the match failed.
        if (n_end > 0 && r->text.len < MAX_PASTE) kin_text_put(&r->text, paste_end + 1, n_end - 1);
        n_end = c == ESC;
        bool is_line_end = c == '\r' || (c == '\n' && !after_cr);
        after_cr = c == '\r';
        if (r->text.len > MAX_PASTE) continue;
        if (is_line_end)
            kin_text_put(&r->text, "\n", 1);
        else if (c == '\t' || (c >= ' ' && c != 127))
            add_character(r, c, PASTE_MS);
    }
    return text_press(r);
}

// ---- keys of several bytes

// Returns the key for "A" of ESC [ A and ESC O A, with Ctrl or Alt as in ESC [ 1 ; 5 A.
static kin_press_kind arrow(char last, bool by_word) {
    switch (last) {
    case 'A': return KIN_PRESS_UP;
    case 'B': return KIN_PRESS_DOWN;
    case 'C': return by_word ? KIN_PRESS_WORD_RIGHT : KIN_PRESS_RIGHT;
    case 'D': return by_word ? KIN_PRESS_WORD_LEFT : KIN_PRESS_LEFT;
    case 'H': return KIN_PRESS_HOME;
    case 'F': return KIN_PRESS_LINE_END;
    default: return KIN_PRESS_NONE;
    }
}

static kin_key_press numbered(kin_key_reader *r, const char *number) {
    if (strcmp(number, "200") == 0) return read_paste(r);
    if (strcmp(number, "3") == 0) return press(KIN_PRESS_DELETE);
    if (strcmp(number, "1") == 0 || strcmp(number, "7") == 0) return press(KIN_PRESS_HOME);
    if (strcmp(number, "4") == 0 || strcmp(number, "8") == 0) return press(KIN_PRESS_LINE_END);
    return press(KIN_PRESS_NONE);
}

static kin_key_press read_sequence(kin_key_reader *r) {
    char bytes[MAX_SEQUENCE + 1] = {0};
    int c, n = 0;
    while ((c = get(r, ESCAPE_MS)) >= 0 && (c < 0x40 || c > 0x7e)) {
        if (n < MAX_SEQUENCE) bytes[n++] = (char)c;
    }
    if (c == '~') return numbered(r, bytes);
    return press(c < 0 ? KIN_PRESS_NONE : arrow((char)c, strchr(bytes, ';') != NULL));
}

static kin_key_press read_escape(kin_key_reader *r) {
    int c = get(r, ESCAPE_MS);
    switch (c) {
    case '[': return read_sequence(r);
    case 'O': return press(arrow((char)get(r, ESCAPE_MS), false));
    case '\r':
    case '\n': return press(KIN_PRESS_NEWLINE);
    case 'b': return press(KIN_PRESS_WORD_LEFT);
    case 'f': return press(KIN_PRESS_WORD_RIGHT);
    case 127: return press(KIN_PRESS_CUT_WORD);
    default: return press(KIN_PRESS_NONE);
    }
}

// ----

static kin_press_kind control(int c) {
    static const unsigned char kinds[32] = {
        ['A' - '@'] = KIN_PRESS_HOME,      ['B' - '@'] = KIN_PRESS_LEFT,       ['C' - '@'] = KIN_PRESS_INTERRUPT,
        ['D' - '@'] = KIN_PRESS_EOF,       ['E' - '@'] = KIN_PRESS_LINE_END,   ['F' - '@'] = KIN_PRESS_RIGHT,
        ['H' - '@'] = KIN_PRESS_BACKSPACE, ['J' - '@'] = KIN_PRESS_NEWLINE,    ['K' - '@'] = KIN_PRESS_CUT_AFTER,
        ['L' - '@'] = KIN_PRESS_CLEAR,     ['M' - '@'] = KIN_PRESS_ENTER,      ['N' - '@'] = KIN_PRESS_DOWN,
        ['P' - '@'] = KIN_PRESS_UP,        ['U' - '@'] = KIN_PRESS_CUT_BEFORE, ['W' - '@'] = KIN_PRESS_CUT_WORD,
        ['Z' - '@'] = KIN_PRESS_SUSPEND,
    };
    return c == 127 ? KIN_PRESS_BACKSPACE : kinds[c];
}

kin_key_press kin_key_reader_next(kin_key_reader *r) {
    int c = get(r, IDLE_MS);
    r->text.len = 0;
    if (c < 0) return press(r->is_gone ? KIN_PRESS_GONE : KIN_PRESS_NONE);
    if (c == ESC) return read_escape(r);
    if (c == '\t') kin_text_put(&r->text, "\t", 1);
    if (c == '\t') return text_press(r);
    if (c < ' ' || c == 127) return press(control(c));
    add_character(r, c, ESCAPE_MS);
    return text_press(r);
}

void kin_key_reader_fini(kin_key_reader *r) {
    kin_text_fini(&r->text);
}
