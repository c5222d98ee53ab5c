// Text for a terminal, broken between words. It comes in pieces; a word is given out when its end is known.
//
// What is between two lines of ``` stays as it is, and so does a word that is wider than the terminal. Pure functions: any
// thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { KIN_WORD_WRAP_WORD = 256 }; // bytes; what is longer is given out in pieces

typedef struct kin_word_wrap {
    void (*put)(void *user, const char *text, size_t n);
    void *user;
    int column;   // where the text that was given out ends
    int n_spaces; // between that and the word
    char word[KIN_WORD_WRAP_WORD];
    size_t n_word; // bytes of the word so far
    int width;     // and its columns
    int n_ticks;   // that the line begins with; -1: it begins with something else
    bool is_code;
} kin_word_wrap;

// Whole characters of UTF-8, for a terminal of so many columns (at least 8).
void kin_word_wrap_add(kin_word_wrap *wrap, const char *text, size_t n, int columns);

// Gives out the last word.
void kin_word_wrap_end(kin_word_wrap *wrap, int columns);
