// JSON files, read with sentences that name the place of a mistake. Plain functions without state.
#pragma once

#include <jansson.h>

#include "base/err.h"

// A file as a new reference. NULL with a sentence that begins with the path and tells the line.
json_t *kin_json_text_load(const char *path, kin_err *err);

// As a file, indented. A file that cannot be written is an error that names it.
int kin_json_text_save(const char *path, const json_t *json, kin_err *err);
