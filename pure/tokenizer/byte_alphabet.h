// The alphabet in which byte-level BPE vocabularies are written: one printable character for each of the 256 bytes.
//
//   bytes 0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF   the character of the same number
//   bytes 0x00-0x20                         U+0100-U+0120   (a space is U+0120, "Ġ")
//   bytes 0x7F-0xA0                         U+0121-U+0142
//   byte  0xAD                              U+0143
#pragma once

#include <stddef.h>
#include <stdint.h>

#define KIN_BYTE_ALPHABET_MAX 2 // UTF-8 bytes of the longest character

// Writes the character of `byte` to out [KIN_BYTE_ALPHABET_MAX] as UTF-8 and returns its length.
int kin_byte_alphabet_put(char *out, uint8_t byte);

// Decodes text [len] to bytes in out [len]. Returns the number of bytes, or -1 if a character is not in the alphabet.
int64_t kin_byte_alphabet_decode(char *out, const char *text, size_t len);
