// Wraps text for a terminal between words. The text arrives in pieces; a word is written once its end is known.
//
// Text between two ``` lines is left as it is, and so is a word wider than the terminal. Pure functions: any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { KIN_WORD_WRAP_WORD = 256 }; // bytes; a longer word is written in pieces

typedef struct kin_word_wrap {
    void (*put)(void *user, const char *text, size_t n);
    void *user;
    int column;   // column after the text written so far
    int n_spaces; // pending spaces between that text and the word
    char word[KIN_WORD_WRAP_WORD];
    size_t n_word; // bytes of the pending word
    int width;     // columns of the pending word
    int n_ticks;   // backticks at the beginning of the line; -1: it begins with something else
    bool is_code;
} kin_word_wrap;

// Adds whole UTF-8 characters, for a terminal with this many columns (at least 8).
void kin_word_wrap_add(kin_word_wrap *wrap, const char *text, size_t n, int columns);

// Writes the last word.
void kin_word_wrap_end(kin_word_wrap *wrap, int columns);
