#include <stdbool.h>

#include "libc.h"
#include "web/host.h"

FILE *const stderr = NULL;

typedef struct sink {
    char *to;
    size_t n, used; // used: counts as if there were room
} sink;

typedef struct spec {
    bool zero;
    int width, precision; // precision -1: not given
} spec;

static void put(sink *s, char c) {
    if (s->used + 1 < s->n) s->to[s->used] = c;
    s->used++;
}

static void pad(sink *s, char c, int n) {
    for (; n > 0; n--) put(s, c);
}

static void put_text(sink *s, const spec *p, const char *text) {
    size_t n = 0, most = p->precision >= 0 ? (size_t)p->precision : SIZE_MAX;
    while (n < most && text[n]) n++;
    pad(s, ' ', p->width - (int)n);
    for (size_t i = 0; i < n; i++) put(s, text[i]);
}

static void put_number(sink *s, const spec *p, bool negative, uint64_t value, unsigned base) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[value % base];
    while (value /= base);
    int missing = p->width - n - negative;
    if (!p->zero) pad(s, ' ', missing);
    if (negative) put(s, '-');
    if (p->zero) pad(s, '0', missing);
    while (n) put(s, digits[--n]);
}

// Accurate to about 15 digits: for display only.
static void put_double(sink *s, const spec *p, bool general, double x) {
    int precision = p->precision >= 0 ? p->precision : 6;
    if (isnan(x) || isinf(x)) {
        put_text(s, &(spec){.precision = -1}, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    int exponent = 0;
    bool negative = x < 0;
    x = fabs(x);
    bool scientific = x >= 1e15 || (general && x != 0 && x < 1e-4);
    for (; scientific && x >= 10; exponent++) x /= 10;
    for (; scientific && x < 1; exponent--) x *= 10;
    uint64_t scale = 1;
    for (int i = 0; i < precision && i < 9; i++) scale *= 10;
    uint64_t whole = (uint64_t)x, part = (uint64_t)((x - (double)whole) * (double)scale + 0.5);
    whole += part / scale;
    part %= scale;
    int digits = precision < 9 ? precision : 9;
    for (; general && digits && part % 10 == 0; digits--) part /= 10;
    put_number(s, &(spec){.precision = -1}, negative, whole, 10);
    if (digits) {
        put(s, '.');
        put_number(s, &(spec){.zero = true, .width = digits}, false, part, 10);
    }
    if (!scientific) return;
    put(s, 'e');
    put_number(s, &(spec){.precision = -1}, exponent < 0, (uint64_t)(exponent < 0 ? -exponent : exponent), 10);
}

static int read_int(const char **at, va_list *args) {
    int value = 0;
    if (**at == '*') {
        ++*at;
        return va_arg(*args, int);
    }
    for (; **at >= '0' && **at <= '9'; ++*at) value = 10 * value + (**at - '0');
    return value;
}

static uint64_t next_integer(va_list *args, int longs, bool is_signed, bool *negative) {
    uint64_t value = longs > 1 ? va_arg(*args, unsigned long long) : va_arg(*args, unsigned);
    int64_t as_signed = longs > 1 ? (int64_t)value : (int32_t)value;
    *negative = is_signed && as_signed < 0;
    return *negative ? 0 - (uint64_t)as_signed : value;
}

// Formats one directive after its '%'. Returns the text after it.
static const char *directive(sink *s, const char *at, va_list *args) {
    spec p = {.precision = -1};
    int longs = 0;
    bool negative;
    for (; *at == '0' || *at == '-' || *at == '+' || *at == '#' || *at == ' '; at++) p.zero |= *at == '0';
    p.width = read_int(&at, args);
    if (*at == '.') {
        at++;
        p.precision = read_int(&at, args);
    }
    for (; *at == 'l' || *at == 'z' || *at == 'h' || *at == 'j'; at++) longs += *at == 'l' ? 1 : *at == 'j' ? 2 : 0;
    switch (*at) {
    case 'c': put(s, (char)va_arg(*args, int)); break;
    case 's': put_text(s, &p, va_arg(*args, const char *)); break;
    case 'f': put_double(s, &p, false, va_arg(*args, double)); break;
    case 'g': put_double(s, &p, true, va_arg(*args, double)); break;
    case 'd':
    case 'i':
    case 'u':
    case 'x': {
        uint64_t value = next_integer(args, longs, *at == 'd' || *at == 'i', &negative);
        put_number(s, &p, negative, value, *at == 'x' ? 16 : 10);
        break;
    }
    default: put(s, *at); // %%
    }
    return *at ? at + 1 : at;
}

int vsnprintf(char *to, size_t n, const char *fmt, va_list args) {
    sink s = {to, n, 0};
    va_list rest;
    va_copy(rest, args);
    while (*fmt) {
        if (*fmt == '%')
            fmt = directive(&s, fmt + 1, &rest);
        else
            put(&s, *fmt++);
    }
    va_end(rest);
    if (n) to[s.used < n ? s.used : n - 1] = '\0';
    return (int)s.used;
}

int snprintf(char *to, size_t n, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(to, n, fmt, args);
    va_end(args);
    return used;
}

int fprintf(FILE *file, const char *fmt, ...) {
    (void)file;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    kin_host_log(line, strlen(line));
    return used;
}

void abort(void) {
    __builtin_trap();
}
