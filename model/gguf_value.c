#include "model/gguf_value.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const struct {
    const char *name;
    size_t size;
} kinds[] = {
    [KIN_GGUF_U8] = {"u8", 1},       [KIN_GGUF_I8] = {"i8", 1},     [KIN_GGUF_U16] = {"u16", 2},
    [KIN_GGUF_I16] = {"i16", 2},     [KIN_GGUF_U32] = {"u32", 4},   [KIN_GGUF_I32] = {"i32", 4},
    [KIN_GGUF_F32] = {"f32", 4},     [KIN_GGUF_BOOL] = {"bool", 1}, [KIN_GGUF_STRING] = {"string", 0},
    [KIN_GGUF_ARRAY] = {"array", 0}, [KIN_GGUF_U64] = {"u64", 8},   [KIN_GGUF_I64] = {"i64", 8},
    [KIN_GGUF_F64] = {"f64", 8},
};

size_t kin_gguf_kind_size(uint32_t kind) {
    return kind < sizeof kinds / sizeof kinds[0] ? kinds[kind].size : 0;
}

static bool is_float(kin_gguf_kind kind) {
    return kind == KIN_GGUF_F32 || kind == KIN_GGUF_F64;
}

static bool is_integer(kin_gguf_kind kind) {
    return kinds[kind].size > 0 && kind != KIN_GGUF_BOOL && !is_float(kind);
}

static double read_float(kin_gguf_kind kind, const uint8_t *at) {
    if (kind == KIN_GGUF_F64) {
        uint64_t bits = kin_get_u64(at);
        double d;
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    uint32_t bits = kin_get_u32(at);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// Reads an integer or a bool. A u64 beyond INT64_MAX becomes negative.
static int64_t read_integer(kin_gguf_kind kind, const uint8_t *at) {
    switch (kind) {
    case KIN_GGUF_U8:
    case KIN_GGUF_BOOL: return at[0];
    case KIN_GGUF_I8: return (int8_t)at[0];
    case KIN_GGUF_U16: return kin_get_u16(at);
    case KIN_GGUF_I16: return (int16_t)kin_get_u16(at);
    case KIN_GGUF_U32: return kin_get_u32(at);
    case KIN_GGUF_I32: return (int32_t)kin_get_u32(at);
    default: kin_assert(kind == KIN_GGUF_U64 || kind == KIN_GGUF_I64); return (int64_t)kin_get_u64(at);
    }
}

static kin_str read_str(const uint8_t *at) {
    return (kin_str){.at = (const char *)at + 8, .len = (size_t)kin_get_u64(at)};
}

static kin_gguf_array read_array(const uint8_t *at) {
    return (kin_gguf_array){.kind = (kin_gguf_kind)kin_get_u32(at), .n = kin_get_u64(at + 4), .at = at + 12};
}

// Text for display: control characters become dots, and what does not fit is cut.

typedef struct writer {
    char *at;
    size_t left; // with the final NUL, > 0
} writer;

static void put_text(writer *w, const char *fmt, ...) KIN_PRINTF(2, 3);
static void put_text(writer *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(w->at, w->left, fmt, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < w->left ? (size_t)n : w->left - 1;
    w->at += used;
    w->left -= used;
}

static void put_str(writer *w, kin_str s, size_t len_max) {
    size_t len = s.len < len_max ? s.len : len_max;
    if (len > w->left - 1) len = w->left - 1;
    if (len < s.len) {
        while (len > 0 && ((unsigned char)s.at[len] & 0xc0) == 0x80) len--; // do not cut inside a UTF-8 character
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)s.at[i];
        *w->at++ = ch < 0x20 || ch == 0x7f ? '.' : s.at[i];
    }
    w->left -= len;
    *w->at = '\0';
    if (len < s.len) put_text(w, "...");
}

static void put_scalar(writer *w, kin_gguf_kind kind, const uint8_t *at) {
    if (is_float(kind)) {
        put_text(w, "%g", read_float(kind, at));
    } else if (kind == KIN_GGUF_BOOL) {
        put_text(w, at[0] ? "true" : "false");
    } else if (kind == KIN_GGUF_U64) {
        put_text(w, "%" PRIu64, kin_get_u64(at));
    } else {
        put_text(w, "%" PRId64, read_integer(kind, at));
    }
}

// "[512] 2, 3, 3, 6, ..."
static void put_array(writer *w, const kin_gguf_array *array) {
    enum { SHOWN = 6, STR_SHOWN = 16 };
    const uint8_t *at = array->at;
    put_text(w, "[%" PRIu64 "]", array->n);
    for (uint64_t i = 0; i < array->n && i < SHOWN; i++) {
        put_text(w, i ? ", " : " ");
        if (array->kind == KIN_GGUF_STRING) {
            put_str(w, kin_gguf_array_next_str(&at), STR_SHOWN);
        } else {
            put_scalar(w, array->kind, at);
            at += kinds[array->kind].size;
        }
    }
    if (array->n > SHOWN) put_text(w, ", ...");
}

const char *kin_gguf_value_text(const kin_gguf_meta *meta, char *buf, size_t n) {
    writer w = {.at = buf, .left = n};
    buf[0] = '\0';
    if (meta->kind == KIN_GGUF_STRING) {
        put_str(&w, read_str(meta->value), SIZE_MAX);
    } else if (meta->kind == KIN_GGUF_ARRAY) {
        kin_gguf_array array = read_array(meta->value);
        put_array(&w, &array);
    } else {
        put_scalar(&w, meta->kind, meta->value);
    }
    return buf;
}

// One entry as a value of a wanted type. Errors name the key, not the file.

static int fail_kind(const kin_gguf_meta *meta, const char *wanted, kin_err *err) {
    return kin_err_set(err, "%.*s has the type %s, but must be %s", KIN_STR_SHOWN(meta->key), kinds[meta->kind].name, wanted);
}

static int fail_value(const kin_gguf_meta *meta, const char *wanted, kin_err *err) {
    char text[64];
    return kin_err_set(err, "%.*s is %s, but must be %s", KIN_STR_SHOWN(meta->key), kin_gguf_value_text(meta, text, sizeof text),
                       wanted);
}

int kin_gguf_value_u32(const kin_gguf_meta *meta, uint32_t *value, kin_err *err) {
    if (!is_integer(meta->kind)) return fail_kind(meta, "an integer", err);
    int64_t v = read_integer(meta->kind, meta->value);
    if (v < 0 || v > UINT32_MAX) return fail_value(meta, "an unsigned 32-bit number", err);
    *value = (uint32_t)v;
    return 0;
}

int kin_gguf_value_f32(const kin_gguf_meta *meta, float *value, kin_err *err) {
    if (!is_float(meta->kind)) return fail_kind(meta, "a float", err);
    double v = read_float(meta->kind, meta->value);
    if (isfinite(v) && fabs(v) > FLT_MAX) return fail_value(meta, "a 32-bit float", err);
    *value = (float)v;
    return 0;
}

int kin_gguf_value_bool(const kin_gguf_meta *meta, bool *value, kin_err *err) {
    if (meta->kind != KIN_GGUF_BOOL) return fail_kind(meta, "a bool", err);
    *value = meta->value[0] != 0;
    return 0;
}

int kin_gguf_value_str(const kin_gguf_meta *meta, kin_str *value, kin_err *err) {
    if (meta->kind != KIN_GGUF_STRING) return fail_kind(meta, "a string", err);
    *value = read_str(meta->value);
    return 0;
}

int kin_gguf_value_array(const kin_gguf_meta *meta, kin_gguf_array *value, kin_err *err) {
    if (meta->kind != KIN_GGUF_ARRAY) return fail_kind(meta, "an array", err);
    *value = read_array(meta->value);
    return 0;
}

// Arrays

double kin_gguf_array_f64(const kin_gguf_array *array, uint64_t i) {
    kin_assert(i < array->n && kinds[array->kind].size > 0);
    const uint8_t *at = array->at + i * kinds[array->kind].size;
    if (is_float(array->kind)) return read_float(array->kind, at);
    if (array->kind == KIN_GGUF_U64) return (double)kin_get_u64(at);
    return (double)read_integer(array->kind, at);
}

int64_t kin_gguf_array_i64(const kin_gguf_array *array, uint64_t i) {
    kin_assert(i < array->n && kinds[array->kind].size > 0 && !is_float(array->kind));
    return read_integer(array->kind, array->at + i * kinds[array->kind].size);
}

kin_str kin_gguf_array_next_str(const uint8_t **cursor) {
    kin_str s = read_str(*cursor);
    *cursor += 8 + s.len;
    return s;
}
