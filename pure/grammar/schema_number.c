#include "pure/grammar/schema_number.h"

#include <stdint.h>
#include <string.h>

enum { MAX_SIGNIFICANT = 15, MAX_FRACTION = 6, MAX_OPEN = 15 };

// ---- decimals

int kin_decimal_parse(kin_decimal *out, kin_str number) {
    char digits[2 * KIN_DECIMAL_MAX_DIGITS + 1];
    int n = 0, point = -1, exponent = 0, sign = 1;
    size_t i = 0;
    *out = (kin_decimal){.negative = number.len > 0 && number.at[0] == '-'};
    for (i = out->negative; i < number.len && number.at[i] != 'e' && number.at[i] != 'E'; i++) {
        if (number.at[i] == '.')
            point = n;
        else if (n == 2 * KIN_DECIMAL_MAX_DIGITS)
            return KIN_FAIL;
        else
            digits[n++] = number.at[i];
    }
    if (point < 0) point = n;
    for (i++; i < number.len; i++) {
        if (number.at[i] == '-') sign = -1;
        if (number.at[i] >= '0' && number.at[i] <= '9') exponent = exponent * 10 + (number.at[i] - '0');
        if (exponent > 1000) return KIN_FAIL;
    }
    point += sign * exponent;
    int first = 0, last = n;
    while (first < n && digits[first] == '0') first++;
    while (last > first && digits[last - 1] == '0') last--;
    if (first == last) return out->negative = false, 0;
    if (point - first > KIN_DECIMAL_MAX_DIGITS || last - point > KIN_DECIMAL_MAX_DIGITS) return KIN_FAIL;
    for (int k = first; k < point; k++) out->integer[out->n_int++] = k < last ? digits[k] : '0';
    for (int k = point; k < last; k++) out->fraction[out->n_frac++] = k >= first ? digits[k] : '0';
    return 0;
}

static int compare_size(const kin_decimal *a, const kin_decimal *b) {
    if (a->n_int != b->n_int) return a->n_int < b->n_int ? -1 : 1;
    int order = memcmp(a->integer, b->integer, (size_t)a->n_int);
    int n = a->n_frac < b->n_frac ? a->n_frac : b->n_frac;
    if (order == 0) order = memcmp(a->fraction, b->fraction, (size_t)n);
    return order != 0 ? order : a->n_frac - b->n_frac;
}

int kin_decimal_compare(const kin_decimal *a, const kin_decimal *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

bool kin_decimal_is_multiple(const kin_decimal *number, const kin_decimal *of) {
    uint64_t divisor = 0, rest = 0;
    int n_frac = number->n_frac > of->n_frac ? number->n_frac : of->n_frac;
    if (of->n_int + n_frac > 18) return false;
    for (int i = 0; i < of->n_int; i++) divisor = divisor * 10 + (uint64_t)(of->integer[i] - '0');
    for (int i = 0; i < n_frac; i++) divisor = divisor * 10 + (uint64_t)(i < of->n_frac ? of->fraction[i] - '0' : 0);
    for (int i = 0; i < number->n_int; i++) rest = (rest * 10 + (uint64_t)(number->integer[i] - '0')) % divisor;
    for (int i = 0; i < n_frac; i++)
        rest = (rest * 10 + (uint64_t)(i < number->n_frac ? number->fraction[i] - '0' : 0)) % divisor;
    return rest == 0;
}

// ---- ranges

void kin_number_range_min(kin_number_range *range, const kin_decimal *min, bool exclusive) {
    int order = range->has_min ? kin_decimal_compare(min, &range->min) : 1;
    if (order > 0) range->min = *min;
    if (order >= 0) range->above_min = exclusive || (order == 0 && range->above_min);
    range->has_min = true;
}

void kin_number_range_max(kin_number_range *range, const kin_decimal *max, bool exclusive) {
    int order = range->has_max ? kin_decimal_compare(max, &range->max) : -1;
    if (order < 0) range->max = *max;
    if (order <= 0) range->below_max = exclusive || (order == 0 && range->below_max);
    range->has_max = true;
}

static bool is_empty(const kin_number_range *range) {
    if (!range->has_min || !range->has_max) return false;
    int order = kin_decimal_compare(&range->min, &range->max);
    return order > 0 || (order == 0 && (range->above_min || range->below_max));
}

bool kin_number_range_overlap(const kin_number_range *a, const kin_number_range *b) {
    kin_number_range both = *a;
    if (b->has_min) kin_number_range_min(&both, &b->min, b->above_min);
    if (b->has_max) kin_number_range_max(&both, &b->max, b->below_max);
    return !is_empty(&both);
}

bool kin_number_range_has(const kin_number_range *range, const kin_decimal *number) {
    kin_number_range one = {.has_min = true, .has_max = true, .min = *number, .max = *number};
    return kin_number_range_overlap(range, &one);
}

// ---- unsigned integers, as digits

typedef struct digits {
    int n;
    char at[KIN_DECIMAL_MAX_DIGITS + 2];
} digits;

static void add_one(digits *d) {
    int i = d->n - 1;
    while (i >= 0 && d->at[i] == '9') d->at[i--] = '0';
    if (i >= 0) {
        d->at[i]++;
        return;
    }
    memmove(d->at + 1, d->at, (size_t)d->n++);
    d->at[0] = '1';
}

// Requires a number other than 0.
static void subtract_one(digits *d) {
    int i = d->n - 1;
    while (d->at[i] == '0') d->at[i--] = '9';
    if (--d->at[i] != '0' || i > 0 || d->n == 1) return;
    memmove(d->at, d->at + 1, (size_t)--d->n);
}

static bool is_less(const digits *a, const digits *b) {
    return a->n != b->n ? a->n < b->n : memcmp(a->at, b->at, (size_t)a->n) < 0;
}

static digits integer_of(const kin_decimal *decimal) {
    digits d = {.n = decimal->n_int};
    memcpy(d.at, decimal->integer, (size_t)d.n);
    if (d.n == 0) d = (digits){.n = 1, .at = "0"};
    return d;
}

static void put_class(kin_text_buffer *gbnf, char lo, char hi) {
    kin_text_print(gbnf, lo == hi ? "\"%c\"" : "[%c-%c]", lo, hi);
}

static void put_any(kin_text_buffer *gbnf, int min, int max) {
    if (max > 0) kin_text_print(gbnf, " [0-9]{%d,%d}", min, max);
}

static void put_same_length(kin_text_buffer *gbnf, const char *lo, const char *hi, int n);

// Writes one digit of lo or hi, then the rest of that bound; the other bound is all zeros or all nines.
static void put_one_bound(kin_text_buffer *gbnf, char digit, const char *rest, int n, bool is_lower) {
    char other[KIN_DECIMAL_MAX_DIGITS + 2];
    memset(other, is_lower ? '9' : '0', (size_t)n);
    kin_text_print(gbnf, "\"%c\" ", digit);
    put_same_length(gbnf, is_lower ? rest : other, is_lower ? other : rest, n);
}

static bool is_all(const char *at, int n, char c) {
    while (n > 0 && *at == c) at++, n--;
    return n == 0;
}

// Writes the numbers of n digits from lo to hi. The recursion depth is the number of digits.
static void put_same_length(kin_text_buffer *gbnf, const char *lo, const char *hi, int n) {
    if (is_all(lo, n, '0') && is_all(hi, n, '9')) {
        put_any(gbnf, n, n);
        return;
    }
    if (lo[0] == hi[0]) {
        kin_text_print(gbnf, "\"%c\" ", lo[0]);
        put_same_length(gbnf, lo + 1, hi + 1, n - 1);
        return;
    }
    bool cut_lo = !is_all(lo + 1, n - 1, '0'), cut_hi = !is_all(hi + 1, n - 1, '9');
    char first = (char)(lo[0] + cut_lo), last = (char)(hi[0] - cut_hi);
    kin_text_print(gbnf, "(");
    if (cut_lo) put_one_bound(gbnf, lo[0], lo + 1, n - 1, true);
    if (cut_lo && (first <= last || cut_hi)) kin_text_print(gbnf, " | ");
    if (first <= last) {
        put_class(gbnf, first, last);
        put_any(gbnf, n - 1, n - 1);
    }
    if (cut_hi && first <= last) kin_text_print(gbnf, " | ");
    if (cut_hi) put_one_bound(gbnf, hi[0], hi + 1, n - 1, false);
    kin_text_print(gbnf, ")");
}

// Writes the integers from lo to hi, or from lo up to MAX_OPEN digits or more if hi is NULL.
static void put_integers(kin_text_buffer *gbnf, const digits *lo, const digits *hi) {
    int n_max = hi ? hi->n : lo->n < MAX_OPEN ? MAX_OPEN : lo->n + 1;
    char least[KIN_DECIMAL_MAX_DIGITS + 2], most[KIN_DECIMAL_MAX_DIGITS + 2];
    memset(least, '0', sizeof least);
    memset(most, '9', sizeof most);
    least[0] = '1';
    kin_text_print(gbnf, "(");
    put_same_length(gbnf, lo->at, hi && hi->n == lo->n ? hi->at : most, lo->n);
    int n_between = n_max - (hi ? 1 : 0);
    if (n_between > lo->n) {
        kin_text_print(gbnf, " | [1-9]");
        put_any(gbnf, lo->n, n_between - 1);
    }
    if (hi && hi->n > lo->n) {
        kin_text_print(gbnf, " | ");
        put_same_length(gbnf, least, hi->at, hi->n);
    }
    kin_text_print(gbnf, ")");
}

// ---- unsigned numbers: min <= x <= max, where max may be absent

typedef struct span {
    const kin_decimal *min, *max;
    bool above_min, below_max, has_max;
    int n_fraction; // unconstrained digits after the point
} span;

static void put_integer_span(const span *s, kin_text_buffer *gbnf) {
    digits lo = integer_of(s->min), hi = {0};
    if (s->min->n_frac > 0 || s->above_min) add_one(&lo);
    if (!s->has_max) {
        put_integers(gbnf, &lo, NULL);
        return;
    }
    hi = integer_of(s->max);
    bool is_none = hi.at[0] == '0' && s->below_max && s->max->n_frac == 0;
    if (!is_none && s->below_max && s->max->n_frac == 0) subtract_one(&hi);
    if (is_none || is_less(&hi, &lo))
        kin_text_print(gbnf, "[]");
    else
        put_integers(gbnf, &lo, &hi);
}

// True if the fraction may end before digit i, given that the digits so far are those of min (at_min) or max (at_max).
static bool may_end(const span *s, int i, bool at_min, bool at_max) {
    bool is_enough = !at_min || (i >= s->min->n_frac && !s->above_min);
    bool is_not_too_much = !at_max || i < s->max->n_frac || !s->below_max;
    return is_enough && is_not_too_much;
}

static void put_fraction(const span *s, kin_text_buffer *gbnf, int i, bool at_min, bool at_max);

static void put_fraction_after(const span *s, kin_text_buffer *gbnf, char digit, int i, bool at_min, bool at_max) {
    kin_text_print(gbnf, "\"%c\"", digit);
    bool ends = may_end(s, i, at_min, at_max);
    kin_text_print(gbnf, " (");
    put_fraction(s, gbnf, i, at_min, at_max);
    kin_text_print(gbnf, ends ? ")?" : ")");
}

// Writes at least one more digit, from digit i on. The recursion depth is the number of digits of the bounds.
static void put_fraction(const span *s, kin_text_buffer *gbnf, int i, bool at_min, bool at_max) {
    if (at_min && i >= s->min->n_frac && !s->above_min) at_min = false;
    if (at_max && i >= s->max->n_frac) {
        kin_text_print(gbnf, "[]"); // only zeros could follow
    } else if (at_min && !at_max && i >= s->min->n_frac) {
        kin_text_print(gbnf, "[0-9]{0,%d} [1-9]", s->n_fraction);
    } else if (!at_min && !at_max) {
        kin_text_print(gbnf, "[0-9]{1,%d}", s->n_fraction + 1);
    } else {
        char lo = at_min && i < s->min->n_frac ? s->min->fraction[i] : '0', hi = at_max ? s->max->fraction[i] : '9';
        char first = (char)(lo + at_min), last = (char)(hi - at_max);
        if (at_min && at_max && lo == hi) {
            put_fraction_after(s, gbnf, lo, i + 1, true, true);
            return;
        }
        kin_text_print(gbnf, "([]"); // followed by the alternatives
        if (at_min && lo <= hi) {
            kin_text_print(gbnf, " | ");
            put_fraction_after(s, gbnf, lo, i + 1, true, false);
        }
        if (first <= last) {
            kin_text_print(gbnf, " | ");
            put_class(gbnf, first, last);
            put_any(gbnf, 0, s->n_fraction);
        }
        if (at_max && lo <= hi) {
            kin_text_print(gbnf, " | ");
            put_fraction_after(s, gbnf, hi, i + 1, false, true);
        }
        kin_text_print(gbnf, ")");
    }
}

// Writes the fraction after an integer part that equals that of min, of max, or of neither.
static void put_point(const span *s, kin_text_buffer *gbnf, bool at_min, bool at_max) {
    bool ends = may_end(s, 0, at_min, at_max);
    kin_text_print(gbnf, " (\".\" (");
    put_fraction(s, gbnf, 0, at_min, at_max);
    kin_text_print(gbnf, ends ? "))?" : "))");
}

static void put_real_span(const span *s, kin_text_buffer *gbnf) {
    digits lo = integer_of(s->min), hi = s->has_max ? integer_of(s->max) : lo;
    bool is_same = s->has_max && !is_less(&lo, &hi);
    kin_text_print(gbnf, "(\"%.*s\"", lo.n, lo.at);
    put_point(s, gbnf, true, is_same);
    if (s->has_max && !is_same) {
        kin_text_print(gbnf, " | \"%.*s\"", hi.n, hi.at);
        put_point(s, gbnf, false, true);
        subtract_one(&hi);
    }
    add_one(&lo);
    if (!s->has_max || !is_less(&hi, &lo)) {
        kin_text_print(gbnf, " | ");
        put_integers(gbnf, &lo, s->has_max ? &hi : NULL);
        put_point(s, gbnf, false, false);
    }
    kin_text_print(gbnf, ")");
}

// ---- signed numbers

static int larger(int a, int b) {
    return a > b ? a : b;
}

static void put_span(const span *s, bool integer, kin_text_buffer *gbnf) {
    if (integer)
        put_integer_span(s, gbnf);
    else
        put_real_span(s, gbnf);
}

void kin_number_range_put(const kin_number_range *range, bool integer, kin_text_buffer *gbnf) {
    static const kin_decimal zero = {0};
    const kin_decimal *min = range->has_min ? &range->min : NULL, *max = range->has_max ? &range->max : NULL;
    if (is_empty(range)) {
        kin_text_print(gbnf, "[]");
        return;
    }
    int n_most = larger(min ? min->n_int : 0, max ? max->n_int : 0) + larger(min ? min->n_frac : 0, max ? max->n_frac : 0);
    if (n_most >= MAX_SIGNIFICANT) integer = true;
    int n_free = MAX_SIGNIFICANT - n_most < MAX_FRACTION ? MAX_SIGNIFICANT - n_most : MAX_FRACTION;
    kin_text_print(gbnf, "([]"); // followed by the alternatives
    if (!min || min->negative) { // the absolute values of negative numbers
        bool crosses = !max || !max->negative;
        span s = {crosses ? &zero : max, min, crosses || range->below_max, range->above_min, min != NULL, n_free};
        kin_text_print(gbnf, " | \"-\" ");
        put_span(&s, integer, gbnf);
    }
    if (!max || !max->negative) {
        bool crosses = !min || min->negative;
        span s = {crosses ? &zero : min, max, !crosses && range->above_min, range->below_max, max != NULL, n_free};
        kin_text_print(gbnf, " | ");
        put_span(&s, integer, gbnf);
    }
    kin_text_print(gbnf, ")");
}
