#include "pure/pull/byte_ranges.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t kin_byte_ranges_sum(const kin_byte_ranges *set) {
    uint64_t sum = 0;
    for (int i = 0; i < set->n; i++) sum += set->at[i].end - set->at[i].begin;
    return sum;
}

static void remove_at(kin_byte_ranges *set, int i) {
    memmove(&set->at[i], &set->at[i + 1], (size_t)(set->n - i - 1) * sizeof *set->at);
    set->n--;
}

bool kin_byte_ranges_add(kin_byte_ranges *set, uint64_t begin, uint64_t end) {
    int i = 0;
    if (begin >= end) return begin == end;
    while (i < set->n && set->at[i].end < begin) i++; // the first range that ends at `begin` or later
    bool joins_before = i < set->n && set->at[i].end == begin;
    int next = i + joins_before;
    if (next < set->n && set->at[next].begin < end) return false;
    bool joins_after = next < set->n && set->at[next].begin == end;
    if (joins_before) {
        set->at[i].end = joins_after ? set->at[next].end : end;
        if (joins_after) remove_at(set, next);
        return true;
    }
    if (joins_after) {
        set->at[next].begin = begin;
        return true;
    }
    if (set->n == KIN_BYTE_RANGES_MAX) return false;
    memmove(&set->at[i + 1], &set->at[i], (size_t)(set->n - i) * sizeof *set->at);
    set->at[i] = (kin_byte_range){begin, end};
    set->n++;
    return true;
}

kin_byte_range kin_byte_ranges_pop(kin_byte_ranges *set, uint64_t most) {
    if (set->n == 0) return (kin_byte_range){0, 0};
    kin_byte_range first = set->at[0];
    if (first.end - first.begin <= most) {
        remove_at(set, 0);
        return first;
    }
    first.end = first.begin + most;
    set->at[0].begin = first.end;
    return first;
}

bool kin_byte_ranges_print(const kin_byte_ranges *set, char *to, size_t n) {
    size_t len = 0;
    if (set->n == 0) return snprintf(to, n, "none") < (int)n;
    for (int i = 0; i < set->n; i++) {
        int put = snprintf(to + len, n - len, "%s%" PRIu64 "-%" PRIu64, i ? " " : "", set->at[i].begin, set->at[i].end);
        if (put < 0 || (size_t)put >= n - len) return false;
        len += (size_t)put;
    }
    return true;
}

// Reads a number without sign and moves on.
static bool read_number(const char **at, uint64_t *value) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    *value = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

bool kin_byte_ranges_parse(kin_byte_ranges *set, const char *text, uint64_t size) {
    *set = (kin_byte_ranges){.n = 0};
    if (strcmp(text, "none") == 0) return true;
    uint64_t before = 0;
    for (const char *at = text;; at++) {
        kin_byte_range r;
        if (!read_number(&at, &r.begin) || *at++ != '-' || !read_number(&at, &r.end)) return false;
        if (r.begin >= r.end || r.end > size || (set->n > 0 && r.begin <= before) || set->n == KIN_BYTE_RANGES_MAX) return false;
        set->at[set->n++] = r;
        before = r.end;
        if (*at == '\0') return true;
        if (*at != ' ') return false;
    }
}
