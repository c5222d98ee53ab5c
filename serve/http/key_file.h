// Files of API keys: text with one key per line. Ignores blanks around a key, empty lines and lines that begin with #; blanks
// within a key belong to it.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

// Reads the file into *text; free it with kin_key_file_free. Fails with "PATH: reason", also if other users may read the file,
// or if the text is not UTF-8, since its bytes would give other keys than intended.
int kin_key_file_read(char **text, const char *path, kin_err *err);
void kin_key_file_free(char *text); // wipes it first; NULL is allowed

// Finds the next key at or after *at, which starts as kin_key_file_read's text, and advances *at. Returns false at the end.
bool kin_key_file_next(const char **at, kin_str *key);

// Reads the first key of the file into *key; free it with kin_key_file_free. Fails also if there is none.
int kin_key_file_first(char **key, const char *path, kin_err *err);
