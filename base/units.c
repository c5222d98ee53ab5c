#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char size_letters[] = "KMGT";

int kin_size_parse(const char *text, uint64_t *bytes, kin_err *err) {
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
        return kin_err_set(err, "'%s' is not a size (write for example 512M or 1.5G)", text);
    }
    double value = strtod(text, &end);
    if (*end) {
        const char *letter = strchr(size_letters, toupper((unsigned char)*end));
        if (letter) {
            value *= ldexp(1.0, 10 * (int)(letter - size_letters + 1));
            end++;
            if (*end == 'i') end++;
        }
        if (*end == 'B' || *end == 'b') end++;
    }
    if (*end || end == text || !(value >= 0) || value >= 9.2e18) {
        return kin_err_set(err, "'%s' is not a size (write for example 512M or 1.5G)", text);
    }
    *bytes = (uint64_t)value;
    return 0;
}

const char *kin_size_format(uint64_t bytes, char *buf, size_t n) {
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(buf, n, "%llu B", (unsigned long long)bytes);
    } else {
        snprintf(buf, n, value < 10 ? "%.2f %ciB" : value < 100 ? "%.1f %ciB" : "%.0f %ciB", value, size_letters[unit - 1]);
    }
    return buf;
}
