// Escapes text from other machines and from files for a terminal, so that it cannot move the cursor, end the line or change the
// writing direction.
//
//   ESC -> \x1b     newline -> \n     a byte that is not valid UTF-8 -> \xff     U+202E -> \u{202e}
//
// Control characters (C0, DEL, C1), line and paragraph separators, and characters that embed or override a direction are
// escaped; everything else is unchanged, including backslashes. Pure functions, any thread.
#pragma once

#include <stddef.h>

enum { KIN_ESCAPE_CHAR = 12 }; // bytes of the longest escaped character, including the NUL

// Escapes the first character of text [n > 0] into `shown`. Returns its number of bytes in the text.
size_t kin_escape_char(const char *text, size_t n, char shown[KIN_ESCAPE_CHAR]);

// Escapes text [n] to `to` [size > 0], truncated before the first character that does not fit. Returns `to`.
char *kin_escape(char *to, size_t size, const char *text, size_t n);
