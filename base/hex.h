// Bytes as hexadecimal digits, two per byte.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Writes 2 n digits (0-9, a-f) without a NUL and returns the end.
char *kin_hex_put(char *to, const uint8_t *bytes, size_t n);

// Returns the value of a hexadecimal digit in either case; -1 if c is not one.
int kin_hex_digit(char c);

// Reads n bytes from 2 n digits. Returns KIN_FAIL if a character is not a digit.
int kin_hex_get(uint8_t *bytes, const char *from, size_t n);
