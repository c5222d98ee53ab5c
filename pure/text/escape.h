// Texts of other machines and of files, as they may be shown on a terminal: nothing in them moves the cursor, ends the line or
// turns the direction of writing.
//
//   ESC -> \x1b     newline -> \n     a byte that is no UTF-8 -> \xff     U+202E -> \u{202e}
//
// Control characters (C0, DEL, C1), line and paragraph separators, and what embeds or overrides a direction are written so;
// all else stays as it is, a backslash too. Pure functions, any thread.
#pragma once

#include <stddef.h>

enum { KIN_ESCAPE_CHAR = 12 }; // bytes of the longest character shown, with the NUL

// The first character of text [n > 0]: how many bytes of it that is; shown: how it is to be written.
size_t kin_escape_char(const char *text, size_t n, char shown[KIN_ESCAPE_CHAR]);

// text [n] in `to` [size > 0], cut before the character that does not fit. Returns `to`.
char *kin_escape(char *to, size_t size, const char *text, size_t n);
