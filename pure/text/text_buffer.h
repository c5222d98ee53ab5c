// Text that grows at its end.
//
// What fails (no memory, longer than KIN_TEXT_BUFFER_MAX) is remembered: later calls do nothing, and the caller looks once at the
// end. Owner: whoever holds it; zero-initialised, freed by fini.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define KIN_TEXT_BUFFER_MAX (64u << 20)

typedef struct kin_text_buffer {
    char *at; // [len], and a NUL after it once something was put
    size_t len, cap;
    bool failed;
} kin_text_buffer;

void kin_text_put(kin_text_buffer *text, const char *at, size_t len);
void kin_text_print(kin_text_buffer *text, const char *fmt, ...) KIN_PRINTF(2, 3); // at most 255 bytes at once
void kin_text_fini(kin_text_buffer *text);

static inline kin_str kin_text_str(const kin_text_buffer *text) {
    return (kin_str){text->at ? text->at : "", text->len};
}
