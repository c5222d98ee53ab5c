#include "pipeline/watchdog.h"

static const uint64_t LOOK_MAX_NS = 1000000000; // longest gap between two calls that counts as silence

bool kin_watchdog_check(kin_watchdog *w, kin_time now, bool is_busy, unsigned n_signs) {
    uint64_t since_ns = w->checked_at ? now - w->checked_at : 0;
    w->checked_at = now;
    if (!is_busy || n_signs != w->n_signs) {
        if (w->silent_ns > w->longest_ns) w->longest_ns = w->silent_ns;
        w->silent_ns = 0;
        w->n_signs = n_signs;
        return false;
    }
    w->silent_ns += since_ns < LOOK_MAX_NS ? since_ns : LOOK_MAX_NS;
    return w->silent_ns > w->least_ns && w->silent_ns / KIN_WATCHDOG_TIMES > w->longest_ns;
}
