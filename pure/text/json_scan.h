// JSON scanner: tells, byte by byte, whether a text is still the beginning of a JSON object, and where that ends.
//
// The grammar of RFC 8259, nothing more: strings are not decoded, so halves of UTF-16 pairs and bytes that are no UTF-8 pass, and
// a key may be there twice. At most KIN_JSON_MAX_DEPTH arrays and objects in each other. No memory but the struct.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum kin_json_expected { // what the next byte must belong to
    KIN_JSON_AT_BEGIN,           // '{'
    KIN_JSON_AT_VALUE,
    KIN_JSON_AT_FIRST_ITEM, // a value, or ']'
    KIN_JSON_AT_FIRST_KEY,  // a key, or '}'
    KIN_JSON_AT_KEY,
    KIN_JSON_AT_COLON,
    KIN_JSON_AT_COMMA, // or the end of an array or object
    KIN_JSON_IN_STRING,
    KIN_JSON_IN_ESCAPE,
    KIN_JSON_IN_HEX,  // n_left more digits
    KIN_JSON_IN_WORD, // the rest of true, false, null
    KIN_JSON_AFTER_MINUS,
    KIN_JSON_AFTER_ZERO,
    KIN_JSON_IN_INTEGER,
    KIN_JSON_AFTER_POINT,
    KIN_JSON_IN_FRACTION,
    KIN_JSON_AFTER_E,
    KIN_JSON_AFTER_SIGN,
    KIN_JSON_IN_EXPONENT,
    KIN_JSON_AT_END,
} kin_json_expected;

typedef struct kin_json_scan { // zero-initialised: before the object
    uint8_t expected;          // kin_json_expected
    uint8_t depth;             // arrays and objects that are open
    uint8_t n_left;
    bool is_key;      // the string is a key
    uint64_t objects; // bit i: the open one number i is an object
    const char *word; // what must follow
} kin_json_scan;

// The next byte. False: it cannot come here, and the scanner is as before. After the last '}' depth is 0, and any byte is
// refused.
bool kin_json_scan_push(kin_json_scan *scan, char c);
