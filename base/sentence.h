// Sentences for people, in buffers of a fixed size.
//
// Text that does not fit is cut between words and ends with "...", because half of a path would look like a whole one.
// Pure functions, any thread.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#if defined(__GNUC__)
#define KIN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KIN_PRINTF(fmt, args)
#endif

// Like snprintf and vsnprintf in all other respects.
void kin_sentence_print(char *to, size_t size, const char *fmt, ...) KIN_PRINTF(3, 4);
void kin_sentence_vprint(char *to, size_t size, const char *fmt, va_list args) KIN_PRINTF(3, 0);

// Shortens a text that continues beyond its n bytes: cuts it before the last word that still leaves room for the dots. `text` is
// [n + 1].
void kin_sentence_cut(char *text, size_t n);
