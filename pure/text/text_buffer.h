// Text that grows at its end.
//
// A failure (out of memory, longer than KIN_TEXT_BUFFER_MAX) is remembered: later calls do nothing, so the caller checks
// `failed` once at the end. Zero-initialise it; fini frees it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define KIN_TEXT_BUFFER_MAX (64u << 20)

typedef struct kin_text_buffer {
    char *at; // [len], followed by a NUL once something was put
    size_t len, cap;
    bool failed;
} kin_text_buffer;

void kin_text_put(kin_text_buffer *text, const char *at, size_t len);
void kin_text_print(kin_text_buffer *text, const char *fmt, ...) KIN_PRINTF(2, 3); // at most 255 bytes per call
void kin_text_fini(kin_text_buffer *text);

static inline kin_str kin_text_str(const kin_text_buffer *text) {
    return (kin_str){text->at ? text->at : "", text->len};
}
