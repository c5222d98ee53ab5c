// JSON documents and events into a text buffer.
//
// What a model writes need not be UTF-8, and jansson takes nothing else: text of models goes through kin_json_text.
#pragma once

#include <jansson.h>

#include "base/str.h"
#include "pure/text/text_buffer.h"

// A string; each byte that is no UTF-8 becomes U+FFFD. NULL: no memory, which jansson's setters take as "leave it out".
json_t *kin_json_text(kin_str text);

// Appends the JSON on one line, without a newline. Takes `json` over; NULL is a failure of `out`. Numbers have at most 15 digits:
// so many of a decimal number come back out of a double, and 0.1 stays 0.1.
void kin_json_put(json_t *json, kin_text_buffer *out);

// Appends a server-sent event: "event: NAME", unless it is NULL, and the JSON as its data. Takes `data` over.
void kin_json_put_event(const char *name, json_t *data, kin_text_buffer *out);
