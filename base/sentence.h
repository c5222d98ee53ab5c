// Sentences for people in buffers of a fixed size.
//
// What has no room is left out from a word on, with "..." in its place: half of a path looks like a whole one.
// Pure functions, any thread.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#if defined(__GNUC__)
#define KIN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KIN_PRINTF(fmt, args)
#endif

// As snprintf and vsnprintf, otherwise.
void kin_sentence_print(char *to, size_t size, const char *fmt, ...) KIN_PRINTF(3, 4);
void kin_sentence_vprint(char *to, size_t size, const char *fmt, va_list args) KIN_PRINTF(3, 0);

// Ends a text that goes on behind its n bytes: before the last word that leaves room for the dots in them. `text` // [n + 1]
void kin_sentence_cut(char *text, size_t n);
