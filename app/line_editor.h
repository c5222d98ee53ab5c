// Messages typed at a terminal: several lines, UTF-8, a history, and pasted text as one piece.
//
//   Enter                       ends the message; behind a "\", or in a message that begins with """, it makes a new line
//   Alt-Enter, Ctrl-J           make a new line anywhere
//   arrows, Home, End, Ctrl-A E B F, words: Ctrl or Alt with an arrow, Alt-B F
//   Backspace, Delete, Ctrl-U K W, Ctrl-L: the line before, behind the cursor, a word; the screen
//   Up, Down                    rows of the message, then the history
//   Ctrl-Z                      suspends the program
//
// Why not libedit: it has no bracketed paste and edits one line. readline has both, but not kin's licence.
//
// A terminal that knows no escape sequences (TERM=dumb) edits its lines itself; \ and """ are as above.
//
// From open to close the terminal gives out characters as they are typed, without showing them: what is typed while an answer
// comes stands in the next message. Sentences of other threads (kin_app_say) appear above the message (kin_app_set_frame).
//
// Owner: the main thread, for all functions. One at a time.
#pragma once

#include "base/err.h"
#include "base/str.h"

typedef struct kin_line_editor kin_line_editor;

typedef enum kin_line_outcome {
    KIN_LINE_TEXT,        // a message
    KIN_LINE_INTERRUPTED, // Ctrl-C: what was typed is dropped
    KIN_LINE_END,         // Ctrl-D in an empty message, the terminal is gone, or the program is to end
} kin_line_outcome;

// Fails where stdin and stdout are no terminal.
int kin_line_editor_open(kin_line_editor **out, kin_err *err);
void kin_line_editor_close(kin_line_editor *e); // NULL is allowed

// A message, without the marks around and the "\" in it; it stays until the next call, and is in the history.
// Where Ctrl-C was typed right behind it, SIGINT is raised.
kin_line_outcome kin_line_editor_read(kin_line_editor *e, kin_str *text);

// Of the terminal, now.
int kin_line_editor_columns(void);
