#include "pure/jinja/words.h"

#include <string.h>

#include "pure/jinja/letters.h"
#include "pure/text/utf8.h"

enum { SHARP_S = 0xdf }; // its upper case is two letters, SS

static bool is_letter(uint32_t c) {
    return kin_upper_of(c) != c || kin_lower_of(c) != c || c == SHARP_S;
}

static bool begins_word(uint32_t before) {
    char c = (char)before;
    return kin_space_begins(&c, before < 0x80 ? 1 : 0) > 0 || (before < 0x80 && strchr("-({[<", c));
}

// True if the character becomes upper case.
static bool wants_upper(kin_casing casing, bool first, uint32_t before) {
    switch (casing) {
    case KIN_CASE_UPPER: return true;
    case KIN_CASE_LOWER: return false;
    case KIN_CASE_CAPITALIZE: return first;
    case KIN_CASE_TITLE: return first || !is_letter(before);
    default: return first || begins_word(before);
    }
}

kin_value *kin_string_case(kin_values *values, const kin_string *s, kin_casing casing) {
    char *at = kin_values_alloc(values, 2 * s->len); // no letter becomes longer
    if (!at || !kin_values_charge(values, s->len / 8)) return NULL;
    kin_string made = {.at = at, .origins = (uint8_t *)at + s->len, .ascii = s->ascii};
    uint32_t before = 0;
    for (size_t i = 0; i < s->len;) {
        int len = kin_utf8_len(s->at + i, s->len - i);
        uint32_t c = kin_utf8_get(s->at + i, len);
        bool upper = wants_upper(casing, i == 0, before);
        int n;
        if (upper && c == SHARP_S) {
            n = 2;
            memcpy(at + made.len, casing == KIN_CASE_UPPER ? "SS" : "Ss", 2);
        } else {
            n = kin_utf8_put(at + made.len, upper ? kin_upper_of(c) : kin_lower_of(c));
        }
        memset(at + s->len + made.len, kin_string_origin_at(s, i), (size_t)n);
        made.len += (size_t)n;
        i += (size_t)len;
        before = c;
    }
    return kin_value_of_string(values, made);
}

// An empty `old` matches before every character and at the end.
static void replace_nothing(kin_pieces *out, const kin_string *s, const kin_string *with, int64_t max) {
    size_t i = 0;
    for (; max != 0 && i <= s->len; max--) {
        kin_pieces_add(out, *with);
        if (i == s->len || kin_values_error(out->values)) return;
        kin_string rest = kin_string_part(s, i, s->len);
        size_t n = kin_string_offset(out->values, &rest, 1);
        kin_pieces_add(out, kin_string_part(s, i, i + n));
        i += n;
    }
    kin_pieces_add(out, kin_string_part(s, i, s->len));
}

kin_value *kin_string_replace(kin_values *values, const kin_string *s, const kin_string *old, const kin_string *with,
                              int64_t max) {
    kin_pieces out = {.values = values};
    size_t from = 0;
    ptrdiff_t found;
    if (old->len == 0) {
        replace_nothing(&out, s, with, max);
        return kin_pieces_join(&out);
    }
    while (max-- != 0 && (found = kin_string_find(values, s, old, from)) != KIN_NOT_FOUND && kin_values_charge(values, 1)) {
        kin_pieces_add(&out, kin_string_part(s, from, (size_t)found));
        kin_pieces_add(&out, *with);
        from = (size_t)found + old->len;
    }
    kin_pieces_add(&out, kin_string_part(s, from, s->len));
    return kin_pieces_join(&out);
}

// ---- splitting

typedef struct span {
    size_t begin, end;
} span;

// Reads the next part at or after *at, which moves past the separator. Returns false if there is none.
static bool next_part(kin_values *values, const kin_string *s, const kin_string *separator, size_t *at, span *part) {
    if (*at > s->len) return false;
    if (separator) {
        ptrdiff_t found = kin_string_find(values, s, separator, *at);
        *part = (span){*at, found == KIN_NOT_FOUND ? s->len : (size_t)found};
        *at = found == KIN_NOT_FOUND ? s->len + 1 : (size_t)found + separator->len;
        return true;
    }
    int n;
    size_t i = *at, begin = i;
    while ((n = kin_space_begins(s->at + i, s->len - i)) > 0) i += (size_t)n;
    part->begin = i;
    while (i < s->len && kin_space_begins(s->at + i, s->len - i) == 0) i++;
    part->end = i;
    *at = i == s->len ? s->len + 1 : i;
    if (!kin_values_charge(values, (i - begin) / 8)) return false;
    return part->end > part->begin;
}

static bool push_part(kin_values *values, kin_items *parts, const kin_string *s, span part) {
    return kin_values_charge(values, 1) &&
           kin_items_push(values, parts, kin_value_of_string(values, kin_string_part(s, part.begin, part.end)));
}

// Splits everywhere, then joins the first parts again so that max + 1 remain.
static bool split_right(kin_values *values, const kin_string *s, const kin_string *separator, int64_t max, kin_items *parts) {
    kin_items all = {0};
    if (!kin_string_split(values, s, separator, -1, false, &all)) return false;
    size_t n_together = max >= 0 && (size_t)max + 1 < all.n ? all.n - (size_t)max : 1;
    if (all.n == 0) return true;
    const kin_string *last = &all.at[n_together - 1]->s;
    span first = {n_together == 1 ? (size_t)(all.at[0]->s.at - s->at) : 0, (size_t)(last->at - s->at) + last->len};
    if (!push_part(values, parts, s, first)) return false;
    for (size_t i = n_together; i < all.n; i++)
        if (!kin_items_push(values, parts, all.at[i])) return false;
    return true;
}

bool kin_string_split(kin_values *values, const kin_string *s, const kin_string *separator, int64_t max, bool from_right,
                      kin_items *parts) {
    size_t at = 0;
    span part;
    kin_assert(!separator || separator->len > 0);
    if (from_right) return split_right(values, s, separator, max, parts);
    for (; max != 0 && next_part(values, s, separator, &at, &part); max--)
        if (!push_part(values, parts, s, part)) return false;
    if (max != 0 || at > s->len) return true;
    while (!separator && kin_space_begins(s->at + at, s->len - at) > 0) at += (size_t)kin_space_begins(s->at + at, s->len - at);
    return (!separator && at == s->len) || push_part(values, parts, s, (span){at, s->len});
}

// Returns the number of bytes of a line end at the beginning of at [n], as in str.splitlines; 0: none.
static size_t line_end(const char *at, size_t n) {
    if (n > 1 && at[0] == '\r' && at[1] == '\n') return 2;
    int len = kin_utf8_len(at, n);
    if (len <= 0) return 0;
    uint32_t c = kin_utf8_get(at, len);
    bool ends = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return ends ? (size_t)len : 0;
}

bool kin_string_lines(kin_values *values, const kin_string *s, bool keep_ends, kin_items *lines) {
    size_t begin = 0;
    if (!kin_values_charge(values, s->len / 8)) return false;
    for (size_t i = 0; i < s->len;) {
        size_t n = line_end(s->at + i, s->len - i);
        if (n > 0 && !push_part(values, lines, s, (span){begin, keep_ends ? i + n : i})) return false;
        i += n > 0 ? n : 1;
        if (n > 0) begin = i;
    }
    return begin == s->len || push_part(values, lines, s, (span){begin, s->len});
}
