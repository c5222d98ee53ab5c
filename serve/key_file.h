// Files of API keys: text with a key a line. Blanks around a key, empty lines and lines that begin with # do not count; blanks
// within a key do.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

// Reads the file into *text, which kin_key_file_free takes. Fails with "PATH: reason", also where it is no text in UTF-8: its
// bytes would be other keys than those that were meant.
int kin_key_file_read(char **text, const char *path, kin_err *err);
void kin_key_file_free(char *text); // wipes it; NULL is allowed

// The next key at or behind *at, which begins as kin_key_file_read's text and moves on. false: there is none.
bool kin_key_file_next(const char **at, kin_str *key);
