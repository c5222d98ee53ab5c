// The text of a file of settings: lines "NAME = VALUE" or "NAME", below a line "[SECTION]" or before the first one.
//
//   # settings of every command that has the option
//   threads = 4
//
//   [serve]
//   host = 0.0.0.0
//   no-gpu
//
// Blanks around names and values do not count. A line whose first character is '#' is a comment; a '#' later belongs to the
// value.
//
// Pure functions; any thread. Results point into the text.
#pragma once

#include "base/err.h"

enum { KIN_SETTINGS_MAX = 256 };

typedef struct kin_setting {
    const char *section; // empty: before the first section
    const char *name;
    const char *value; // NULL: the line is a name alone
    int line;          // from 1
} kin_setting;

// Reads the text, which it changes. *n settings are written, KIN_SETTINGS_MAX at most. Fails with a sentence about line *line.
int kin_settings_parse(char *text, kin_setting settings[KIN_SETTINGS_MAX], int *n, int *line, kin_err *err);
