// Filters: the functions after |.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/jinja/format.h"
#include "pure/jinja/text.h"
#include "pure/jinja/words.h"

#define FILTER(name)                                                                                                             \
    static const kin_value *name(kin_state *state, const kin_value *self, const kin_value **arg, const kin_arguments *all)
#define UNUSED (void)state, (void)self, (void)arg, (void)all

static bool truth_of(const kin_value *arg) {
    return arg && kin_value_truth(arg);
}

// ---- strings

static const kin_value *cased(kin_state *state, const kin_value *self, kin_casing casing) {
    const kin_value *text = kin_str_of(state, self);
    return text ? kin_string_case(state->values, &text->s, casing) : NULL;
}

FILTER(do_upper) {
    UNUSED;
    return cased(state, self, KIN_CASE_UPPER);
}

FILTER(do_lower) {
    UNUSED;
    return cased(state, self, KIN_CASE_LOWER);
}

FILTER(do_capitalize) {
    UNUSED;
    return cased(state, self, KIN_CASE_CAPITALIZE);
}

FILTER(do_title) {
    UNUSED;
    return cased(state, self, KIN_CASE_WORDS);
}

FILTER(do_string) {
    UNUSED;
    return kin_str_of(state, self);
}

FILTER(do_trim) {
    UNUSED;
    const kin_value *text = kin_str_of(state, self);
    const kin_string *chars = NULL;
    if (!text) return NULL;
    if (arg[0] && arg[0]->kind == KIN_KIND_STRING)
        chars = &arg[0]->s;
    else if (arg[0] && arg[0]->kind != KIN_KIND_NONE)
        return kin_state_fail(state, "trim needs a string of characters");
    return kin_value_of_string(state->values, kin_string_strip(state->values, &text->s, chars, KIN_SIDE_LEFT | KIN_SIDE_RIGHT));
}

FILTER(do_replace) {
    UNUSED;
    const kin_value *text = kin_str_of(state, self), *old = kin_str_of(state, arg[0]), *with = kin_str_of(state, arg[1]);
    if (!text || !old || !with) return NULL;
    int64_t max = arg[2] && kin_value_is_integer(arg[2]) ? kin_value_integer(arg[2]) : -1;
    return kin_string_replace(state->values, &text->s, &old->s, &with->s, max);
}

// Returns the indentation for an argument: that many spaces, or the string itself.
static const kin_value *indentation(kin_state *state, const kin_value *width) {
    static const kin_value space = {.kind = KIN_KIND_STRING,
                                    .s = {.at = " ", .len = 1, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true}};
    if (width->kind == KIN_KIND_STRING) return width;
    if (!kin_value_is_integer(width)) return kin_state_fail(state, "indent: the width must be an integer or a string");
    return kin_string_repeat(state->values, &space.s, kin_value_integer(width));
}

FILTER(do_indent) {
    UNUSED;
    static const kin_string newline = {.at = "\n", .len = 1, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true};
    static const kin_value four = {.kind = KIN_KIND_INT, .i = 4};
    const kin_value *indent = indentation(state, arg[0] ? arg[0] : &four);
    if (self->kind != KIN_KIND_STRING) return kin_state_fail(state, "indent needs a string");
    const kin_value *text = kin_string_concat(state->values, &self->s, &newline);
    kin_items lines = {0};
    kin_pieces out = {.values = state->values};
    if (!indent || !text || !kin_string_lines(state->values, &text->s, false, &lines)) return NULL;
    for (size_t i = 0; i < lines.n; i++) {
        bool indented = i == 0 ? truth_of(arg[1]) : lines.at[i]->s.len > 0 || truth_of(arg[2]);
        if (i > 0) kin_pieces_add(&out, newline);
        if (indented) kin_pieces_add(&out, indent->s);
        kin_pieces_add(&out, lines.at[i]->s);
    }
    return kin_pieces_join(&out);
}

static const kin_string comma = {.at = ",", .len = 1}, comma_space = {.at = ", ", .len = 2}, colon_space = {.at = ": ", .len = 2};

FILTER(do_tojson) {
    UNUSED;
    bool indented = arg[1] && arg[1]->kind != KIN_KIND_NONE;
    kin_json_format format = {.ensure_ascii = truth_of(arg[0]), .sort_keys = truth_of(arg[3]), .key_separator = &colon_space};
    format.item_separator = indented ? &comma : &comma_space;
    if (indented) {
        const kin_value *indent = indentation(state, arg[1]);
        if (!indent) return NULL;
        format.indent = &indent->s;
    }
    if (arg[2] && arg[2]->kind != KIN_KIND_NONE) {
        kin_items two;
        if (!kin_iterate(state, arg[2], &two)) return NULL;
        if (two.n != 2 || two.at[0]->kind != KIN_KIND_STRING || two.at[1]->kind != KIN_KIND_STRING)
            return kin_state_fail(state, "tojson needs two separators");
        format.item_separator = &two.at[0]->s;
        format.key_separator = &two.at[1]->s;
    }
    const kin_value *text = kin_value_json(state->values, self, &format);
    return text ? text
                : kin_state_fail(state, "tojson: this %s or a value in it cannot be written as JSON", kin_value_type_name(self));
}

// ---- numbers

// Parses a number without the white space around it; returns false if it is not a number.
static bool parse_float(kin_state *state, const kin_string *s, double *f) {
    char text[64];
    kin_string bare = kin_string_strip(state->values, s, NULL, KIN_SIDE_LEFT | KIN_SIDE_RIGHT);
    if (bare.len == 0 || bare.len >= sizeof text || memchr(bare.at, 'x', bare.len) || memchr(bare.at, 'X', bare.len))
        return false;
    memcpy(text, bare.at, bare.len);
    text[bare.len] = '\0';
    char *end;
    *f = strtod(text, &end);
    return end == text + bare.len;
}

static bool parse_integer(kin_state *state, const kin_string *s, int base, int64_t *i) {
    char text[64];
    kin_string bare = kin_string_strip(state->values, s, NULL, KIN_SIDE_LEFT | KIN_SIDE_RIGHT);
    if (bare.len == 0 || bare.len >= sizeof text) return false;
    memcpy(text, bare.at, bare.len);
    text[bare.len] = '\0';
    char *end;
    errno = 0;
    *i = strtoll(text, &end, base);
    return end == text + bare.len && errno == 0;
}

FILTER(do_float) {
    UNUSED;
    double f;
    if (self->kind == KIN_KIND_UNDEFINED) return kin_binary(state, '+', self, self); // fails with the name of the undefined value
    if (kin_value_is_number(self)) return kin_value_float(state->values, kin_value_number(self));
    if (self->kind == KIN_KIND_STRING && parse_float(state, &self->s, &f)) return kin_value_float(state->values, f);
    return arg[0] ? arg[0] : kin_value_float(state->values, 0);
}

FILTER(do_int) {
    UNUSED;
    double f = NAN;
    int64_t i, base = arg[1] && kin_value_is_integer(arg[1]) ? kin_value_integer(arg[1]) : 10;
    if (self->kind == KIN_KIND_UNDEFINED) return kin_binary(state, '+', self, self);
    if (kin_value_is_integer(self)) return kin_value_int(state->values, kin_value_integer(self));
    if (base < 2 || base > 36) return kin_state_fail(state, "int: the base must be 2 to 36");
    if (self->kind == KIN_KIND_STRING && parse_integer(state, &self->s, (int)base, &i)) return kin_value_int(state->values, i);
    bool number = self->kind == KIN_KIND_FLOAT || (self->kind == KIN_KIND_STRING && parse_float(state, &self->s, &f));
    if (self->kind == KIN_KIND_FLOAT) f = self->f;
    if (number && fabs(f) < 9e18) return kin_value_int(state->values, (int64_t)f);
    if (number && !isnan(f) && !isinf(f)) return kin_state_fail(state, "integer overflow (64 bits)");
    return arg[0] ? arg[0] : kin_value_int(state->values, 0);
}

FILTER(do_abs) {
    UNUSED;
    if (!kin_value_is_number(self)) return kin_state_fail(state, "abs needs a number, not a %s", kin_value_type_name(self));
    if (self->kind == KIN_KIND_FLOAT) return kin_value_float(state->values, fabs(self->f));
    kin_value minus_one = {.kind = KIN_KIND_INT, .i = kin_value_integer(self) < 0 ? -1 : 1};
    return kin_binary(state, '*', self, &minus_one);
}

FILTER(do_round) {
    UNUSED;
    int64_t precision = arg[0] && kin_value_is_integer(arg[0]) ? kin_value_integer(arg[0]) : 0;
    bool common = !arg[1] || (arg[1]->kind == KIN_KIND_STRING && kin_string_is(&arg[1]->s, "common"));
    bool up = !common && arg[1]->kind == KIN_KIND_STRING && kin_string_is(&arg[1]->s, "ceil");
    if (!common && !up && !(arg[1]->kind == KIN_KIND_STRING && kin_string_is(&arg[1]->s, "floor")))
        return kin_state_fail(state, "round: the method must be common, ceil or floor");
    if (!kin_value_is_number(self)) return kin_state_fail(state, "round needs a number, not a %s", kin_value_type_name(self));
    if (precision < 0 || precision > 17) return kin_state_fail(state, "round: the precision must be 0 to 17");
    if (common && kin_value_is_integer(self)) return kin_value_int(state->values, kin_value_integer(self));
    double f = kin_value_number(self), scale = pow(10, (double)precision);
    if (!common) return kin_value_float(state->values, (up ? ceil(f * scale) : floor(f * scale)) / scale);
    char text[352]; // the largest double has 309 digits
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return kin_value_float(state->values, strtod(text, NULL));
}

// ---- any value

FILTER(do_default) {
    UNUSED;
    bool missing = self->kind == KIN_KIND_UNDEFINED || (truth_of(arg[1]) && !kin_value_truth(self));
    return !missing ? self : arg[0] ? arg[0] : &kin_the_empty_string;
}

FILTER(do_length) {
    UNUSED;
    switch (self->kind) {
    case KIN_KIND_STRING: return kin_value_int(state->values, (int64_t)kin_string_n_chars(state->values, &self->s));
    case KIN_KIND_UNDEFINED: return kin_value_int(state->values, 0);
    case KIN_KIND_DICT: return kin_value_int(state->values, (int64_t)self->pairs->n);
    case KIN_KIND_LOOP: return kin_value_int(state->values, (int64_t)self->loop->items->n);
    case KIN_KIND_LIST:
    case KIN_KIND_TUPLE:
    case KIN_KIND_RANGE:
    case KIN_KIND_VIEW: return kin_value_int(state->values, (int64_t)self->items->n);
    default: return kin_state_fail(state, "a %s has no length", kin_value_type_name(self));
    }
}

// Named arguments are a dict for %(name)s.
FILTER(do_format) {
    (void)arg;
    const kin_value *text = kin_str_of(state, self);
    if (!text) return NULL;
    if (all->n > 0 && all->n_named > 0) return kin_state_fail(state, "format takes values or names, not both");
    kin_items items = {.at = all->at, .n = all->n};
    if (all->n_named == 0) return kin_format_percent(state, &text->s, kin_value_of_items(state->values, KIN_KIND_TUPLE, items));
    kin_value *dict = kin_value_dict(state->values);
    for (size_t i = 0; dict && i < all->n_named; i++)
        kin_value_put(state->values, dict, all->named[i].name.at, all->named[i].name.len, (kin_value *)all->named[i].value);
    return dict && !kin_values_error(state->values) ? kin_format_percent(state, &text->s, dict) : NULL;
}

static const kin_function filters[] = {
    {"abs", "", 0, do_abs},
    {"capitalize", "", 0, do_capitalize},
    {"count", "", 0, do_length},
    {"d", "default_value boolean ", 0, do_default},
    {"default", "default_value boolean ", 0, do_default},
    {"float", "default ", 0, do_float},
    {"format", NULL, 0, do_format},
    {"indent", "width first blank ", 0, do_indent},
    {"int", "default base ", 0, do_int},
    {"length", "", 0, do_length},
    {"lower", "", 0, do_lower},
    {"replace", "old new count ", 2, do_replace},
    {"round", "precision method ", 0, do_round},
    {"safe", "", 0, do_string},
    {"string", "", 0, do_string},
    {"title", "", 0, do_title},
    {"tojson", "ensure_ascii indent separators sort_keys ", 0, do_tojson},
    {"trim", "chars ", 0, do_trim},
    {"upper", "", 0, do_upper},
    {NULL, NULL, 0, NULL},
};

const kin_function *kin_filter_find(kin_str name) {
    const kin_function *row = kin_function_find(filters, name);
    return row ? row : kin_function_find(kin_list_filters, name);
}
