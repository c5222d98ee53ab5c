// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include "pure/jinja/value_impl.h"

// str(). A string is returned unchanged. Numbers, true, false and none have the origin template: they cannot spell a control
// token. The text of a list or dict is input as a whole. NULL without an error: the value has no supported text (a macro, a
// generator).
const kin_value *kin_value_str(kin_values *values, const kin_value *value);

typedef struct kin_json_format {
    bool ensure_ascii, sort_keys;
    const kin_string *indent;         // for one level; NULL: all on one line
    const kin_string *item_separator; // between items
    const kin_string *key_separator;  // between a key and its item
} kin_json_format;

// Formats JSON as json.dumps does, all of it input. NULL without an error: the value has no JSON form.
const kin_value *kin_value_json(kin_values *values, const kin_value *value, const kin_json_format *format);

enum { KIN_FLOAT_TEXT = 32 };
// repr() of a float: the shortest text that reads back as the same number. Returns its length.
size_t kin_float_text(char out[KIN_FLOAT_TEXT], double f);
