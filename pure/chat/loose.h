// Loose values: arguments of a call that are written as in Python, (city="Rom", days=[1, 2], hot=True), or with a format's own
// quotes, {city:<|"|>Rom<|"|>,days:[1,2],hot:true}, as JSON.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pure/chat/format.h"
#include "pure/text/text_buffer.h"

typedef struct kin_loose_scan { // zero-initialised: before the first bracket
    int depth;                  // open brackets; 0 after the last one
    char quote;                 // of the open string; 0: none
    bool is_escaped;            // the byte follows a backslash in a string
    bool may_end;               // the string has ended if a byte follows that may follow a value
    uint8_t n_matched;          // bytes of the format's quote
} kin_loose_scan;

// Consumes a byte. A quote within a string of Python ends it only where a value may end, because some templates do not escape
// quotes.
void kin_loose_scan_push(kin_loose_scan *scan, const kin_chat_format *format, char c);

// Appends the JSON object for the arguments, which begin and end with a bracket. Returns false if they are malformed; then parts
// may have been written.
bool kin_loose_put_json(const kin_chat_format *format, kin_str text, kin_text_buffer *out);
