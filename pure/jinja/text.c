#include "pure/jinja/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/jinja/sort.h"
#include "pure/text/utf8.h"

// A growing buffer. failed: an error occurred, or a value has no text.
typedef struct buffer {
    kin_values *values;
    char *at;
    size_t len, cap;
    bool failed;
} buffer;

static void put(buffer *out, const char *at, size_t len) {
    if (out->failed || len == 0) return;
    if (out->len + len > KIN_VALUE_MAX_STRING) kin_values_set_error(out->values, "the output would exceed 64 MiB");
    if (out->len + len > out->cap) {
        size_t cap = 2 * (out->len + len) + 64;
        char *grown = kin_values_alloc(out->values, cap);
        if (grown && out->len > 0) memcpy(grown, out->at, out->len);
        out->at = grown;
        out->cap = cap;
    }
    if (!out->at || !kin_values_charge_bytes(out->values, len + 32)) {
        out->failed = true;
        return;
    }
    memcpy(out->at + out->len, at, len);
    out->len += len;
}

static void put_text(buffer *out, const char *text) {
    put(out, text, strlen(text));
}

static void put_string(buffer *out, const kin_string *s) {
    put(out, s->at, s->len);
}

static void put_format(buffer *out, const char *format, ...) KIN_PRINTF(2, 3);
static void put_format(buffer *out, const char *format, ...) {
    char text[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(out, text, (size_t)n);
}

static const kin_value *finish_text(buffer *out, kin_origin origin) {
    return out->failed ? NULL : kin_value_of_bytes(out->values, out->at ? out->at : "", out->len, origin);
}

// ---- numbers

size_t kin_float_text(char out[KIN_FLOAT_TEXT], double f) {
    if (isnan(f)) return (size_t)snprintf(out, KIN_FLOAT_TEXT, "nan");
    if (isinf(f)) return (size_t)snprintf(out, KIN_FLOAT_TEXT, f < 0 ? "-inf" : "inf");
    int digits = 0;
    do snprintf(out, KIN_FLOAT_TEXT, "%.*e", digits, f);
    while (strtod(out, NULL) != f && ++digits < 17);
    int exponent = atoi(strchr(out, 'e') + 1);
    if (exponent < -4 || exponent >= 16) return strlen(out);
    int decimals = digits > exponent ? digits - exponent : 1; // at least ".0"
    return (size_t)snprintf(out, KIN_FLOAT_TEXT, "%.*f", decimals, f);
}

static void put_float(buffer *out, double f) {
    char text[KIN_FLOAT_TEXT];
    put(out, text, kin_float_text(text, f));
}

// ---- repr

// Differs from Python's isprintable in that unassigned characters count as printable.
static bool is_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x1680 || c == 0x180e || c == 0x3000 || c == 0xfeff)
        return false;
    if ((c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f)) return false;
    return !(c >= 0xe000 && c <= 0xf8ff) && c < 0xe0000;
}

static void put_repr_char(buffer *out, const char *at, int len, char quote) {
    uint32_t c = kin_utf8_get(at, len);
    if (c == (unsigned char)quote || c == '\\')
        put_format(out, "\\%c", (char)c);
    else if (c == '\n')
        put_text(out, "\\n");
    else if (c == '\r')
        put_text(out, "\\r");
    else if (c == '\t')
        put_text(out, "\\t");
    else if (is_printable(c))
        put(out, at, (size_t)len);
    else
        put_format(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void put_repr_string(buffer *out, const kin_string *s) {
    bool single = s->len > 0 && memchr(s->at, '\'', s->len), twice = s->len > 0 && memchr(s->at, '"', s->len);
    char quote = single && !twice ? '"' : '\'';
    put(out, &quote, 1);
    for (size_t i = 0; i < s->len && !out->failed;) {
        int len = kin_utf8_len(s->at + i, s->len - i);
        if (len <= 0) len = 1;
        put_repr_char(out, s->at + i, len, quote);
        i += (size_t)len;
    }
    put(out, &quote, 1);
}

static void put_repr(buffer *out, const kin_value *value);

static void put_repr_items(buffer *out, const kin_items *items, const char *open, const char *close) {
    put_text(out, open);
    for (size_t i = 0; i < items->n && !out->failed; i++) {
        if (i > 0) put_text(out, ", ");
        put_repr(out, items->at[i]);
    }
    put_text(out, close);
}

static void put_repr_pairs(buffer *out, const kin_pairs *pairs) {
    put_text(out, "{");
    for (size_t i = 0; i < pairs->n && !out->failed; i++) {
        if (i > 0) put_text(out, ", ");
        put_repr(out, pairs->at[i].key);
        put_text(out, ": ");
        put_repr(out, pairs->at[i].item);
    }
    put_text(out, "}");
}

static void put_repr(buffer *out, const kin_value *value) {
    switch (value->kind) {
    case KIN_KIND_UNDEFINED: put_text(out, "Undefined"); break;
    case KIN_KIND_NONE: put_text(out, "None"); break;
    case KIN_KIND_BOOL: put_text(out, value->b ? "True" : "False"); break;
    case KIN_KIND_INT: put_format(out, "%" PRId64, value->i); break;
    case KIN_KIND_FLOAT: put_float(out, value->f); break;
    case KIN_KIND_STRING: put_repr_string(out, &value->s); break;
    case KIN_KIND_LIST: put_repr_items(out, value->items, "[", "]"); break;
    case KIN_KIND_TUPLE: put_repr_items(out, value->items, "(", value->items->n == 1 ? ",)" : ")"); break;
    case KIN_KIND_DICT: put_repr_pairs(out, value->pairs); break;
    default: out->failed = true;
    }
}

const kin_value *kin_value_str(kin_values *values, const kin_value *value) {
    if (value->kind == KIN_KIND_STRING) return value;
    if (value->kind == KIN_KIND_UNDEFINED) return &kin_the_empty_string;
    buffer out = {.values = values};
    put_repr(&out, value);
    return finish_text(&out, value->kind <= KIN_KIND_FLOAT ? KIN_ORIGIN_TEMPLATE : KIN_ORIGIN_INPUT);
}

// ---- JSON

typedef struct json_writer {
    buffer out;
    const kin_json_format *format;
    int level;
} json_writer;

static void put_json_char(json_writer *w, const char *at, int len) {
    static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt"; // character, letter
    uint32_t c = kin_utf8_get(at, len);
    for (const char *e = escapes; *e; e += 2) {
        if (c != (unsigned char)e[0]) continue;
        put_format(&w->out, "\\%c", e[1]);
        return;
    }
    if (c < 0x10000) {
        put_format(&w->out, "\\u%04x", (unsigned)c);
    } else {
        c -= 0x10000;
        put_format(&w->out, "\\u%04x\\u%04x", 0xd800 + (unsigned)(c >> 10), 0xdc00 + (unsigned)(c & 0x3ff));
    }
}

// Returns the number of bytes from here on that need no escape.
static size_t plain_run(const json_writer *w, const kin_string *s, size_t from) {
    unsigned char last = w->format->ensure_ascii ? 0x7e : 0xff;
    size_t i = from;
    while (i < s->len && (unsigned char)s->at[i] >= 0x20 && (unsigned char)s->at[i] <= last && s->at[i] != '"' &&
           s->at[i] != '\\')
        i++;
    return i - from;
}

static void put_json_string(json_writer *w, const kin_string *s) {
    put_text(&w->out, "\"");
    for (size_t i = 0; i < s->len && !w->out.failed;) {
        size_t plain = plain_run(w, s, i);
        put(&w->out, s->at + i, plain);
        i += plain;
        if (i == s->len) break;
        int len = kin_utf8_len(s->at + i, s->len - i);
        if (len <= 0) len = 1;
        put_json_char(w, s->at + i, len);
        i += (size_t)len;
    }
    put_text(&w->out, "\"");
}

static void put_json_float(json_writer *w, double f) {
    if (isnan(f))
        put_text(&w->out, "NaN");
    else if (isinf(f))
        put_text(&w->out, f < 0 ? "-Infinity" : "Infinity");
    else
        put_float(&w->out, f);
}

static void put_json_line(json_writer *w) {
    if (!w->format->indent) return;
    put_text(&w->out, "\n");
    for (int i = 0; i < w->level; i++) put_string(&w->out, w->format->indent);
}

static void put_json(json_writer *w, const kin_value *value);

static void put_json_items(json_writer *w, const kin_items *items) {
    put_text(&w->out, "[");
    w->level++;
    for (size_t i = 0; i < items->n && !w->out.failed; i++) {
        if (i > 0) put_string(&w->out, w->format->item_separator);
        put_json_line(w);
        put_json(w, items->at[i]);
    }
    w->level--;
    if (items->n > 0) put_json_line(w);
    put_text(&w->out, "]");
}

// A key is a string or a scalar, which is quoted.
static void put_json_key(json_writer *w, const kin_value *key) {
    if (key->kind == KIN_KIND_STRING) {
        put_json(w, key);
        return;
    }
    put_text(&w->out, "\"");
    if (key->kind >= KIN_KIND_NONE && key->kind <= KIN_KIND_FLOAT)
        put_json(w, key);
    else
        w->out.failed = true;
    put_text(&w->out, "\"");
}

static void put_json_pairs(json_writer *w, const kin_pairs *pairs) {
    const kin_pairs *sorted = w->format->sort_keys ? kin_sorted_pairs(w->out.values, pairs) : pairs;
    if (!sorted) w->out.failed = true;
    put_text(&w->out, "{");
    w->level++;
    for (size_t i = 0; i < pairs->n && !w->out.failed; i++) {
        if (i > 0) put_string(&w->out, w->format->item_separator);
        put_json_line(w);
        put_json_key(w, sorted->at[i].key);
        put_string(&w->out, w->format->key_separator);
        put_json(w, sorted->at[i].item);
    }
    w->level--;
    if (pairs->n > 0) put_json_line(w);
    put_text(&w->out, "}");
}

static void put_json(json_writer *w, const kin_value *value) {
    switch (value->kind) {
    case KIN_KIND_NONE: put_text(&w->out, "null"); break;
    case KIN_KIND_BOOL: put_text(&w->out, value->b ? "true" : "false"); break;
    case KIN_KIND_INT: put_format(&w->out, "%" PRId64, value->i); break;
    case KIN_KIND_FLOAT: put_json_float(w, value->f); break;
    case KIN_KIND_STRING: put_json_string(w, &value->s); break;
    case KIN_KIND_LIST:
    case KIN_KIND_TUPLE: put_json_items(w, value->items); break;
    case KIN_KIND_DICT: put_json_pairs(w, value->pairs); break;
    default: w->out.failed = true;
    }
}

const kin_value *kin_value_json(kin_values *values, const kin_value *value, const kin_json_format *format) {
    json_writer writer = {.out = {.values = values}, .format = format};
    put_json(&writer, value);
    return finish_text(&writer.out, KIN_ORIGIN_INPUT);
}
