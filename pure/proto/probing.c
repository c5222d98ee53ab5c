#include "pure/proto/probing.h"

#include <math.h>

#include "base/median.h"

enum {
    N_WARM = 2,
    N_TRIPS_LEAST = 3, // on a long path
    TRIPS_MS = 200,
    N_FEW = 3,    // enough messages, if one takes long
    FEW_MS = 500, // after this time, fewer are enough
    PAIRS_MS = 100,
    LARGE_BYTES = 256 << 10,
    SMALL_BYTES = LARGE_BYTES / 4, // a hidden state counts as at most this
    GROWTH = 4,
    // On a long path:
    FAR_BYTES = 1 << 20,
    FAR_GROWTH = 16,
    N_SAME = 2,    // messages that were no faster than those before show that the window is open
    FAR_MS = 1000, // per direction; KIN_PROBE_LIMIT_MS has room for both
};

static const double LONG_S = 0.02;  // a message that takes this long shows the rate well enough
static const double FAR_S = 0.01;   // round trip of a long path
static const double FASTER = 0.9;   // fraction of the times before that counts as faster
static const double CLOCK_S = 1e-4; // shorter times are noise

static void enter(kin_probing *p, int phase, kin_time now) {
    p->phase = phase;
    p->begun = now;
    p->n = p->n_slow = 0;
    if (phase == KIN_PROBING_GROWS || phase == KIN_PROBING_OPENS) p->large = p->small;
}

void kin_probing_init(kin_probing *p, uint32_t hidden_bytes, kin_time now) {
    *p = (kin_probing){.small = hidden_bytes < SMALL_BYTES ? hidden_bytes : SMALL_BYTES};
    enter(p, KIN_PROBING_WARMS, now);
}

static uint32_t bytes_of_next(const kin_probing *p) {
    switch (p->phase) {
    case KIN_PROBING_GROWS:
    case KIN_PROBING_OPENS: return p->large;
    case KIN_PROBING_COMPARES: return p->n % 2 ? p->large : p->small;
    default: return 0;
    }
}

kin_probing_message kin_probing_next(const kin_probing *p) {
    uint32_t n = bytes_of_next(p);
    return (kin_probing_message){
        .n_bytes = p->is_back ? 0 : n, .answer_bytes = p->is_back ? n : 0, .rests = p->phase == KIN_PROBING_TRIES};
}

static bool is_longer(const kin_probing *p, int ms, kin_time now) {
    return kin_clock_ms(p->begun, now) > ms;
}

static void enter_direction(kin_probing *p, kin_time now) {
    enter(p, p->least_trip_s > FAR_S ? KIN_PROBING_OPENS : KIN_PROBING_GROWS, now);
}

// Stores the rate of one direction. True if both are known.
static bool store_rate(kin_probing *p, double bytes_s, kin_time now) {
    *(p->is_back ? &p->result.from_bytes_s : &p->result.to_bytes_s) = bytes_s;
    if (p->is_back) return true;
    p->is_back = true;
    enter_direction(p, now);
    return false;
}

static double rate_of_pairs(kin_probing *p) {
    double small_s = kin_median(p->took[0], p->n / 2), large_s = kin_median(p->took[1], p->n / 2);
    // The difference is below the clock's noise: this is a lower bound of the rate.
    return large_s > small_s ? (p->large - p->small) / (large_s - small_s) : p->large / large_s;
}

// Takes the time of a message on a long path. The size grows while a message takes little longer than the round trip; delays of
// TCP itself are fractions of one.
static bool add_far(kin_probing *p, double s, kin_time now) {
    bool is_faster = p->n == 0 || s < p->least_s * FASTER;
    p->n_slow = is_faster ? 0 : p->n_slow + 1;
    p->least_s = p->n == 0 ? s : fmin(p->least_s, s);
    p->n++;
    if (p->large < FAR_BYTES && p->least_s <= 2 * p->least_trip_s + LONG_S && !is_longer(p, FAR_MS / 2, now)) {
        p->large = p->large > FAR_BYTES / FAR_GROWTH ? FAR_BYTES : p->large * FAR_GROWTH;
        p->n = p->n_slow = 0;
        return false;
    }
    bool is_over = p->n_slow == N_SAME || is_longer(p, FAR_MS - (int)(s * 1e3), now); // the next one takes as long
    return is_over && store_rate(p, p->large / fmax(p->least_s - p->least_trip_s, CLOCK_S), now);
}

// A message took long: true if it is repeated, false if this was the last time. *s: set to the least time.
static bool repeats_message(kin_probing *p, double *s, kin_time now) {
    p->least_s = p->n_slow == 0 ? *s : fmin(p->least_s, *s);
    p->n_slow++;
    *s = p->least_s;
    return p->n_slow < N_FEW && !is_longer(p, FEW_MS, now);
}

// Takes the time of a message of the current size. The first one is small.
static bool add_growth(kin_probing *p, double s, kin_time now) {
    bool is_slow = s > 2 * p->result.rtt_s + LONG_S, is_first = p->large == p->small;
    if (is_slow && repeats_message(p, &s, now)) return false;
    p->n_slow = 0;
    if (is_first) p->took[0][0] = s;
    if (is_slow && is_first) return store_rate(p, p->small / (s - p->result.rtt_s), now);
    if (is_slow && s > p->result.rtt_s + PAIRS_MS * 1e-3) { // these two times must be enough
        p->took[1][0] = s;
        p->n = 2;
        return store_rate(p, rate_of_pairs(p), now);
    }
    if (is_slow || p->large == LARGE_BYTES)
        enter(p, KIN_PROBING_COMPARES, now);
    else
        p->large = p->large > LARGE_BYTES / GROWTH ? LARGE_BYTES : p->large * GROWTH;
    return false;
}

static bool add_pair(kin_probing *p, double s, kin_time now) {
    p->took[p->n % 2][p->n / 2] = s;
    p->n++;
    if (p->n % 2) return false;
    bool are_few = p->n < 2 * N_FEW && !is_longer(p, FEW_MS, now);
    bool is_over = p->n == 2 * KIN_PROBING_PAIRS || (is_longer(p, PAIRS_MS, now) && !are_few);
    return is_over && store_rate(p, rate_of_pairs(p), now);
}

bool kin_probing_add(kin_probing *p, double s, kin_time now) {
    switch (p->phase) {
    case KIN_PROBING_WARMS:
        if (++p->n == N_WARM) enter(p, KIN_PROBING_TRIES, now);
        return false;
    case KIN_PROBING_TRIES:
        p->least_trip_s = p->n == 0 ? s : fmin(p->least_trip_s, s);
        p->trips[p->n++] = s;
        if (p->n < KIN_PROBING_TRIPS && (p->n < N_TRIPS_LEAST || !is_longer(p, TRIPS_MS, now))) return false;
        p->result.rtt_s = kin_median(p->trips, p->n);
        enter_direction(p, now);
        return false;
    case KIN_PROBING_GROWS: return add_growth(p, s, now);
    case KIN_PROBING_COMPARES: return add_pair(p, s, now);
    case KIN_PROBING_OPENS: return add_far(p, s, now);
    }
    return false;
}
