// Labels: short texts that travel between machines and are shown to people: names, reasons, addresses.
//
// A clean label is UTF-8 without control characters (C0, DEL, C1), so it is safe to print to a terminal or a log.
// Pure functions, any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool kin_label_is_clean(const char *text, size_t n);

// Writes a clean label made from any text to `to` [most + 1]: it is cut before the first character that does not fit, and each
// byte that is not clean becomes '?'. Returns `to`.
char *kin_label_set(char *to, size_t most, const char *text);

// The same for a sentence: it is cut between words and ends with "..." (base/sentence.h).
char *kin_label_set_sentence(char *to, size_t most, const char *text);
