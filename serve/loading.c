#include "serve/loading.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { LEAST_MS = 1000, LEAST_PERCENT = 2, MOST_RETRY_S = 60 }; // below these the rate is too inaccurate

void kin_loading_init(kin_loading *l) {
    *l = (kin_loading){.percent = -1, .seconds_left = -1};
}

void kin_loading_set(kin_loading *l, const char *what, double percent, kin_time now) {
    bool begins = l->percent < 0 || percent < l->percent;
    snprintf(l->what, sizeof l->what, "%s", what);
    l->percent = percent;
    l->seconds_left = -1;
    if (percent < 0) return;
    if (begins) {
        l->first = percent;
        l->first_at = now;
    }
    double ms = kin_clock_ms(l->first_at, now), done = percent - l->first;
    if (ms >= LEAST_MS && done >= LEAST_PERCENT) l->seconds_left = ceil(ms / 1e3 * (100 - percent) / done);
}

json_t *kin_loading_json(const kin_loading *l) {
    json_t *o = json_pack("{s:s}", "what", l->what[0] ? l->what : "loading the model");
    if (l->percent >= 0) json_object_set_new(o, "percent", json_real((int)(l->percent * 10) / 10.0));
    if (l->seconds_left >= 0) json_object_set_new(o, "seconds_left", json_integer((json_int_t)l->seconds_left));
    return o;
}

int kin_loading_retry_after_s(const kin_loading *l) {
    return l->seconds_left <= 1 ? 1 : l->seconds_left > MOST_RETRY_S ? MOST_RETRY_S : (int)l->seconds_left;
}
