#include "app/json_text.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 120, MAX_NUMBER = 40 };

// ---- numbers

// The fewest digits of scaled that, times 10^exponent, read as value. What 15 digits say exactly, %g says in fewer if it can.
static bool shortest(double scaled, int exponent, double value, char text[MAX_NUMBER]) {
    for (int digits = 15; digits <= 17; digits++) {
        int n = snprintf(text, MAX_NUMBER, "%.*g", digits, scaled);
        if (strchr(text, 'e')) continue;
        if (exponent != 0) snprintf(text + n, MAX_NUMBER - (size_t)n, "e%d", exponent);
        if (strtod(text, NULL) == value) return true;
    }
    return false;
}

// 0.002, or 45e9 where that is clearly shorter: powers of ten by threes, as units are.
static void print_real(FILE *file, double value) {
    char plain[MAX_NUMBER], powered[MAX_NUMBER];
    int exponent = value == 0 ? 0 : 3 * (int)floor(log10(fabs(value)) / 3);
    bool is_plain = fabs(value) < 1e15 && shortest(value, 0, value, plain);
    bool is_powered = exponent != 0 && abs(exponent) <= 306 && shortest(value / pow(10, exponent), exponent, value, powered);
    if (is_plain && (!is_powered || strlen(plain) <= strlen(powered) + 1))
        fputs(plain, file);
    else if (is_powered)
        fputs(powered, file);
    else
        fprintf(file, "%.17g", value);
}

static void print_scalar(FILE *file, const json_t *json) {
    if (json_is_real(json))
        print_real(file, json_real_value(json));
    else
        json_dumpf(json, file, JSON_ENCODE_ANY);
}

// ---- lines

static void print_flat(FILE *file, const json_t *json) {
    const char *key, *comma = "";
    json_t *value;
    size_t i;
    if (json_is_object(json)) {
        fputc('{', file);
        json_object_foreach((json_t *)json, key, value) {
            json_t *name = json_string(key);
            fputs(comma, file);
            print_scalar(file, name);
            fputs(": ", file);
            print_flat(file, value);
            comma = ", ";
            json_decref(name);
        }
        fputc('}', file);
    } else if (json_is_array(json)) {
        fputc('[', file);
        json_array_foreach(json, i, value) {
            fputs(comma, file);
            print_flat(file, value);
            comma = ", ";
        }
        fputc(']', file);
    } else {
        print_scalar(file, json);
    }
}

static char *flat_text(const json_t *json) {
    char *text = NULL;
    size_t n;
    FILE *file = open_memstream(&text, &n);
    if (!file) return NULL;
    print_flat(file, json);
    fclose(file);
    return text;
}

static void print_nested(FILE *file, const json_t *json, int indent, int used);

// "key": and what follows it.
static void print_member(FILE *file, const char *key, const json_t *value, int indent) {
    json_t *name = json_string(key);
    char *text = flat_text(name);
    fprintf(file, "%*s%s: ", indent, "", text ? text : "");
    print_nested(file, value, indent, indent + (text ? (int)strlen(text) : 0) + 2);
    free(text);
    json_decref(name);
}

static void print_object(FILE *file, const json_t *json, int indent) {
    const char *key, *comma = "{\n";
    json_t *value;
    json_object_foreach((json_t *)json, key, value) {
        fputs(comma, file);
        print_member(file, key, value, indent + 2);
        comma = ",\n";
    }
    fprintf(file, "\n%*s}", indent, "");
}

// Scalars fill lines; everything else has lines of its own.
static void print_list(FILE *file, const json_t *json, int indent) {
    json_t *value;
    size_t i;
    int at = 0;
    fputs("[", file);
    json_array_foreach(json, i, value) {
        char *text = flat_text(value);
        bool scalar = !json_is_object(value) && !json_is_array(value);
        int n = text ? (int)strlen(text) : 0;
        if (i > 0) fputs(",", file);
        if (i == 0 || !scalar || at + n + 2 > WIDTH) {
            at = fprintf(file, "\n%*s", indent + 2, "") - 1;
        } else {
            at += fprintf(file, " ");
        }
        print_nested(file, value, indent + 2, indent + 2);
        at += n + 1;
        free(text);
    }
    fprintf(file, "\n%*s]", indent, "");
}

// used: characters that are on the line already.
static void print_nested(FILE *file, const json_t *json, int indent, int used) {
    char *text = flat_text(json);
    if (text && (used + (int)strlen(text) < WIDTH || !(json_is_object(json) || json_is_array(json))))
        fputs(text, file);
    else if (json_is_object(json))
        print_object(file, json, indent);
    else
        print_list(file, json, indent);
    free(text);
}

void kin_json_text_show(json_t *json, int digits) {
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits);
    json_dumpf(json, stdout, flags | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0));
    printf("\n");
    json_decref(json);
}

void kin_json_text_print(FILE *file, const json_t *json) {
    print_nested(file, json, 0, 0);
    fputc('\n', file);
}

int kin_json_text_save(const char *path, const json_t *json, kin_err *err) {
    FILE *file = fopen(path, "w");
    if (!file) return kin_err_set(err, "%s: %s", path, strerror(errno));
    kin_json_text_print(file, json);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) return kin_err_set(err, "%s: could not be written: %s", path, strerror(errno));
    return 0;
}

json_t *kin_json_text_load(const char *path, kin_err *err) {
    json_error_t trouble;
    FILE *file = fopen(path, "r");
    if (!file) {
        kin_err_set(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &trouble);
    if (!json && trouble.line > 0) kin_err_set(err, "%s, line %d: %s", path, trouble.line, trouble.text);
    if (!json && trouble.line <= 0) kin_err_set(err, "%s: %s", path, trouble.text);
    fclose(file);
    return json;
}
