// Edits messages at a terminal: several lines, UTF-8, a history, and pasted text in one piece.
//
//   Enter                       ends the message; after a "\", or in a message that begins with """, it inserts a newline
//   Alt-Enter, Ctrl-J           insert a newline anywhere
//   arrows, Home, End, Ctrl-A E B F; by words: Ctrl or Alt with an arrow, Alt-B F
//   Backspace, Delete; Ctrl-U, K and W cut the line before the cursor, the line after it, a word; Ctrl-L clears the screen
//   Up, Down                    move between rows of the message, then through the history
//   Ctrl-Z                      suspends the program
//
// Why not libedit: it has no bracketed paste and edits a single line. readline has both, but a licence that kin cannot use.
//
// A terminal without escape sequences (TERM=dumb) edits its lines itself; \ and """ work the same.
//
// Between open and close the terminal is in raw mode without echo: input that is typed while an answer is shown becomes the
// beginning of the next message. Sentences from other threads (kin_app_log) appear above the message (kin_app_set_frame).
// Owner: the main thread, for all functions. One at a time.
#pragma once

#include "base/err.h"
#include "base/str.h"

typedef struct kin_line_editor kin_line_editor;

typedef enum kin_line_outcome {
    KIN_LINE_TEXT,        // a message
    KIN_LINE_INTERRUPTED, // Ctrl-C: the typed text is dropped
    KIN_LINE_END,         // Ctrl-D in an empty message, the terminal was closed, or the program is stopping
} kin_line_outcome;

// Fails if stdin or stdout is not a terminal.
int kin_line_editor_open(kin_line_editor **out, kin_err *err);
void kin_line_editor_close(kin_line_editor *e); // NULL is allowed

// Reads a message and adds it to the history. *text has no enclosing """ and no continuation "\"; it is valid until the next
// call. If Ctrl-C was typed right after the message, SIGINT is raised.
kin_line_outcome kin_line_editor_read(kin_line_editor *e, kin_str *text);

// Returns the terminal's present width.
int kin_line_editor_columns(void);
