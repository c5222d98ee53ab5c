// Writes JSON documents and events into a text buffer.
//
// Text from a model is not always UTF-8, and jansson accepts only UTF-8: pass such text through kin_json_text.
#pragma once

#include <jansson.h>

#include "base/str.h"
#include "pure/text/text_buffer.h"

// Makes a string; replaces each byte that is not UTF-8 by U+FFFD. NULL: out of memory, which jansson's setters treat as "leave it
// out".
json_t *kin_json_text(kin_str text);

// The same of a C string. NULL: "".
json_t *kin_json_string(const char *text);

// Appends the JSON on one line, without a newline. Takes over `json`; NULL marks `out` as failed. Numbers have at most 15 digits:
// a double preserves 15 decimal digits, so 0.1 stays 0.1.
void kin_json_put(json_t *json, kin_text_buffer *out);

// Appends a server-sent event: "event: NAME" unless name is NULL, and the JSON as its data. Takes over `data`.
void kin_json_put_event(const char *name, json_t *data, kin_text_buffer *out);
