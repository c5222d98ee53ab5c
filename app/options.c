#include "app/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "sys/cpu.h"

static const kin_option *find(kin_option_tables tables, const char *name, size_t len, char letter) {
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            bool hit = name ? strlen(o->name) == len && memcmp(o->name, name, len) == 0 : o->letter == letter;
            if (hit) return o;
        }
    }
    return NULL;
}

static int parse_number(const kin_option *o, const char *text, double *value, kin_err *err) {
    char *end;
    errno = 0;
    bool whole = o->kind != KIN_OPTION_FLOAT;
    *value = whole ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end == text || *end || errno || !(*value >= o->min && *value <= o->max)) {
        return kin_err_set(err, "--%s %s: must be a%s number from %.10g to %.10g", o->name, text, whole ? " whole" : "", o->min,
                           o->max);
    }
    return 0;
}

// Threads wait for each other in every operation: with more than can run at once a token takes minutes.
static int threads_here(const kin_option *o, double asked) {
    int most = kin_cpu_n_threads();
    if (asked <= most) return (int)asked;
    kin_log(KIN_LOG_WARN, "--%s %.0f: this machine runs %d at once, so %d are used", o->name, asked, most, most);
    return most;
}

static int set_value(const kin_option *o, const char *text, kin_err *err) {
    double number;
    char *end;
    switch (o->kind) {
    case KIN_OPTION_FLAG: *(bool *)o->value = strcmp(text, "0") != 0; return 0;
    case KIN_OPTION_STRING: *(const char **)o->value = text; return 0;
    case KIN_OPTION_SIZE: return kin_size_parse(text, o->value, err) == 0 ? 0 : kin_err_prefix(err, "--%s", o->name);
    case KIN_OPTION_U64:
        errno = 0;
        *(uint64_t *)o->value = strtoull(text, &end, 10);
        return isdigit((unsigned char)text[0]) && !*end && !errno
                   ? 0
                   : kin_err_set(err, "--%s %s: must be a whole number", o->name, text);
    case KIN_OPTION_INT:
        if (parse_number(o, text, &number, err) != 0) return KIN_FAIL;
        *(int *)o->value = (int)number;
        return 0;
    case KIN_OPTION_THREADS:
        if (parse_number(o, text, &number, err) != 0) return KIN_FAIL;
        *(int *)o->value = threads_here(o, number);
        return 0;
    case KIN_OPTION_FLOAT:
        if (parse_number(o, text, &number, err) != 0) return KIN_FAIL;
        *(float *)o->value = (float)number;
        return 0;
    case KIN_OPTION_END: break;
    }
    return kin_err_set(err, "--%s cannot be set", o->name);
}

// gpu-layers -> KIN_GPU_LAYERS
static const char *env_name(const kin_option *o, char *buf, size_t n) {
    snprintf(buf, n, "KIN_%s", o->name);
    for (char *p = buf; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return buf;
}

static int apply_environment(kin_option_tables tables, kin_err *err) {
    char name[64];
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            const char *text = getenv(env_name(o, name, sizeof name));
            if (text && text[0] && set_value(o, text, err) != 0) return kin_err_prefix(err, "environment variable %s", name);
        }
    }
    return 0;
}

int kin_options_parse(kin_option_tables tables, int argc, char **argv, const char **operand, kin_err *err) {
    if (apply_environment(tables, err) != 0) return KIN_FAIL;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || !word[1]) {
            if (!operand || *operand) return kin_err_set(err, "unexpected argument '%s'", word);
            *operand = word;
            continue;
        }
        // --name VALUE, --name=VALUE, -l VALUE
        bool is_long = word[1] == '-';
        const char *equals = is_long ? strchr(word, '=') : NULL;
        size_t len = equals ? (size_t)(equals - word) - 2 : strlen(word) - (is_long ? 2 : 1);
        const kin_option *o = is_long ? find(tables, word + 2, len, 0) : len == 1 ? find(tables, NULL, 0, word[1]) : NULL;
        if (!o) return kin_err_set(err, "unknown option '%s'", word);

        const char *text = equals ? equals + 1 : o->kind == KIN_OPTION_FLAG ? "1" : i + 1 < argc ? argv[++i] : NULL;
        if (!text) return kin_err_set(err, "--%s needs a value (%s)", o->name, o->arg);
        if (set_value(o, text, err) != 0) return KIN_FAIL;
    }
    return 0;
}

void kin_options_help(kin_option_tables tables) {
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            char left[64], letter[8] = "    ";
            if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
            snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
            printf("  %-26s %s\n", left, o->help);
        }
    }
}
