#include "pure/text/json.h"

#include <stdlib.h>
#include <string.h>

#include "pure/text/grow.h"
#include "pure/text/utf8.h"

typedef struct parser {
    kin_json *json;
    const char *text, *at, *end;
    char *out; // output of decoded bytes; never more than the input has
    int depth;
    kin_err *err;
} parser;

static int fail_json(const parser *p, const char *what) {
    int line = 1;
    for (const char *c = p->text; c < p->at; c++) line += *c == '\n';
    return kin_err_set(p->err, "JSON: line %d: %s", line, what);
}

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

static bool skip_char(parser *p, char c) {
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

// ---- strings

static int parse_unit(parser *p, uint32_t *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        char c = p->at < p->end ? *p->at : 0;
        bool is_digit = c >= '0' && c <= '9', is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!is_digit && !is_letter) return fail_json(p, "\\u needs 4 hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)(is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return 0;
}

// Called after "\u".
static int parse_code_point(parser *p, uint32_t *codepoint) {
    uint32_t low;
    if (parse_unit(p, codepoint) != 0) return KIN_FAIL;
    if (*codepoint < 0xd800 || *codepoint > 0xdfff) return 0;
    if (*codepoint > 0xdbff || !skip_char(p, '\\') || !skip_char(p, 'u') || parse_unit(p, &low) != 0 || low < 0xdc00 ||
        low > 0xdfff)
        return fail_json(p, "an unpaired surrogate");
    *codepoint = 0x10000 + ((*codepoint - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

static int parse_escape(parser *p) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    uint32_t codepoint;
    char c = p->at < p->end ? *p->at++ : 0;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter)
        codepoint = (uint32_t)meanings[letter - letters];
    else if (c != 'u')
        return fail_json(p, "unknown escape in a string");
    else if (parse_code_point(p, &codepoint) != 0)
        return KIN_FAIL;
    p->out += kin_utf8_put(p->out, codepoint);
    return 0;
}

// Called after the opening quote.
static int parse_string(parser *p, kin_str *string) {
    string->at = p->out;
    while (!skip_char(p, '"')) {
        if (p->at == p->end) return fail_json(p, "the closing quote of a string is missing");
        if (skip_char(p, '\\')) {
            if (parse_escape(p) != 0) return KIN_FAIL;
            continue;
        }
        int len = kin_utf8_len(p->at, (size_t)(p->end - p->at));
        if (len <= 0) return fail_json(p, "invalid UTF-8");
        if ((uint8_t)*p->at < 0x20) return fail_json(p, "a control character in a string: it must be escaped");
        memcpy(p->out, p->at, (size_t)len);
        p->out += len;
        p->at += len;
    }
    string->len = (size_t)(p->out - string->at);
    return 0;
}

// ---- numbers

static bool skip_digits(parser *p) {
    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > begin;
}

static int parse_number(parser *p, kin_str *number) {
    const char *begin = p->at;
    skip_char(p, '-');
    if (!skip_char(p, '0') && !skip_digits(p)) return fail_json(p, "expected a value");
    if (skip_char(p, '.') && !skip_digits(p)) return fail_json(p, "expected a digit after '.'");
    if (skip_char(p, 'e') || skip_char(p, 'E')) {
        if (!skip_char(p, '-')) skip_char(p, '+');
        if (!skip_digits(p)) return fail_json(p, "an exponent has no digits");
    }
    *number = (kin_str){p->out, (size_t)(p->at - begin)};
    memcpy(p->out, begin, number->len);
    p->out += number->len;
    return 0;
}

// ---- values

static int parse_value(parser *p, uint32_t parent, kin_str key, uint32_t *number);

static int parse_key(parser *p, kin_str *key) {
    skip_space(p);
    if (!skip_char(p, '"')) return fail_json(p, "expected a key");
    if (parse_string(p, key) != 0) return KIN_FAIL;
    skip_space(p);
    return skip_char(p, ':') ? 0 : fail_json(p, "expected ':' after a key");
}

static int by_key(const void *a, const void *b) {
    const kin_str *x = a, *y = b;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return memcmp(x->at, y->at, x->len);
}

static int check_keys(parser *p, const kin_json_value *object) {
    kin_str *keys = malloc((object->n + 1) * sizeof *keys);
    uint32_t n = 0;
    if (!keys) return fail_json(p, "out of memory");
    for (const kin_json_value *v = kin_json_first(p->json, object); v; v = kin_json_next(p->json, v)) keys[n++] = v->key;
    qsort(keys, n, sizeof *keys, by_key);
    uint32_t i = 1;
    while (i < n && by_key(&keys[i - 1], &keys[i]) != 0) i++;
    int rc = i < n ? kin_err_set(p->err, "JSON: the key \"%.*s\" appears twice in one object",
                                 (int)(keys[i].len < 80 ? keys[i].len : 80), keys[i].at)
                   : 0;
    free(keys);
    return rc;
}

// Called after the opening bracket; `self` is the index of the array or object.
static int parse_items(parser *p, uint32_t self, bool is_object) {
    char closing = is_object ? '}' : ']';
    uint32_t last = 0;
    if (++p->depth > KIN_JSON_MAX_DEPTH) return fail_json(p, "nested more than 64 deep");
    skip_space(p);
    for (bool more = !skip_char(p, closing); more;) {
        kin_str key = {NULL, 0};
        uint32_t number;
        if (is_object && parse_key(p, &key) != 0) return KIN_FAIL;
        if (parse_value(p, self, key, &number) != 0) return KIN_FAIL;
        kin_json_value *values = p->json->values;
        *(last ? &values[last].next : &values[self].first) = number;
        last = number;
        if (++values[self].n > KIN_JSON_MAX_MEMBERS && is_object) return fail_json(p, "an object has more than 4096 members");
        skip_space(p);
        more = skip_char(p, ',');
        if (!more && !skip_char(p, closing)) return fail_json(p, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    p->depth--;
    return is_object ? check_keys(p, &p->json->values[self]) : 0;
}

static bool skip_word(parser *p, const char *word) {
    size_t len = strlen(word);
    if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0) return false;
    p->at += len;
    return true;
}

static int parse_value(parser *p, uint32_t parent, kin_str key, uint32_t *number) {
    kin_json *json = p->json;
    kin_json_value value = {.parent = parent, .key = key};
    bool is_object = false, has_items = false;
    skip_space(p);
    if (kin_grow((void **)&json->values, &json->cap_values, (uint64_t)json->n_values + 1, KIN_JSON_MAX_VALUES,
                 sizeof *json->values) != 0)
        return fail_json(p, "too many values, or out of memory");
    if (skip_char(p, '"')) {
        value.kind = KIN_JSON_STRING;
        if (parse_string(p, &value.text) != 0) return KIN_FAIL;
    } else if ((is_object = skip_char(p, '{')) || skip_char(p, '[')) {
        value.kind = is_object ? KIN_JSON_OBJECT : KIN_JSON_ARRAY;
        has_items = true;
    } else if (skip_word(p, "true")) {
        value.kind = KIN_JSON_TRUE;
    } else if (skip_word(p, "false")) {
        value.kind = KIN_JSON_FALSE;
    } else if (!skip_word(p, "null")) {
        value.kind = KIN_JSON_NUMBER;
        if (parse_number(p, &value.text) != 0) return KIN_FAIL;
    }
    *number = json->n_values++;
    json->values[*number] = value;
    return has_items ? parse_items(p, *number, is_object) : 0;
}

int kin_json_parse(kin_json *out, const char *text, size_t len, kin_err *err) {
    *out = (kin_json){0};
    if (len > KIN_JSON_MAX_BYTES) return kin_err_set(err, "JSON: longer than 4 MiB");
    out->bytes = malloc(len + KIN_UTF8_MAX);
    if (!out->bytes) return kin_err_set(err, "JSON: out of memory");
    parser p = {.json = out, .text = text, .at = text, .end = text + len, .out = out->bytes, .err = err};
    uint32_t number;
    int rc = parse_value(&p, 0, (kin_str){NULL, 0}, &number);
    skip_space(&p);
    if (rc == 0 && p.at < p.end) rc = fail_json(&p, "unexpected text after the end");
    if (rc != 0) kin_json_fini(out);
    return rc;
}

void kin_json_fini(kin_json *json) {
    free(json->values);
    free(json->bytes);
    *json = (kin_json){0};
}

// ---- reading

const kin_json_value *kin_json_first(const kin_json *json, const kin_json_value *of) {
    return of->first ? &json->values[of->first] : NULL;
}

const kin_json_value *kin_json_next(const kin_json *json, const kin_json_value *value) {
    return value->next ? &json->values[value->next] : NULL;
}

static bool same_text(kin_str a, const char *at, size_t len) {
    return a.len == len && (len == 0 || memcmp(a.at, at, len) == 0);
}

const kin_json_value *kin_json_get(const kin_json *json, const kin_json_value *of, const char *key, size_t key_len) {
    if (of->kind != KIN_JSON_OBJECT) return NULL;
    for (const kin_json_value *v = kin_json_first(json, of); v; v = kin_json_next(json, v)) {
        if (same_text(v->key, key, key_len)) return v;
    }
    return NULL;
}

static const kin_json_value *item_at(const kin_json *json, const kin_json_value *of, kin_str digits) {
    uint32_t index = 0;
    if (digits.len == 0 || digits.len > 7) return NULL;
    for (size_t i = 0; i < digits.len; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9') return NULL;
        index = index * 10 + (uint32_t)(digits.at[i] - '0');
    }
    const kin_json_value *v = kin_json_first(json, of);
    while (v && index-- > 0) v = kin_json_next(json, v);
    return v;
}

// Decodes one part of a pointer (~1 is '/', ~0 is '~') into `part` [len]; returns its length.
static size_t unescape_part(const char *at, size_t len, char *part) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        bool is_escape = at[i] == '~' && i + 1 < len && (at[i + 1] == '0' || at[i + 1] == '1');
        part[n++] = !is_escape ? at[i] : at[++i] == '0' ? '~' : '/';
    }
    return n;
}

const kin_json_value *kin_json_pointer(const kin_json *json, const kin_json_value *of, const char *at, size_t len) {
    const char *end = at + len;
    char part[256];
    while (of && at < end) {
        if (*at++ != '/') return NULL;
        const char *stop = memchr(at, '/', (size_t)(end - at));
        if (!stop) stop = end;
        if ((size_t)(stop - at) > sizeof part) return NULL;
        size_t n = unescape_part(at, (size_t)(stop - at), part);
        of = of->kind == KIN_JSON_ARRAY ? item_at(json, of, (kin_str){part, n}) : kin_json_get(json, of, part, n);
        at = stop;
    }
    return of;
}

// ---- comparing

static double number_of(kin_str text) {
    char digits[400];
    size_t n = text.len < sizeof digits ? text.len : sizeof digits - 1;
    memcpy(digits, text.at, n);
    digits[n] = '\0';
    return strtod(digits, NULL);
}

bool kin_json_equal(const kin_json *json, const kin_json_value *a, const kin_json_value *b) {
    if (a->kind != b->kind || a->n != b->n) return false;
    switch (a->kind) {
    case KIN_JSON_NUMBER: return same_text(a->text, b->text.at, b->text.len) || number_of(a->text) == number_of(b->text);
    case KIN_JSON_STRING: return same_text(a->text, b->text.at, b->text.len);
    case KIN_JSON_ARRAY:
        a = kin_json_first(json, a);
        b = kin_json_first(json, b);
        for (; a && b; a = kin_json_next(json, a), b = kin_json_next(json, b)) {
            if (!kin_json_equal(json, a, b)) return false;
        }
        return true;
    case KIN_JSON_OBJECT:
        for (a = kin_json_first(json, a); a; a = kin_json_next(json, a)) {
            const kin_json_value *other = kin_json_get(json, b, a->key.at, a->key.len);
            if (!other || !kin_json_equal(json, a, other)) return false;
        }
        return true;
    default: return true;
    }
}

// ---- writing

void kin_json_write_string(kin_str text, kin_text_buffer *out) {
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    kin_text_put(out, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        const char *letter = c ? strchr(meanings, c) : NULL;
        if (c == '"' || c == '\\')
            kin_text_print(out, "\\%c", c);
        else if (letter)
            kin_text_print(out, "\\%c", letters[letter - meanings]);
        else if (c < 0x20)
            kin_text_print(out, "\\u%04x", c);
        else
            kin_text_put(out, text.at + i, 1);
    }
    kin_text_put(out, "\"", 1);
}

void kin_json_write(const kin_json *json, const kin_json_value *value, kin_text_buffer *out) {
    static const char *const words[] = {"null", "false", "true"};
    bool is_object = value->kind == KIN_JSON_OBJECT;
    if (value->kind <= KIN_JSON_TRUE) kin_text_put(out, words[value->kind], strlen(words[value->kind]));
    if (value->kind == KIN_JSON_NUMBER) kin_text_put(out, value->text.at, value->text.len);
    if (value->kind == KIN_JSON_STRING) kin_json_write_string(value->text, out);
    if (value->kind < KIN_JSON_ARRAY) return;
    kin_text_put(out, is_object ? "{" : "[", 1);
    for (const kin_json_value *v = kin_json_first(json, value); v; v = kin_json_next(json, v)) {
        if (is_object) {
            kin_json_write_string(v->key, out);
            kin_text_put(out, ":", 1);
        }
        kin_json_write(json, v, out);
        if (v->next) kin_text_put(out, ",", 1);
    }
    kin_text_put(out, is_object ? "}" : "]", 1);
}
