#include "pure/jinja/format.h"

#include <stdio.h>
#include <string.h>

// How one value is written.
typedef struct spec {
    kin_string fill;   // a character; empty: a space
    char align, sign;  // '<' '>' '^' '='; '+' or ' '; 0: none
    int width;         // 0: none
    int precision;     // -1: none
    char type;         // 's', 'd', 'f', ...; 0: by the value
    bool is_alternate; // '#'
} spec;

typedef struct reader {
    kin_state *state;
    const kin_string *format;
    size_t at;
    kin_pieces out;
} reader;

static char here(const reader *r) {
    return r->at < r->format->len ? r->format->at[r->at] : 0;
}

static bool skip(reader *r, char c) {
    bool is_here = r->at < r->format->len && r->format->at[r->at] == c;
    r->at += is_here;
    return is_here;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Reads a number of at most KIN_FORMAT_MAX_WIDTH. Returns false if it is larger.
static bool read_number(reader *r, int *out) {
    int n = 0;
    while (is_digit(here(r))) {
        n = n * 10 + (here(r) - '0');
        if (n > KIN_FORMAT_MAX_WIDTH) return kin_state_fail(r->state, "a width or precision is at most %d", KIN_FORMAT_MAX_WIDTH);
        r->at++;
    }
    *out = n;
    return true;
}

// ---- values

static void pad(reader *r, const spec *s, kin_string text, size_t n_signs) {
    static const kin_string space = {.at = " ", .len = 1, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true};
    const kin_string *fill = s->fill.len > 0 ? &s->fill : &space;
    size_t n = kin_string_n_chars(r->state->values, &text), room = (size_t)s->width > n ? (size_t)s->width - n : 0;
    size_t before = s->align == '>' || s->align == '=' ? room : s->align == '^' ? room / 2 : 0;
    if (s->align == '=' && n_signs > 0) {
        kin_pieces_add(&r->out, kin_string_part(&text, 0, n_signs));
        text = kin_string_part(&text, n_signs, text.len);
    }
    for (size_t i = 0; i < before; i++) kin_pieces_add(&r->out, *fill);
    kin_pieces_add(&r->out, text);
    for (size_t i = before; i < room; i++) kin_pieces_add(&r->out, *fill);
}

static bool put_text(reader *r, const spec *s, const kin_value *value) {
    const kin_value *text = kin_str_of(r->state, value);
    spec used = *s;
    if (!text) return false;
    kin_string part = text->s;
    if (s->precision >= 0) part = kin_string_part(&part, 0, kin_string_offset(r->state->values, &part, (size_t)s->precision));
    if (!used.align) used.align = '<';
    pad(r, &used, part, 0);
    return true;
}

// The text of a number is the template's, as that of str().
static bool put_digits(reader *r, const spec *s, const char *digits, bool is_negative) {
    char text[1400];
    spec used = *s;
    const char *sign = is_negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    int n = snprintf(text, sizeof text, "%s%s", sign, digits);
    if (!used.align) used.align = '>';
    char *bytes = kin_values_alloc(r->state->values, (size_t)n);
    if (!bytes) return false;
    memcpy(bytes, text, (size_t)n);
    pad(r, &used, (kin_string){.at = bytes, .len = (size_t)n, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true}, strlen(sign));
    return true;
}

static bool put_integer(reader *r, const spec *s, const kin_value *value) {
    char digits[64];
    if (!kin_value_is_number(value) || (s->type != 'd' && !kin_value_is_integer(value)))
        return kin_state_fail(r->state, "a %s cannot be formatted as a whole number", kin_value_type_name(value));
    bool is_float = value->kind == KIN_KIND_FLOAT;
    if (is_float && !(value->f > -9e18 && value->f < 9e18))
        return kin_state_fail(r->state, "a number is too large to be formatted");
    int64_t n = is_float ? (int64_t)value->f : kin_value_integer(value);
    uint64_t size = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    if (s->type == 'x')
        snprintf(digits, sizeof digits, "%s%llx", s->is_alternate ? "0x" : "", (unsigned long long)size);
    else if (s->type == 'X')
        snprintf(digits, sizeof digits, "%s%llX", s->is_alternate ? "0X" : "", (unsigned long long)size);
    else if (s->type == 'o')
        snprintf(digits, sizeof digits, "%s%llo", s->is_alternate ? "0o" : "", (unsigned long long)size);
    else
        snprintf(digits, sizeof digits, "%0*llu", s->precision > 20 ? 20 : s->precision, (unsigned long long)size);
    return put_digits(r, s, digits, n < 0);
}

static bool put_float(reader *r, const spec *s, const kin_value *value) {
    char digits[1360]; // 309 digits, the point, and 1000 more
    if (!kin_value_is_number(value))
        return kin_state_fail(r->state, "a %s cannot be formatted as a number", kin_value_type_name(value));
    double f = kin_value_number(value);
    bool is_negative = f < 0 || (f == 0 && 1 / f < 0);
    snprintf(digits, sizeof digits, "%.*f", s->precision < 0 ? 6 : s->precision, is_negative ? -f : f);
    return put_digits(r, s, digits, is_negative);
}

static bool put_value(reader *r, const spec *s, const kin_value *value) {
    switch (s->type) {
    case 's': return put_text(r, s, value);
    case 'd':
    case 'x':
    case 'X':
    case 'o': return put_integer(r, s, value);
    case 'f': return put_float(r, s, value);
    default: return kin_state_fail(r->state, "this conversion of a format is not supported");
    }
}

// ---- "%s" % value

static const kin_value *next_value(reader *r, const kin_value *values, size_t *i) {
    bool is_tuple = values->kind == KIN_KIND_TUPLE;
    if (*i >= (is_tuple ? values->items->n : 1)) return kin_state_fail(r->state, "not enough arguments for the format");
    return is_tuple ? values->items->at[(*i)++] : (++*i, values);
}

static const kin_value *named_value(reader *r, const kin_value *values) {
    size_t begin = ++r->at;
    while (r->at < r->format->len && here(r) != ')') r->at++;
    if (r->at == r->format->len) return kin_state_fail(r->state, "a format has a name without an end");
    kin_str name = {r->format->at + begin, r->at++ - begin};
    if (values->kind != KIN_KIND_DICT) return kin_state_fail(r->state, "a format with names needs a dict");
    const kin_value *value = kin_pairs_find_name(r->state->values, values->pairs, name.at, name.len);
    return value ? value : kin_state_fail(r->state, "the format's dict has no '%.*s'", KIN_SHOWN(name));
}

// Reads what follows "%", after a name in parentheses.
static bool read_percent_spec(reader *r, spec *s) {
    bool has_zero = false;
    *s = (spec){.precision = -1};
    for (;; r->at++) {
        char flag = here(r);
        if (flag == '-')
            s->align = '<';
        else if (flag == '+' || (flag == ' ' && s->sign != '+'))
            s->sign = flag;
        else if (flag == '0')
            has_zero = true;
        else if (flag == '#')
            s->is_alternate = true;
        else if (flag != ' ')
            break;
    }
    if (!read_number(r, &s->width) || (skip(r, '.') && !read_number(r, &s->precision))) return false;
    s->type = here(r);
    if (s->type == 'i' || s->type == 'u') s->type = 'd';
    if (s->type == 'F') s->type = 'f';
    if (r->at < r->format->len) r->at++;
    if (!s->align && s->type != 's' && has_zero) {
        s->align = '=';
        s->fill = (kin_string){.at = "0", .len = 1, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true};
    }
    if (!s->align) s->align = '>';
    return true;
}

const kin_value *kin_format_percent(kin_state *state, const kin_string *format, const kin_value *values) {
    reader r = {.state = state, .format = format, .out = {.values = state->values}};
    size_t i = 0;
    bool has_names = false;
    while (r.at < format->len) {
        size_t begin = r.at;
        spec s;
        while (r.at < format->len && here(&r) != '%') r.at++;
        kin_pieces_add(&r.out, kin_string_part(format, begin, r.at));
        if (!kin_values_charge(state->values, 1)) return NULL;
        if (!skip(&r, '%')) break;
        if (here(&r) == '%') {
            kin_pieces_add(&r.out, kin_string_part(format, r.at, r.at + 1));
            r.at++;
            continue;
        }
        const kin_value *value = here(&r) == '(' ? named_value(&r, values) : NULL;
        has_names |= value != NULL;
        if (state->failed || !read_percent_spec(&r, &s)) return NULL;
        if (!value) value = next_value(&r, values, &i);
        if (!value || !put_value(&r, &s, value)) return NULL;
    }
    bool is_used = values->kind == KIN_KIND_DICT || has_names || i >= (values->kind == KIN_KIND_TUPLE ? values->items->n : 1);
    if (!is_used) return kin_state_fail(state, "not all arguments of the format are used");
    return kin_pieces_join(&r.out);
}

// ---- "{}".format(value)

static bool is_alignment(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

// Reads what follows ':' in braces.
static bool read_brace_spec(reader *r, spec *s) {
    kin_string rest = kin_string_part(r->format, r->at, r->format->len);
    size_t n = kin_string_offset(r->state->values, &rest, 1);
    if (n < rest.len && is_alignment(rest.at[n])) {
        s->fill = kin_string_part(&rest, 0, n);
        s->align = rest.at[n];
        r->at += n + 1;
    } else if (is_alignment(here(r))) {
        s->align = r->format->at[r->at++];
    }
    if (here(r) == '+' || here(r) == '-' || here(r) == ' ') s->sign = r->format->at[r->at++];
    s->is_alternate = skip(r, '#');
    if (skip(r, '0') && !s->align) {
        s->align = '=';
        s->fill = (kin_string){.at = "0", .len = 1, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true};
    }
    if (!read_number(r, &s->width) || (skip(r, '.') && !read_number(r, &s->precision))) return false;
    if (here(r) != '}' && r->at < r->format->len) s->type = r->format->at[r->at++];
    return true;
}

static const kin_value *brace_value(reader *r, kin_str name, const kin_arguments *all, size_t *next) {
    size_t i = 0;
    bool is_number = name.len > 0;
    for (size_t k = 0; k < name.len; k++) {
        is_number = is_number && is_digit(name.at[k]) && k < 4;
        i = i * 10 + (size_t)(name.at[k] - '0') % 10;
    }
    if (name.len == 0) i = (*next)++;
    if (name.len == 0 || is_number)
        return i < all->n ? all->at[i] : kin_state_fail(r->state, "the format has no argument %zu", i);
    for (i = 0; i < all->n_named; i++) {
        kin_str given = all->named[i].name;
        if (given.len == name.len && memcmp(given.at, name.at, name.len) == 0) return all->named[i].value;
    }
    return kin_state_fail(r->state, "the format has no argument '%.*s'", KIN_SHOWN(name));
}

// Reads a field, after its '{'.
static bool put_field(reader *r, const kin_arguments *all, size_t *next) {
    spec s = {.precision = -1};
    size_t begin = r->at;
    while (r->at < r->format->len && !strchr("}:!.[{", here(r))) r->at++;
    kin_str name = {r->format->at + begin, r->at - begin};
    const kin_value *value = brace_value(r, name, all, next);
    if (!value || (skip(r, ':') && !read_brace_spec(r, &s))) return false;
    if (!skip(r, '}')) return kin_state_fail(r->state, "a format has a field that is not supported");
    if (!s.type) s.type = s.precision < 0 || !kin_value_is_number(value) ? 's' : 'f';
    if (s.type == 's' && value->kind == KIN_KIND_INT) s.type = 'd';
    if (s.type == 's' && !s.align && kin_value_is_number(value)) s.align = '>';
    return put_value(r, &s, value);
}

const kin_value *kin_format_braces(kin_state *state, const kin_string *format, const kin_arguments *all) {
    reader r = {.state = state, .format = format, .out = {.values = state->values}};
    size_t next = 0;
    while (r.at < format->len) {
        size_t begin = r.at;
        while (r.at < format->len && here(&r) != '{' && here(&r) != '}') r.at++;
        kin_pieces_add(&r.out, kin_string_part(format, begin, r.at));
        if (!kin_values_charge(state->values, 1)) return NULL;
        if (r.at == format->len) break;
        char brace = format->at[r.at++];
        if (here(&r) == brace) {
            kin_pieces_add(&r.out, kin_string_part(format, r.at, r.at + 1));
            r.at++;
        } else if (brace == '}') {
            return kin_state_fail(state, "a format has a single '}'");
        } else if (!put_field(&r, all, &next)) {
            return NULL;
        }
    }
    return kin_pieces_join(&r.out);
}
