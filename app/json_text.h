// JSON as a person would write it: numbers in the fewest digits that read back as the same bits (45e9, 0.002), what is short on
// one line. For files that are read and edited by hand. Plain functions without state.
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base/err.h"

// A command's answer on stdout, for programs; takes the reference. digits: of numbers, 0: as many as there are. On a terminal
// only ASCII: what other machines call themselves does not act there.
void kin_json_text_show(json_t *json, int digits);

// With a newline at the end.
void kin_json_text_print(FILE *file, const json_t *json);

// A file as a new reference. NULL with a sentence that begins with the path and tells the line.
json_t *kin_json_text_load(const char *path, kin_err *err);

// As a file. A file that cannot be written is an error that names it.
int kin_json_text_save(const char *path, const json_t *json, kin_err *err);
