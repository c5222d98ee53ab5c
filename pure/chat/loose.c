#include "pure/chat/loose.h"

#include <string.h>

#include "pure/text/json.h"
#include "pure/text/utf8.h"

enum { MAX_DEPTH = 64 };

static bool is_open(char c) {
    return c == '(' || c == '[' || c == '{';
}

static bool is_close(char c) {
    return c == ')' || c == ']' || c == '}';
}

static bool may_follow_value(char c) {
    return is_close(c) || c == ',' || c == ':';
}

// ---- where the arguments end

// Matches the format's quote, which begins with a byte that occurs once in it. Returns true within it and at its end.
static bool match_quote(kin_loose_scan *scan, const char *quote, char c) {
    scan->n_matched = c == quote[scan->n_matched] ? scan->n_matched + 1 : c == quote[0];
    if (scan->n_matched == 0) return false;
    if (!quote[scan->n_matched]) {
        scan->quote = scan->quote ? 0 : quote[0];
        scan->n_matched = 0;
    }
    return true;
}

void kin_loose_scan_push(kin_loose_scan *scan, const kin_chat_format *f, char c) {
    bool in_own = f->quote[0] && scan->quote == f->quote[0];
    if (f->quote[0] && (in_own || !scan->quote) && (match_quote(scan, f->quote, c) || in_own)) return;
    if (scan->quote && scan->may_end && kin_is_space(c)) return;
    if (scan->quote && scan->may_end && may_follow_value(c)) scan->quote = 0;
    scan->may_end = false;
    if (scan->quote) {
        bool was_escaped = scan->is_escaped;
        scan->is_escaped = !was_escaped && !(f->is_raw && scan->depth == 1) && c == '\\';
        scan->may_end = !was_escaped && c == scan->quote;
        return;
    }
    if (c == '"' || (c == '\'' && f->syntax == KIN_CALL_PYTHON)) scan->quote = c;
    scan->depth += is_open(c) - is_close(c);
}

// ---- as JSON

typedef struct reader {
    const kin_chat_format *format;
    const char *at, *end;
    kin_text_buffer *out;
    int depth; // open lists and objects
} reader;

static void skip_space(reader *r) {
    while (r->at < r->end && kin_is_space(*r->at)) r->at++;
}

static bool accept_char(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool starts_with(const reader *r, const char *text) {
    size_t n = strlen(text);
    return n > 0 && (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static bool read_own_string(reader *r) {
    size_t n = strlen(r->format->quote);
    const char *begin = r->at += n;
    while (r->at < r->end && !starts_with(r, r->format->quote)) r->at++;
    if (r->at == r->end) return false;
    kin_json_write_string((kin_str){begin, (size_t)(r->at - begin)}, r->out);
    r->at += n;
    return true;
}

// True if the quote ends a string: a value may end after it.
static bool ends_string(const reader *r, const char *at) {
    for (at++; at < r->end; at++)
        if (!kin_is_space(*at)) return may_follow_value(*at);
    return true;
}

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Reads n hexadecimal digits; returns -1 if there are fewer.
static int64_t read_hex(reader *r, int n) {
    int64_t value = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int digit = r->at < r->end ? hex_of(*r->at) : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool put_code(kin_text_buffer *text, int64_t code) {
    char bytes[4];
    bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (code < 0 || code > 0x10FFFF || is_surrogate) return false;
    kin_text_put(text, bytes, (size_t)kin_utf8_put(bytes, (uint32_t)code));
    return true;
}

// Reads \uXXXX; two of them if the first is half of a pair.
static bool read_unicode(reader *r, kin_text_buffer *text) {
    int64_t code = read_hex(r, 4);
    if (code >= 0xD800 && code < 0xDC00 && starts_with(r, "\\u")) {
        r->at += 2;
        int64_t low = read_hex(r, 4);
        if (low < 0xDC00 || low >= 0xE000) return false;
        code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
    }
    return put_code(text, code);
}

static bool read_escape(reader *r, kin_text_buffer *text) {
    static const char letters[] = "nrtbfav0\\'\"/", meant[] = "\n\r\t\b\f\a\v\0\\'\"/";
    if (r->at == r->end) return false;
    char c = *r->at++;
    const char *known = memchr(letters, c, sizeof letters - 1);
    if (c == 'u') return read_unicode(r, text);
    if (c == 'U') return put_code(text, read_hex(r, 8));
    if (c == 'x') return put_code(text, read_hex(r, 2));
    if (c == '\n') return true; // a continued line
    if (!known) kin_text_put(text, "\\", 1);
    kin_text_put(text, known ? &meant[known - letters] : &c, 1);
    return true;
}

static bool read_string(reader *r) {
    kin_text_buffer text = {0};
    char quote = *r->at++;
    bool is_raw = r->format->is_raw && r->depth == 0, ok = true;
    while (ok && r->at < r->end && !(*r->at == quote && ends_string(r, r->at))) {
        char c = *r->at++;
        if (c == '\\' && !is_raw)
            ok = read_escape(r, &text);
        else
            kin_text_put(&text, &c, 1);
    }
    ok = ok && r->at < r->end;
    r->at += ok;
    if (ok) kin_json_write_string(kin_text_str(&text), r->out);
    if (text.failed) r->out->failed = true;
    kin_text_fini(&text);
    return ok;
}

// A number, true, false, null, or their names in Python. Any other word is a string.
static bool read_word(reader *r) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *begin = r->at;
    kin_json json;
    while (r->at < r->end && !may_follow_value(*r->at) && *r->at != '=') r->at++;
    kin_str word = {begin, (size_t)(r->at - begin)};
    while (word.len > 0 && kin_is_space(word.at[word.len - 1])) word.len--;
    if (word.len == 0) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (word.len != strlen(words[i][0]) || memcmp(word.at, words[i][0], word.len) != 0) continue;
        kin_text_put(r->out, words[i][1], strlen(words[i][1]));
        return true;
    }
    if (kin_json_parse(&json, word.at, word.len, NULL) == 0) {
        kin_json_write(&json, json.values, r->out);
        kin_json_fini(&json);
        return true;
    }
    kin_json_write_string(word, r->out);
    return true;
}

static bool read_value(reader *r);

static bool read_key(reader *r, char after) {
    skip_space(r);
    if (starts_with(r, r->format->quote)) return read_own_string(r) && accept_char(r, after);
    if (r->at < r->end && (*r->at == '"' || *r->at == '\'')) return read_string(r) && accept_char(r, after);
    const char *begin = r->at;
    while (r->at < r->end && *r->at != after && *r->at != ',' && !is_close(*r->at) && !is_open(*r->at)) r->at++;
    kin_str key = {begin, (size_t)(r->at - begin)};
    while (key.len > 0 && kin_is_space(key.at[key.len - 1])) key.len--;
    if (key.len > 0) kin_json_write_string(key, r->out);
    return key.len > 0 && accept_char(r, after);
}

// Reads items up to the closing bracket, which may follow a comma. after_key: what separates a key from its value; 0: no keys.
static bool read_items(reader *r, char close, char after_key) {
    kin_text_put(r->out, after_key ? "{" : "[", 1);
    for (bool is_first = true; !accept_char(r, close); is_first = false) {
        if (!is_first && !accept_char(r, ',')) return false;
        if (!is_first && accept_char(r, close)) break;
        if (!is_first) kin_text_put(r->out, ", ", 2);
        if (after_key) {
            if (!read_key(r, after_key)) return false;
            kin_text_put(r->out, ": ", 2);
        }
        if (!read_value(r)) return false;
    }
    kin_text_put(r->out, after_key ? "}" : "]", 1);
    return true;
}

static bool read_value(reader *r) {
    bool ok;
    skip_space(r);
    if (r->at == r->end || r->depth == MAX_DEPTH) return false;
    if (starts_with(r, r->format->quote)) return read_own_string(r);
    if (*r->at == '"' || (*r->at == '\'' && r->format->syntax == KIN_CALL_PYTHON)) return read_string(r);
    r->depth++;
    if (accept_char(r, '['))
        ok = read_items(r, ']', 0);
    else if (accept_char(r, '{'))
        ok = read_items(r, '}', ':');
    else if (accept_char(r, '('))
        ok = read_items(r, ')', 0);
    else
        ok = read_word(r);
    r->depth--;
    return ok;
}

bool kin_loose_put_json(const kin_chat_format *f, kin_str text, kin_text_buffer *out) {
    reader r = {.format = f, .at = text.at, .end = text.at + text.len, .out = out};
    bool is_python = f->syntax == KIN_CALL_PYTHON, ok = accept_char(&r, is_python ? '(' : '{');
    ok = ok && read_items(&r, is_python ? ')' : '}', is_python ? '=' : ':');
    skip_space(&r);
    return ok && r.at == r.end;
}
