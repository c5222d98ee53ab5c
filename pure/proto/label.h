// Labels: short texts that travel between machines and are shown to people: names, reasons, addresses.
//
// A clean label is UTF-8 without control characters (C0, DEL, C1), so it can go to a terminal or a log as it is.
// Pure functions, any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool kin_label_is_clean(const char *text, size_t n);

// Makes a clean label of any text in `to` [most + 1]: cut before the character that does not fit, '?' in place of each byte that
// is not clean. Returns `to`.
char *kin_label_set(char *to, size_t most, const char *text);

// The same of a sentence: it is cut before the word that does not fit, and ends with "..." (base/sentence.h).
char *kin_label_set_sentence(char *to, size_t most, const char *text);
