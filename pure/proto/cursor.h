// Cursors over a payload: a reader that checks every step, and a writer that counts or fills.
//
// They turn a codec into a readable list of fields. The reader's failure is sticky: the first sentence is kept and all further
// reads return 0, so a decoder checks once, at the end. A writer without a buffer only counts, so one list of fields gives both
// the size and the bytes. Not for data that arrives in pieces: a payload must be complete before it is decoded.
//
// Owner: the codec function that made it, on its stack. Pointers from kin_reader_bytes are valid as long as the payload.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"

typedef struct kin_reader {
    const uint8_t *at, *end;
    kin_err *err;
    bool failed;
} kin_reader;

static inline kin_reader kin_reader_open(const uint8_t *payload, size_t n, kin_err *err) {
    return (kin_reader){.at = payload, .end = n ? payload + n : payload, .err = err};
}

// Records a failure, unless there was one already.
void kin_reader_fail(kin_reader *r, const char *fmt, ...) KIN_PRINTF(2, 3);

// Returns the next n bytes, or NULL after a failure.
const uint8_t *kin_reader_bytes(kin_reader *r, size_t n);

static inline uint8_t kin_reader_u8(kin_reader *r) {
    const uint8_t *p = kin_reader_bytes(r, 1);
    return p ? *p : 0;
}

static inline uint16_t kin_reader_u16(kin_reader *r) {
    const uint8_t *p = kin_reader_bytes(r, 2);
    return p ? kin_get_u16(p) : 0;
}

static inline uint32_t kin_reader_u32(kin_reader *r) {
    const uint8_t *p = kin_reader_bytes(r, 4);
    return p ? kin_get_u32(p) : 0;
}

static inline uint64_t kin_reader_u64(kin_reader *r) {
    const uint8_t *p = kin_reader_bytes(r, 8);
    return p ? kin_get_u64(p) : 0;
}

static inline double kin_reader_f64(kin_reader *r) {
    uint64_t bits = kin_reader_u64(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// Copies the next n bytes; writes zeros after a failure.
void kin_reader_copy(kin_reader *r, uint8_t *to, size_t n);

// Returns `value` if it is between `low` and `high`. Otherwise fails with a sentence that names it, and returns `low`.
uint32_t kin_reader_range(kin_reader *r, uint32_t value, uint32_t low, uint32_t high, const char *what);

// Reads a u64 that counts bytes: at most 2^53, so that sums fit into 64 bits and a JSON number can hold it.
uint64_t kin_reader_size(kin_reader *r, const char *what);

// Reads a str: a u16 length, then that many bytes, at most `most`. It must be UTF-8 without control characters. Writes it to
// [most + 1] with a final NUL.
void kin_reader_str(kin_reader *r, char *to, size_t most, const char *what);

// Fails if bytes are left over. Returns 0, or KIN_FAIL with the sentence, which begins with `name`.
int kin_reader_close(kin_reader *r, const char *name);

typedef struct kin_writer {
    uint8_t *to; // NULL: only count
    size_t n;    // bytes so far
    size_t cap;
} kin_writer;

// Returns the place of the next n bytes, or NULL when only counting. Asserts that they fit.
uint8_t *kin_writer_reserve(kin_writer *w, size_t n);

void kin_writer_u8(kin_writer *w, uint8_t v);
void kin_writer_u16(kin_writer *w, uint16_t v);
void kin_writer_u32(kin_writer *w, uint32_t v);
void kin_writer_u64(kin_writer *w, uint64_t v);

static inline void kin_writer_f64(kin_writer *w, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    kin_writer_u64(w, bits);
}

// With `from` NULL, leaves room for n bytes without touching it.
void kin_writer_bytes(kin_writer *w, const uint8_t *from, size_t n);

// Writes a str from an array of [most + 1]. Asserts that its NUL is in the array.
void kin_writer_str(kin_writer *w, const char *from, size_t most);
