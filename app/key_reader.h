// Keys of a terminal: the bytes of stdin become characters, editing keys, and pasted texts as one piece.
//
// The terminal gives out every byte at once and translates none (app/line_editor.h). Bytes that are no UTF-8, unknown keys, and
// control characters of pasted texts but for newlines and tabs are dropped.
//
// Owner: who zeroed it, freed by fini. Thread: one.
#pragma once

#include "pure/text/text_buffer.h"

typedef enum kin_press_kind {
    KIN_PRESS_NONE, // a while has passed, a signal came, or the key has no meaning
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
    KIN_PRESS_GONE, // the terminal is
} kin_press_kind;

typedef struct kin_key_press {
    kin_press_kind kind;
    const char *text; // [n] of TEXT: UTF-8, until the next call
    size_t n;
} kin_key_press;

typedef struct kin_key_reader {
    unsigned char bytes[4096];
    size_t n, next;
    kin_text_buffer text;
    bool is_gone;
} kin_key_reader;

// The next one; waits for it, but for no longer than a fifth of a second.
kin_key_press kin_key_reader_next(kin_key_reader *r);
// Further bytes have been read already.
bool kin_key_reader_has_more(const kin_key_reader *r);
// Ctrl-C was typed already, behind what has been taken: it and what stands before it are dropped.
bool kin_key_reader_take_interrupt(kin_key_reader *r);
void kin_key_reader_fini(kin_key_reader *r);
