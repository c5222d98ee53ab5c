#include "pure/text/json_scan.h"

#include "pure/text/json.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool expect(kin_json_scan *s, kin_json_expected expected) {
    s->expected = (uint8_t)expected;
    return true;
}

// ---- arrays and objects

static bool open_object(kin_json_scan *s) {
    if (s->depth == KIN_JSON_MAX_DEPTH) return false;
    s->objects |= (uint64_t)1 << s->depth++;
    return expect(s, KIN_JSON_AT_FIRST_KEY);
}

static bool open_array(kin_json_scan *s) {
    if (s->depth == KIN_JSON_MAX_DEPTH) return false;
    s->objects &= ~((uint64_t)1 << s->depth++);
    return expect(s, KIN_JSON_AT_FIRST_ITEM);
}

static bool in_object(const kin_json_scan *s) {
    return s->objects >> (s->depth - 1) & 1;
}

static bool close_one(kin_json_scan *s) {
    return expect(s, --s->depth == 0 ? KIN_JSON_AT_END : KIN_JSON_AT_COMMA);
}

static bool after_value(kin_json_scan *s, char c) {
    if (c == ',') return expect(s, in_object(s) ? KIN_JSON_AT_KEY : KIN_JSON_AT_VALUE);
    return c == (in_object(s) ? '}' : ']') && close_one(s);
}

// ---- values

static bool begin_string(kin_json_scan *s, bool is_key) {
    s->is_key = is_key;
    return expect(s, KIN_JSON_IN_STRING);
}

static bool begin_word(kin_json_scan *s, const char *rest) {
    s->word = rest;
    return expect(s, KIN_JSON_IN_WORD);
}

static bool begin_value(kin_json_scan *s, char c) {
    switch (c) {
    case '{': return open_object(s);
    case '[': return open_array(s);
    case '"': return begin_string(s, false);
    case 't': return begin_word(s, "rue");
    case 'f': return begin_word(s, "alse");
    case 'n': return begin_word(s, "ull");
    case '-': return expect(s, KIN_JSON_AFTER_MINUS);
    case '0': return expect(s, KIN_JSON_AFTER_ZERO);
    default: return is_digit(c) && expect(s, KIN_JSON_IN_INTEGER);
    }
}

static bool in_string(kin_json_scan *s, char c) {
    if (c == '"') return expect(s, s->is_key ? KIN_JSON_AT_COLON : KIN_JSON_AT_COMMA);
    if (c == '\\') return expect(s, KIN_JSON_IN_ESCAPE);
    return (uint8_t)c >= 0x20;
}

static bool in_escape(kin_json_scan *s, char c) {
    s->n_left = 4;
    if (c == 'u') return expect(s, KIN_JSON_IN_HEX);
    bool known = c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't';
    return known && expect(s, KIN_JSON_IN_STRING);
}

static bool in_hex(kin_json_scan *s, char c) {
    bool is_hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (is_hex && --s->n_left == 0) expect(s, KIN_JSON_IN_STRING);
    return is_hex;
}

static bool in_word(kin_json_scan *s, char c) {
    if (c != *s->word) return false;
    return *++s->word || expect(s, KIN_JSON_AT_COMMA);
}

// In a number that may end here: it continues, or the byte after it is read.
static bool go_on(kin_json_scan *s, char c, bool may_have_point) {
    if (c == '.' && may_have_point) return expect(s, KIN_JSON_AFTER_POINT);
    if ((c == 'e' || c == 'E') && s->expected != KIN_JSON_IN_EXPONENT) return expect(s, KIN_JSON_AFTER_E);
    if (kin_is_space(c)) return expect(s, KIN_JSON_AT_COMMA);
    return after_value(s, c);
}

static bool push_number(kin_json_scan *s, char c) {
    switch ((kin_json_expected)s->expected) {
    case KIN_JSON_AFTER_MINUS: return c == '0' ? expect(s, KIN_JSON_AFTER_ZERO) : is_digit(c) && expect(s, KIN_JSON_IN_INTEGER);
    case KIN_JSON_AFTER_ZERO: return go_on(s, c, true);
    case KIN_JSON_IN_INTEGER: return is_digit(c) || go_on(s, c, true);
    case KIN_JSON_AFTER_POINT: return is_digit(c) && expect(s, KIN_JSON_IN_FRACTION);
    case KIN_JSON_IN_FRACTION: return is_digit(c) || go_on(s, c, false);
    case KIN_JSON_AFTER_E:
        return c == '+' || c == '-' ? expect(s, KIN_JSON_AFTER_SIGN) : is_digit(c) && expect(s, KIN_JSON_IN_EXPONENT);
    case KIN_JSON_AFTER_SIGN: return is_digit(c) && expect(s, KIN_JSON_IN_EXPONENT);
    default: return is_digit(c) || go_on(s, c, false);
    }
}

bool kin_json_scan_push(kin_json_scan *s, char c) {
    bool between = s->expected <= KIN_JSON_AT_COMMA;
    if (between && kin_is_space(c)) return s->expected != KIN_JSON_AT_BEGIN;
    switch ((kin_json_expected)s->expected) {
    case KIN_JSON_AT_BEGIN: return c == '{' && open_object(s);
    case KIN_JSON_AT_VALUE: return begin_value(s, c);
    case KIN_JSON_AT_FIRST_ITEM: return c == ']' ? close_one(s) : begin_value(s, c);
    case KIN_JSON_AT_FIRST_KEY: return c == '}' ? close_one(s) : c == '"' && begin_string(s, true);
    case KIN_JSON_AT_KEY: return c == '"' && begin_string(s, true);
    case KIN_JSON_AT_COLON: return c == ':' && expect(s, KIN_JSON_AT_VALUE);
    case KIN_JSON_AT_COMMA: return after_value(s, c);
    case KIN_JSON_IN_STRING: return in_string(s, c);
    case KIN_JSON_IN_ESCAPE: return in_escape(s, c);
    case KIN_JSON_IN_HEX: return in_hex(s, c);
    case KIN_JSON_IN_WORD: return in_word(s, c);
    case KIN_JSON_AT_END: return false;
    default: return push_number(s, c);
    }
}
