#include "app/options.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app/suggest.h"
#include "base/log.h"
#include "base/units.h"
#include "sys/cpu.h"

enum { HELP_COLUMN = 26 };

// *needs: the row that names the required flag, or NULL.
static const kin_option *find_option(kin_option_tables tables, const char *name, size_t len, char letter,
                                     const kin_option **needs) {
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        *needs = NULL;
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            if (o->kind == KIN_OPTION_NEEDS) {
                *needs = o;
                continue;
            }
            bool hit = name ? strlen(o->name) == len && memcmp(o->name, name, len) == 0 : o->letter == letter;
            if (hit) return o;
        }
    }
    return NULL;
}

int kin_option_flag(const char *text, bool *value, kin_err *err) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *value = i % 2 == 1;
        return 0;
    }
    return kin_err_set(err, "'%s': must be 1 or 0", text);
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
    kin_log(KIN_LOG_WARN, "--%s %.0f: this machine has only %d hardware thread%s; using %d", o->name, asked, most,
            most == 1 ? "" : "s", most);
    return most;
}

// ---- strings with a restricted set of values

// True if the text is one of the words in `arg`. *listed: these words, for an error message.
static bool is_choice(const char *arg, const char *text, char *listed, size_t size) {
    size_t used = 0;
    bool fits = false;
    listed[0] = '\0';
    for (const char *at = arg; *at;) {
        size_t n = strcspn(at, "|");
        bool is_last = at[n] == '\0', is_number = n == 1 && *at == 'N', is_word = islower((unsigned char)*at);
        fits |= is_word && strlen(text) == n && memcmp(at, text, n) == 0;
        fits |= is_number && text[0] && !text[strspn(text, "0123456789")];
        fits |= !is_word && !is_number && text[0];
        const char *before = at == arg ? "" : is_last ? " or " : ", ", *a = is_word ? "" : "a ";
        used += (size_t)snprintf(listed + used, size - used, "%s%s%.*s", before, a, is_number ? 6 : (int)n,
                                 is_number ? "number" : at);
        if (used >= size) used = size - 1;
        at += n + !is_last;
    }
    return fits;
}

static int check_string(const kin_option *o, const char *text, kin_err *err) {
    char listed[256];
    if (strchr(o->arg, '|'))
        return is_choice(o->arg, text, listed, sizeof listed) ? 0
                                                              : kin_err_set(err, "--%s %s: must be %s", o->name, text, listed);
    return text[0] || strcmp(o->arg, "TEXT") == 0 ? 0 : kin_err_set(err, "--%s: the value is empty", o->name);
}

static int check_address(const kin_option *o, const char *text, kin_err *err) {
    char address[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    snprintf(address, sizeof address, "%.*s", (int)strcspn(text, "%"), text); // without the zone in fe80::1%eth0
    if (inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1) return 0;
    return kin_err_set(err, "--%s %s: must be a numeric address such as 192.168.1.5 or ::1", o->name, text);
}

static int set_value(const kin_option *o, const char *text, kin_err *err) {
    double number;
    char *end;
    switch (o->kind) {
    case KIN_OPTION_FLAG: return kin_option_flag(text, o->value, err) == 0 ? 0 : kin_err_prefix(err, "--%s", o->name);
    case KIN_OPTION_STRING:
    case KIN_OPTION_ADDRESS:
        if ((o->kind == KIN_OPTION_STRING ? check_string : check_address)(o, text, err) != 0) return KIN_FAIL;
        *(const char **)o->value = text;
        return 0;
    case KIN_OPTION_SIZE: return kin_size_parse(text, o->value, err) == 0 ? 0 : kin_err_prefix(err, "--%s", o->name);
    case KIN_OPTION_U64:
        errno = 0;
        // -1 becomes the largest value: random seed, as in llama.cpp's programs.
        *(uint64_t *)o->value = strtoull(text, &end, 10);
        return strcmp(text, "-1") == 0 || (isdigit((unsigned char)text[0]) && !*end && !errno)
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
    case KIN_OPTION_NAME:
    case KIN_OPTION_NEEDS:
    case KIN_OPTION_END: break;
    }
    return kin_err_set(err, "--%s cannot be set", o->name);
}

// ---- values from outside the command line

static const kin_option_preset *presets; // [n_presets]
static int n_presets;

void kin_options_preset(const kin_option_preset *p, int n) {
    presets = p;
    n_presets = n;
}

static bool is_option(const kin_option *o) {
    return o->kind != KIN_OPTION_NEEDS && o->kind != KIN_OPTION_NAME;
}

bool kin_options_have(kin_option_tables tables, const char *name) {
    const kin_option *needs, *o = find_option(tables, name, strlen(name), 0, &needs);
    return o && is_option(o);
}

const char *kin_options_variable(const char *name, char *buf, size_t n) {
    snprintf(buf, n, "KIN_%s", name);
    for (char *p = buf; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return buf;
}

static bool is_from_outside(const char *name, const char *value, bool counts_own) {
    char variable[64];
    if (value == getenv(kin_options_variable(name, variable, sizeof variable))) return true;
    for (int i = 0; i < n_presets; i++)
        if (presets[i].value == value && strcmp(presets[i].name, name) == 0) return counts_own || !presets[i].is_own;
    return false;
}

bool kin_options_is_preset(const char *name, const char *value) {
    return is_from_outside(name, value, true);
}

bool kin_options_is_for_all(const char *name, const char *value) {
    return is_from_outside(name, value, false);
}

int kin_options_check(kin_option_tables tables, const char *name, const char *text, kin_err *err) {
    union {
        bool flag;
        int number;
        float real;
        uint64_t large;
        const char *text;
    } unused;
    const kin_option *needs, *found = find_option(tables, name, strlen(name), 0, &needs);
    if (!found || !is_option(found)) return kin_err_set(err, "unknown option '%s'", name);
    if (!text && found->kind != KIN_OPTION_FLAG) return kin_err_set(err, "--%s needs a value (%s)", name, found->arg);
    kin_option o = *found;
    o.value = &unused;
    if (o.kind == KIN_OPTION_THREADS) o.kind = KIN_OPTION_INT; // their number is reduced where it is used
    return set_value(&o, text ? text : "1", err);
}

static int apply_presets(kin_option_tables tables, kin_err *err) {
    for (int i = 0; i < n_presets; i++) {
        const kin_option *needs, *o = find_option(tables, presets[i].name, strlen(presets[i].name), 0, &needs);
        if (o && is_option(o) && set_value(o, presets[i].value, err) != 0 && presets[i].is_own)
            return kin_err_prefix(err, "%s:%d", presets[i].file, presets[i].line);
    }
    return 0;
}

static int apply_environment(kin_option_tables tables, kin_err *err) {
    char name[64];
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            const char *text = is_option(o) ? getenv(kin_options_variable(o->name, name, sizeof name)) : NULL;
            if (text && text[0] && set_value(o, text, err) != 0) return kin_err_prefix(err, "environment variable %s", name);
        }
    }
    return 0;
}

// An option on the command line.
typedef struct given {
    const kin_option *option; // NULL: the word is not an option
    const kin_option *needs;  // NULL: no flag required
    const char *text;         // its value
} given;

static int fail_unknown(kin_option_tables tables, const char *word, size_t len, kin_err *err) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)len, word + 2);
    kin_suggestion s = {.word = name};
    for (int t = 0; t < KIN_MAX_TABLES && tables[t] && word[1] == '-'; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) kin_suggest(&s, o->name);
    }
    return s.best ? kin_err_set(err, "unknown option '%s'; did you mean --%s?", word, s.best)
                  : kin_err_set(err, "unknown option '%s'", word);
}

// *len: of the name in a word that begins with '-'.
static const kin_option *find_by_word(kin_option_tables tables, const char *word, size_t *len, const kin_option **needs) {
    bool is_long = word[1] == '-';
    *len = is_long ? strcspn(word + 2, "=") : strlen(word + 1);
    if (is_long) return find_option(tables, word + 2, *len, 0, needs);
    if (*len == 1) return find_option(tables, NULL, 0, word[1], needs);
    return strcmp(word, "-hf") == 0 ? find_option(tables, "hf", 2, 0, needs) : NULL; // as llama.cpp's programs write it
}

const kin_option *kin_options_find(kin_option_tables tables, const char *word) {
    const kin_option *needs;
    size_t len;
    return word[0] == '-' && word[1] ? find_by_word(tables, word, &len, &needs) : NULL;
}

// Parses argv[*i]; moves *i past it and its value: --name VALUE, --name=VALUE, -l VALUE.
static int next_word(kin_option_tables tables, int argc, char **argv, int *i, given *g, kin_err *err) {
    const char *word = argv[(*i)++];
    size_t len;
    *g = (given){0};
    if (word[0] != '-' || !word[1]) return 0;
    g->option = find_by_word(tables, word, &len, &g->needs);
    const char *equals = word[1] == '-' && word[2 + len] ? word + 2 + len : NULL;
    if (!g->option) return fail_unknown(tables, word, len, err);
    g->text = equals ? equals + 1 : g->option->kind == KIN_OPTION_FLAG ? "1" : *i < argc ? argv[(*i)++] : NULL;
    return g->text ? 0 : kin_err_set(err, "--%s needs a value (%s)", g->option->name, g->option->arg);
}

// A required flag may follow the option that needs it, so all words are checked again.
static int check_needs(kin_option_tables tables, int argc, char **argv, kin_err *err) {
    given g;
    for (int i = 0; i < argc;) {
        if (next_word(tables, argc, argv, &i, &g, err) != 0) return KIN_FAIL;
        if (g.option && g.needs && !*(const bool *)g.needs->value)
            return kin_err_set(err, "--%s has no effect without --%s", g.option->name, g.needs->name);
    }
    return 0;
}

static bool is_given(kin_option_tables tables, int argc, char **argv, const char *name) {
    given g;
    kin_err err;
    for (int i = 0; i < argc && next_word(tables, argc, argv, &i, &g, &err) == 0;)
        if (g.option && strcmp(g.option->name, name) == 0) return true;
    return false;
}

bool kin_options_gives_way(kin_option_tables tables, int argc, char **argv, const char *name, const char *other) {
    return is_given(tables, argc, argv, other) && !is_given(tables, argc, argv, name);
}

int kin_options_parse(kin_option_tables tables, int argc, char **argv, const char **operand, kin_err *err) {
    if (apply_presets(tables, err) != 0 || apply_environment(tables, err) != 0) return KIN_FAIL;
    for (int i = 0; i < argc;) {
        const char *word = argv[i];
        given g;
        if (next_word(tables, argc, argv, &i, &g, err) != 0) return KIN_FAIL;
        if (!g.option) {
            if (!operand || *operand) return kin_err_set(err, "unexpected argument '%s'", word);
            *operand = word;
        } else if (set_value(g.option, g.text, err) != 0) {
            return KIN_FAIL;
        }
    }
    return check_needs(tables, argc, argv, err);
}

void kin_options_help(kin_option_tables tables) {
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            char left[64], letter[8] = "    ";
            if (o->kind == KIN_OPTION_NEEDS) printf("\nWith --%s:\n", o->name);
            if (!o->help) continue;
            if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
            snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
            if (strlen(left) > HELP_COLUMN)
                printf("  %s\n  %-*s %s\n", left, HELP_COLUMN, "", o->help);
            else
                printf("  %-*s %s\n", HELP_COLUMN, left, o->help);
        }
    }
}
