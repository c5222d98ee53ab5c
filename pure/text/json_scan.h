// JSON scanner: determines, byte by byte, whether a text is a prefix of a JSON object, and where the object ends.
//
// Checks the grammar of RFC 8259 only: strings are not decoded, so unpaired UTF-16 surrogates, invalid UTF-8 and duplicate keys
// are accepted. At most KIN_JSON_MAX_DEPTH nested arrays and objects. Uses no memory but the struct.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum kin_json_expected { // the place in the grammar at which the next byte is read
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
    uint8_t depth;             // open arrays and objects
    uint8_t n_left;
    bool is_key;      // the current string is a key
    uint64_t objects; // bit i: the open container at depth i is an object
    const char *word; // the remaining bytes of the word
} kin_json_scan;

// Consumes a byte. Returns false if it is not allowed here; the scanner is unchanged then. After the last '}' depth is 0, and
// every byte is rejected.
bool kin_json_scan_push(kin_json_scan *scan, char c);
