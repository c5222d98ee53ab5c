// UTF-8, one character at a time, per RFC 3629: no surrogates, nothing above U+10FFFF, no overlong forms.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define KIN_UTF8_MAX 4 // bytes of the longest character

// Classifies the beginning of at [n]:
//   1..4: a complete character of that many bytes
//   0:    the beginning of a character; more bytes could complete it (also if n is 0)
//   -1:   a byte that cannot begin a character here
int kin_utf8_len(const char *at, size_t n);

// Writes a Unicode scalar value to out [KIN_UTF8_MAX] as UTF-8 and returns its number of bytes.
int kin_utf8_put(char *out, uint32_t codepoint);

// Returns the scalar value of a complete character of `len` bytes, as returned by kin_utf8_len.
uint32_t kin_utf8_get(const char *at, int len);
