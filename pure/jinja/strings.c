#include "pure/jinja/strings.h"

#include <string.h>

#include "pure/text/utf8.h"

static bool continues(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t kin_string_n_chars(kin_values *values, const kin_string *s) {
    if (s->ascii) return s->len;
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) n += !continues(s->at[i]);
    kin_values_charge_bytes(values, s->len);
    return n;
}

size_t kin_string_offset(kin_values *values, const kin_string *s, size_t i) {
    if (s->ascii) return i < s->len ? i : s->len;
    size_t at = 0;
    while (at < s->len && i > 0) {
        at++;
        while (at < s->len && continues(s->at[at])) at++;
        i--;
    }
    kin_values_charge_bytes(values, at);
    return at;
}

kin_string kin_string_part(const kin_string *s, size_t begin, size_t end) {
    kin_string part = *s;
    part.at += begin;
    part.len = end > begin ? end - begin : 0;
    if (part.origins) part.origins += begin;
    return part;
}

kin_origin kin_string_origin_at(const kin_string *s, size_t i) {
    return s->origins ? (kin_origin)s->origins[i] : s->origin;
}

bool kin_string_is(const kin_string *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->at, text, s->len) == 0;
}

static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

int kin_space_begins(const char *at, size_t n) {
    int len = kin_utf8_len(at, n);
    return len > 0 && is_space(kin_utf8_get(at, len)) ? len : 0;
}

// Returns the number of bytes of the last character of at [n].
static size_t last_char(const char *at, size_t n) {
    size_t len = 1;
    while (len < n && len < KIN_UTF8_MAX && continues(at[n - len])) len++;
    return len;
}

int kin_space_ends(const char *at, size_t n) {
    if (n == 0) return 0;
    size_t len = last_char(at, n);
    return kin_space_begins(at + n - len, len) == (int)len ? (int)len : 0;
}

// Returns the number of bytes of the character at the given side if it may be stripped, else 0.
static size_t strippable(const kin_string *s, const kin_string *chars, kin_side side) {
    if (s->len == 0) return 0;
    if (!chars) return (size_t)(side == KIN_SIDE_LEFT ? kin_space_begins(s->at, s->len) : kin_space_ends(s->at, s->len));
    int begins = kin_utf8_len(s->at, s->len);
    size_t len = side == KIN_SIDE_LEFT ? (size_t)(begins > 0 ? begins : 1) : last_char(s->at, s->len);
    const char *at = side == KIN_SIDE_LEFT ? s->at : s->at + s->len - len;
    return memmem(chars->at, chars->len, at, len) ? len : 0;
}

kin_string kin_string_strip(kin_values *values, const kin_string *s, const kin_string *chars, unsigned sides) {
    kin_string rest = *s;
    size_t n, cost = chars ? chars->len + 16 : 16; // cost of one character, in bytes
    if (sides & KIN_SIDE_LEFT)
        while (kin_values_charge_bytes(values, cost) && (n = strippable(&rest, chars, KIN_SIDE_LEFT)) > 0)
            rest = kin_string_part(&rest, n, rest.len);
    if (sides & KIN_SIDE_RIGHT)
        while (kin_values_charge_bytes(values, cost) && (n = strippable(&rest, chars, KIN_SIDE_RIGHT)) > 0)
            rest = kin_string_part(&rest, 0, rest.len - n);
    kin_values_charge_bytes(values, s->len - rest.len);
    return rest;
}

ptrdiff_t kin_string_find(kin_values *values, const kin_string *s, const kin_string *needle, size_t from) {
    if (from > s->len) return KIN_NOT_FOUND;
    const char *found = memmem(s->at + from, s->len - from, needle->at, needle->len);
    kin_values_charge_bytes(values, (found ? (size_t)(found - s->at) - from : s->len - from) + needle->len);
    return found ? found - s->at : KIN_NOT_FOUND;
}

static void write_origins(uint8_t *to, const kin_string *s) {
    if (s->origins)
        memcpy(to, s->origins, s->len);
    else
        memset(to, s->origin, s->len);
}

kin_value *kin_string_concat(kin_values *values, const kin_string *a, const kin_string *b) {
    size_t len = a->len + b->len;
    kin_tail *tail = kin_values_tail(values);
    kin_string sum = {.at = a->at, .len = len, .origins = a->origins, .ascii = a->ascii && b->ascii};
    if (len > KIN_VALUE_MAX_STRING) {
        kin_values_set_error(values, "a string would exceed 64 MiB");
        return NULL;
    }
    if (a->at + a->len != tail->at || b->len > tail->room) {
        size_t room = len + len / 8 + 64;
        char *at = kin_values_alloc(values, 2 * room);
        if (!at || !kin_values_charge_bytes(values, 2 * a->len)) return NULL;
        uint8_t *origins = (uint8_t *)at + room;
        if (a->len > 0) memcpy(at, a->at, a->len);
        write_origins(origins, a);
        sum.at = at;
        sum.origins = origins;
        *tail = (kin_tail){at + a->len, origins + a->len, room - a->len};
    }
    if (!kin_values_charge_bytes(values, 2 * b->len)) return NULL;
    if (b->len > 0) memcpy(tail->at, b->at, b->len);
    write_origins(tail->origins, b);
    tail->at += b->len;
    tail->origins += b->len;
    tail->room -= b->len;
    return kin_value_of_string(values, sum);
}

kin_value *kin_string_repeat(kin_values *values, const kin_string *s, int64_t times) {
    if (times <= 0 || s->len == 0) return kin_value_of_string(values, kin_string_part(s, 0, 0));
    if ((uint64_t)times > KIN_VALUE_MAX_STRING / s->len) {
        kin_values_set_error(values, "a string would exceed 64 MiB");
        return NULL;
    }
    size_t len = s->len * (size_t)times;
    char *at = kin_values_alloc(values, 2 * len);
    if (!at || !kin_values_charge_bytes(values, 2 * len)) return NULL;
    kin_string repeated = {.at = at, .len = len, .origins = (uint8_t *)at + len, .ascii = s->ascii};
    for (size_t i = 0; i < len; i += s->len) {
        memcpy(at + i, s->at, s->len);
        write_origins((uint8_t *)at + len + i, s);
    }
    return kin_value_of_string(values, repeated);
}

kin_value *kin_string_pick(kin_values *values, const kin_string *s, int64_t begin, int64_t step, size_t n) {
    size_t n_chars = kin_string_n_chars(values, s), i = 0, c = 0;
    size_t *offsets = kin_values_alloc(values, (n_chars + 1) * sizeof *offsets);
    char *at = kin_values_alloc(values, 2 * s->len);
    if (!offsets || !at || !kin_values_charge(values, n_chars / 8)) return NULL;
    for (; i < s->len; i++)
        if (!continues(s->at[i])) offsets[c++] = i;
    offsets[c] = s->len;
    kin_string picked = {.at = at, .origins = (uint8_t *)at + s->len, .ascii = s->ascii};
    for (size_t k = 0; k < n; k++, begin += step) {
        kin_string part = kin_string_part(s, offsets[begin], offsets[begin + 1]);
        memcpy(at + picked.len, part.at, part.len);
        write_origins((uint8_t *)at + s->len + picked.len, &part);
        picked.len += part.len;
    }
    return kin_value_of_string(values, picked);
}

// ---- pieces

// True if the bytes of b directly follow those of a, with origins of the same kind.
static bool follows(const kin_string *a, const kin_string *b) {
    if (a->at + a->len != b->at) return false;
    return a->origins ? a->origins + a->len == b->origins : !b->origins && a->origin == b->origin;
}

void kin_pieces_add(kin_pieces *pieces, kin_string part) {
    kin_values *values = pieces->values;
    if (part.len == 0) return;
    if (part.len > KIN_VALUE_MAX_STRING - pieces->len) {
        kin_values_set_error(values, "the output would exceed 64 MiB");
        return;
    }
    if (!kin_values_charge(values, 1)) return;
    if (pieces->n > 0 && follows(&pieces->at[pieces->n - 1], &part)) {
        pieces->at[pieces->n - 1].len += part.len;
        pieces->at[pieces->n - 1].ascii &= part.ascii;
        pieces->len += part.len;
        return;
    }
    if (pieces->n == pieces->cap) {
        size_t cap = pieces->cap ? 2 * pieces->cap : 8;
        kin_string *at = kin_values_alloc(values, cap * sizeof *at);
        if (!at) return;
        if (pieces->n > 0) memcpy(at, pieces->at, pieces->n * sizeof *at);
        pieces->at = at;
        pieces->cap = cap;
    }
    pieces->at[pieces->n++] = part;
    pieces->len += part.len;
}

kin_value *kin_pieces_join(const kin_pieces *pieces) {
    kin_values *values = pieces->values;
    if (pieces->n == 1) return kin_value_of_string(values, pieces->at[0]);
    kin_string joined = {.at = "", .len = pieces->len, .ascii = true, .origin = KIN_ORIGIN_TEMPLATE};
    if (pieces->n > 0) {
        char *at = kin_values_alloc(values, 2 * joined.len);
        if (!at || !kin_values_charge_bytes(values, 2 * joined.len)) return NULL;
        uint8_t *origins = (uint8_t *)at + joined.len;
        joined.at = at;
        joined.origins = origins;
        for (size_t i = 0; i < pieces->n; i++) {
            const kin_string *piece = &pieces->at[i];
            memcpy(at, piece->at, piece->len);
            write_origins(origins, piece);
            joined.ascii &= piece->ascii;
            at += piece->len;
            origins += piece->len;
        }
    }
    return kin_value_of_string(values, joined);
}
