// A text on a terminal: in which row and column each character stands, where lines wrap, how wide a character is.
//
// The text is UTF-8 without control characters but for newlines and tabs. Every line begins behind an indent; what does not fit
// into a row goes on in the next one, as the terminal itself wraps it. Pure functions: any thread.
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "base/str.h"

enum { KIN_TEXT_INDENT = 2 }; // columns, of the first row of each line

typedef struct kin_text_place {
    int row, column;
} kin_text_place;

// The next character [n > 0]: its bytes; *width: its columns, 0 for what stands on the character before it.
size_t kin_text_character(const char *text, size_t n, int *width);

// Where the character at byte `at` stands, on a terminal of so many columns (at least 8).
kin_text_place kin_text_place_of(kin_str text, size_t at, int columns);

// The byte of the character that stands in that row, in the column or the last one before it.
size_t kin_text_at(kin_str text, kin_text_place place, int columns);

// Writes the rows [begin, end), with "\r\n" between lines and the terminal's own wrapping within them.
void kin_text_write_rows(FILE *to, kin_str text, int begin, int end, int columns);

// The ends of the character, with all that stands on it, before and after byte `at`.
size_t kin_text_before(kin_str text, size_t at);
size_t kin_text_after(kin_str text, size_t at);
