#include "pure/proto/cursor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pure/proto/label.h"

#define MOST_BYTES ((uint64_t)1 << 53)

void kin_reader_fail(kin_reader *r, const char *fmt, ...) {
    if (r->failed) return;
    char text[sizeof r->err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kin_err_set(r->err, "%s", text);
    r->failed = true;
}

const uint8_t *kin_reader_bytes(kin_reader *r, size_t n) {
    size_t left = (size_t)(r->end - r->at);
    if (n > left) kin_reader_fail(r, "ends %zu bytes too early", n - left);
    if (r->failed) return NULL;
    const uint8_t *p = r->at;
    if (n) r->at += n; // `at` may be NULL for an empty payload
    return p;
}

void kin_reader_copy(kin_reader *r, uint8_t *to, size_t n) {
    const uint8_t *p = kin_reader_bytes(r, n);
    if (p)
        memcpy(to, p, n);
    else
        memset(to, 0, n);
}

uint32_t kin_reader_range(kin_reader *r, uint32_t value, uint32_t low, uint32_t high, const char *what) {
    if (value >= low && value <= high) return value;
    kin_reader_fail(r, "%s is %lu, but must be between %lu and %lu", what, (unsigned long)value, (unsigned long)low,
                    (unsigned long)high);
    return low;
}

uint64_t kin_reader_size(kin_reader *r, const char *what) {
    uint64_t bytes = kin_reader_u64(r);
    if (bytes <= MOST_BYTES) return bytes;
    kin_reader_fail(r, "%s is beyond 2^53 bytes", what);
    return 0;
}

void kin_reader_str(kin_reader *r, char *to, size_t most, const char *what) {
    to[0] = 0;
    size_t n = kin_reader_u16(r);
    if (n > most) kin_reader_fail(r, "%s has %zu bytes, more than %zu", what, n, most);
    const char *p = (const char *)kin_reader_bytes(r, n);
    if (!p) return;
    if (!kin_label_is_clean(p, n)) {
        kin_reader_fail(r, "%s is not UTF-8 without control characters", what);
        return;
    }
    memcpy(to, p, n);
    to[n] = 0;
}

int kin_reader_close(kin_reader *r, const char *name) {
    if (r->at < r->end) kin_reader_fail(r, "%zu bytes too many at the end", (size_t)(r->end - r->at));
    return r->failed ? kin_err_prefix(r->err, "%s", name) : 0;
}

uint8_t *kin_writer_reserve(kin_writer *w, size_t n) {
    uint8_t *p = NULL;
    if (w->to) {
        kin_assert(n <= w->cap - w->n);
        p = w->to + w->n;
    }
    w->n += n;
    return p;
}

void kin_writer_u8(kin_writer *w, uint8_t v) {
    kin_writer_bytes(w, &v, 1);
}

void kin_writer_u16(kin_writer *w, uint16_t v) {
    kin_writer_bytes(w, (const uint8_t[]){(uint8_t)v, (uint8_t)(v >> 8)}, 2);
}

void kin_writer_u32(kin_writer *w, uint32_t v) {
    uint8_t *p = kin_writer_reserve(w, 4);
    if (p) kin_put_u32(p, v);
}

void kin_writer_u64(kin_writer *w, uint64_t v) {
    uint8_t *p = kin_writer_reserve(w, 8);
    if (p) kin_put_u64(p, v);
}

void kin_writer_bytes(kin_writer *w, const uint8_t *from, size_t n) {
    uint8_t *p = kin_writer_reserve(w, n);
    if (p && from && n) memcpy(p, from, n);
}

void kin_writer_str(kin_writer *w, const char *from, size_t most) {
    const char *end = memchr(from, 0, most + 1);
    kin_assert(end);
    size_t n = (size_t)(end - from);
    kin_writer_u16(w, (uint16_t)n);
    kin_writer_bytes(w, (const uint8_t *)from, n);
}
