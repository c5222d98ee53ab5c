// Layout of text on a terminal: the row and column of each character, where lines wrap, and how wide a character is.
//
// The text is UTF-8 without control characters other than newline and tab. Each line begins after an indent; what does not fit
// into a row continues in the next one, as the terminal itself wraps it. Pure functions: any thread.
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "base/str.h"

enum { KIN_TEXT_INDENT = 2 }; // columns before the first row of each line

typedef struct kin_text_place {
    int row, column;
} kin_text_place;

// Returns the bytes of the character at `text` [n > 0]; *width: its columns, 0 for a combining character.
size_t kin_text_character(const char *text, size_t n, int *width);

// Returns the position of the character at byte `at`, on a terminal with this many columns (at least 8).
kin_text_place kin_text_place_of(kin_str text, size_t at, int columns);

// Returns the byte offset of the character at that row and column, or of the last one before it in the row.
size_t kin_text_at(kin_str text, kin_text_place place, int columns);

// Writes rows [begin, end), with "\r\n" between lines; within a line the terminal wraps.
void kin_text_write_rows(FILE *to, kin_str text, int begin, int end, int columns);

// Return the boundary of the character (with its combining characters) before and after byte `at`.
size_t kin_text_before(kin_str text, size_t at);
size_t kin_text_after(kin_str text, size_t at);
