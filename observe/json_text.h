// JSON files, read with error messages that name the place of a mistake. Plain functions without state.
#pragma once

#include <jansson.h>

#include "base/err.h"

// Loads a file as a new reference. NULL with an error message that begins with the path and names the line.
json_t *kin_json_text_load(const char *path, kin_err *err);

// Saves indented JSON. Error messages name the file.
int kin_json_text_save(const char *path, const json_t *json, kin_err *err);
