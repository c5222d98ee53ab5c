// Bytes as hexadecimal digits, two a byte.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Writes 2 n digits (0-9, a-f), no NUL, and returns the end.
char *kin_hex_put(char *to, const uint8_t *bytes, size_t n);

// The value of a digit, a-f or A-F; -1: it is none.
int kin_hex_digit(char c);

// n bytes from 2 n digits. KIN_FAIL: a character is none.
int kin_hex_get(uint8_t *bytes, const char *from, size_t n);
