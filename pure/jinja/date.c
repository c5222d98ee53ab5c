#include "pure/jinja/date.h"

#include <stdio.h>
#include <string.h>

typedef struct date {
    int64_t year;
    int month, day, hour, minute, second; // month, day from 1
    int weekday, yearday;                 // from 0: Sunday, January 1
} date;

// Converts days and seconds to the proleptic Gregorian calendar. Years begin in March, so that the leap day is the last day of
// a year; an era is 400 years, 146097 days.
static date date_of(int64_t seconds) {
    date d;
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    d.hour = (int)(rest / 3600);
    d.minute = (int)(rest / 60 % 60);
    d.second = (int)(rest % 60);
    d.weekday = (int)((days % 7 + 11) % 7); // January 1, 1970 was a Thursday
    int64_t shifted = days + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    d.day = (int)(day_of_year - (153 * month + 2) / 5 + 1);
    d.month = (int)(month < 10 ? month + 3 : month - 9);
    d.year = year_of_era + era * 400 + (d.month <= 2);
    bool leap = (d.year % 4 == 0 && d.year % 100 != 0) || d.year % 400 == 0;
    d.yearday = (int)(d.month <= 2 ? day_of_year - 306 : day_of_year + 59 + leap);
    return d;
}

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

// Formats one directive, without its %, into out [size]. pad false: %-d. Returns the length, or KIN_FAIL if it is unknown.
static int put_directive(char *out, size_t size, const date *d, char directive, bool pad) {
    int two = pad ? 2 : 1, hour12 = d->hour % 12 ? d->hour % 12 : 12;
    switch (directive) {
    case 'Y': return snprintf(out, size, "%lld", (long long)d->year);
    case 'y': return snprintf(out, size, "%0*d", two, (int)(d->year % 100));
    case 'm': return snprintf(out, size, "%0*d", two, d->month);
    case 'd': return snprintf(out, size, "%0*d", two, d->day);
    case 'e': return snprintf(out, size, pad ? "%2d" : "%d", d->day);
    case 'H': return snprintf(out, size, "%0*d", two, d->hour);
    case 'I': return snprintf(out, size, "%0*d", two, hour12);
    case 'M': return snprintf(out, size, "%0*d", two, d->minute);
    case 'S': return snprintf(out, size, "%0*d", two, d->second);
    case 'j': return snprintf(out, size, "%0*d", pad ? 3 : 1, d->yearday + 1);
    case 'w': return snprintf(out, size, "%d", d->weekday);
    case 'B': return snprintf(out, size, "%s", months[d->month - 1]);
    case 'b': return snprintf(out, size, "%.3s", months[d->month - 1]);
    case 'A': return snprintf(out, size, "%s", weekdays[d->weekday]);
    case 'a': return snprintf(out, size, "%.3s", weekdays[d->weekday]);
    case 'p': return snprintf(out, size, "%s", d->hour < 12 ? "AM" : "PM");
    case 'F': return snprintf(out, size, "%lld-%02d-%02d", (long long)d->year, d->month, d->day);
    case 'T': return snprintf(out, size, "%02d:%02d:%02d", d->hour, d->minute, d->second);
    case '%': return snprintf(out, size, "%%");
    default: return KIN_FAIL;
    }
}

const kin_value *kin_date_format(kin_state *state, const kin_string *format) {
    date now = date_of(state->now_s);
    kin_pieces pieces = {.values = state->values};
    for (size_t i = 0; i < format->len; i++) {
        if (format->at[i] != '%') {
            kin_pieces_add(&pieces, kin_string_part(format, i, i + 1));
            continue;
        }
        bool pad = !(i + 1 < format->len && format->at[i + 1] == '-');
        i += pad ? 1 : 2;
        char *text = kin_values_alloc(state->values, 32);
        if (!text) return NULL;
        int len = i < format->len ? put_directive(text, 32, &now, format->at[i], pad) : KIN_FAIL;
        if (len < 0) return kin_state_fail(state, "strftime_now: unknown directive in the format");
        kin_pieces_add(&pieces, (kin_string){.at = text, .len = (size_t)len, .origin = KIN_ORIGIN_TEMPLATE, .ascii = true});
    }
    return kin_pieces_join(&pieces);
}
