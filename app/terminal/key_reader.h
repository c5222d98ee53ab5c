// Reads keys from a terminal: turns the bytes of stdin into characters, editing keys, and pasted texts in one piece.
//
// The terminal is in raw mode: it delivers every byte at once, untranslated (app/terminal/line_editor.h). Invalid UTF-8, unknown
// keys, and control characters in pasted text other than newlines and tabs are dropped.
//
// Owner: the caller, which zeroes the struct and releases it with fini. Thread: one.
#pragma once

#include "pure/text/text_buffer.h"

typedef enum kin_press_kind {
    KIN_PRESS_NONE, // a timeout passed, a signal came, or the key has no meaning
    KIN_PRESS_TEXT,
    KIN_PRESS_ENTER,
    KIN_PRESS_NEWLINE,
    KIN_PRESS_LEFT,
    KIN_PRESS_RIGHT,
    KIN_PRESS_WORD_LEFT,
    KIN_PRESS_WORD_RIGHT,
    KIN_PRESS_UP,
    KIN_PRESS_DOWN,
    KIN_PRESS_HOME,
    KIN_PRESS_LINE_END,
    KIN_PRESS_BACKSPACE,
    KIN_PRESS_DELETE,
    KIN_PRESS_CUT_BEFORE,
    KIN_PRESS_CUT_AFTER,
    KIN_PRESS_CUT_WORD,
    KIN_PRESS_CLEAR,
    KIN_PRESS_SUSPEND,
    KIN_PRESS_INTERRUPT,
    KIN_PRESS_EOF,  // Ctrl-D
    KIN_PRESS_GONE, // the terminal was closed
} kin_press_kind;

typedef struct kin_key_press {
    kin_press_kind kind;
    const char *text; // [n], for KIN_PRESS_TEXT: UTF-8, valid until the next call
    size_t n;
} kin_key_press;

typedef struct kin_key_reader {
    unsigned char bytes[4096];
    size_t n, next;
    kin_text_buffer text;
    bool is_gone;
} kin_key_reader;

// Returns the next key press; waits for at most a fifth of a second.
kin_key_press kin_key_reader_next(kin_key_reader *r);
// True if more bytes have already been read.
bool kin_key_reader_has_more(const kin_key_reader *r);
// True if Ctrl-C is among the bytes that were read but not returned: drops it and everything before it.
bool kin_key_reader_pop_interrupt(kin_key_reader *r);
void kin_key_reader_fini(kin_key_reader *r);
