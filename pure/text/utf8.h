// UTF-8, one character at a time, as RFC 3629 has it: no surrogates, nothing above U+10FFFF, no overlong forms.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define KIN_UTF8_MAX 4 // bytes of the longest character

// What stands at the start of some bytes.
//   1..4: a whole character of that many bytes
//   0:    the beginning of a character; more bytes could complete it (also when n is 0)
//   -1:   a byte that cannot begin a character here
int kin_utf8_len(const char *at, size_t n);

// Writes the character (a Unicode scalar value) to out [KIN_UTF8_MAX] and returns its number of bytes.
int kin_utf8_put(char *out, uint32_t codepoint);

// The scalar value of a whole character of `len` bytes, as kin_utf8_len counted them.
uint32_t kin_utf8_get(const char *at, int len);
