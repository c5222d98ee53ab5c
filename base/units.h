// Parses and formats sizes as people write and read them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// "560M", "1.5G", "4096" -> bytes. K, M, G, T are powers of 1024; an optional "B" or "iB" may follow.
// Fails on anything else, on negative sizes and on overflow; the sentence quotes the text.
int kin_size_parse(const char *text, uint64_t *bytes, kin_err *err);

// 1536 -> "1.5 KiB". Writes at most n bytes with the final NUL and returns buf.
const char *kin_size_format(uint64_t bytes, char *buf, size_t n);
