#include "pure/proto/swarm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

#define SECOND ((kin_time)1000000000)
#define REST_DOUBLINGS_MAX 5
#define RATE_WINDOW (SECOND / 4)
#define TWICE_AGE_MIN SECOND // a chunk is not requested a second time before this age

enum {
    COPIES_MAX = 2,
    RATE_WINDOWS_MIN = 8, // with fewer windows the rate is not known
    SLOW_SOURCES = 3,     // sources used at the same time on a slow link
};

typedef enum chunk_state {
    NOT_WANTED,
    OPEN, // wanted, not requested yet
    ASKED,
    DONE,
} chunk_state;

typedef struct request {
    uint32_t chunk;
    kin_time asked;
} request;

// Bytes per second, smoothed, over windows of at least RATE_WINDOW.
typedef struct rate_meter {
    double rate; // 0: unknown
    kin_time begin;
    uint64_t bytes;
    int n_windows; // windows that the rate covers
} rate_meter;

typedef struct source {
    uint8_t id[KIN_SWARM_ID_BYTES];
    bool is_head, is_bad;
    bool present;   // it can be asked
    uint8_t *offer; // [(n_chunks + 7) / 8]
    request requests[KIN_SWARM_IN_FLIGHT];
    int n_requests;
    kin_time heard;
    kin_time rests_until;
    int n_silent; // consecutive silences
    rate_meter meter;
} source;

struct kin_swarm {
    kin_swarm_options o;
    kin_rng rng;
    source sources[KIN_SWARM_SOURCES];
    int n_sources;
    uint8_t *states;    // chunk_state [n_chunks]
    uint32_t *order;    // [n_wanted] wanted chunks, most needed first; room for n_chunks
    uint32_t i_pending; // all chunks before it in `order` are done
    int n_in_flight;
    kin_time progressed;
    rate_meter meter;
    double rate_before; // rate known before the last pause
    kin_swarm_stats stats;
};

kin_swarm_options kin_swarm_options_defaults(uint32_t n_chunks, uint32_t chunk_bytes, uint64_t seed) {
    return (kin_swarm_options){
        .n_chunks = n_chunks,
        .chunk_bytes = chunk_bytes,
        .seed = seed,
        .n_in_flight = 3,
        .n_in_flight_all = 16,
        .timeout_ns = 10 * SECOND,
        .max_wait_ns = 2 * SECOND,
        .slow_bytes_s = 512000,
        .rest_ns = SECOND,
        .give_up_ns = 60 * SECOND,
    };
}

static size_t offer_bytes(const kin_swarm *s) {
    return ((size_t)s->o.n_chunks + 7) / 8;
}

kin_swarm *kin_swarm_new(const kin_swarm_options *o, kin_time now) {
    kin_assert(o->n_in_flight >= 1 && o->n_in_flight <= KIN_SWARM_IN_FLIGHT && o->n_in_flight_all >= 1 && o->chunk_bytes > 0);
    kin_swarm *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->o = *o;
    s->progressed = s->meter.begin = now;
    s->states = calloc((size_t)o->n_chunks + 1, sizeof *s->states);
    s->order = calloc((size_t)o->n_chunks + 1, sizeof *s->order);
    kin_rng_seed(&s->rng, o->seed);
    if (s->states && s->order) return s;
    kin_swarm_free(s);
    return NULL;
}

void kin_swarm_free(kin_swarm *s) {
    if (!s) return;
    for (int i = 0; i < s->n_sources; i++) free(s->sources[i].offer);
    free(s->order);
    free(s->states);
    free(s);
}

// ---- wanted chunks

// Returns 0 if the rate is not known yet.
static double known_rate(const kin_swarm *s) {
    return s->meter.n_windows < RATE_WINDOWS_MIN ? 0 : s->meter.rate;
}

static void shuffle(kin_rng *rng, uint32_t *list, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)(kin_rng_u64(rng) % i);
        uint32_t swapped = list[i - 1];
        list[i - 1] = list[k];
        list[k] = swapped;
    }
}

void kin_swarm_want(kin_swarm *s, const uint32_t *chunks, size_t n, bool in_order, kin_time now) {
    uint32_t before = s->stats.n_wanted;
    if (kin_swarm_complete(s)) { // it was idle: the rate and the time to give up count from here
        s->progressed = now;
        if (known_rate(s) > 0) s->rate_before = known_rate(s);
        s->meter = (rate_meter){.begin = now};
    }
    for (size_t i = 0; i < n; i++) {
        kin_assert(chunks[i] < s->o.n_chunks);
        if (s->states[chunks[i]] != NOT_WANTED) continue;
        s->states[chunks[i]] = OPEN;
        s->order[s->stats.n_wanted++] = chunks[i];
    }
    if (!in_order) shuffle(&s->rng, s->order + before, s->stats.n_wanted - before);
}

bool kin_swarm_complete(const kin_swarm *s) {
    return s->stats.n_done == s->stats.n_wanted;
}

// ---- rates

static void meter_add(rate_meter *m, uint64_t bytes, kin_time now) {
    m->bytes += bytes;
    if (now - m->begin < RATE_WINDOW) return;
    double rate = (double)m->bytes * 1e9 / (double)(now - m->begin);
    m->rate = m->rate > 0 ? 0.7 * m->rate + 0.3 * rate : rate;
    m->begin = now;
    m->bytes = 0;
    m->n_windows++;
}

// Returns the nanoseconds for n chunks at a rate; UINT64_MAX if the rate is not known.
static uint64_t time_for(const kin_swarm *s, uint64_t n, double rate) {
    double ns = rate > 0 ? (double)n * s->o.chunk_bytes * 1e9 / rate : 1e18;
    return ns < 1e18 ? (uint64_t)ns : UINT64_MAX;
}

// ---- sources and their requests

static bool may_be_asked(const source *src, kin_time now) {
    return src->present && now >= src->rests_until;
}

static int count_busy(const kin_swarm *s) {
    int n = 0;
    for (int i = 0; i < s->n_sources; i++) n += s->sources[i].n_requests > 0;
    return n;
}

// Returns the rate or, until it is known, the one before the last pause.
static double presumed_rate(const kin_swarm *s) {
    return known_rate(s) > 0 ? known_rate(s) : s->rate_before;
}

static bool is_link_slow(const kin_swarm *s) {
    double rate = presumed_rate(s);
    return rate > 0 && rate < s->o.slow_bytes_s;
}

static bool has_room(const kin_swarm *s, const source *src, kin_time now) {
    bool is_slow = is_link_slow(s);
    if (is_slow && src->n_requests == 0 && count_busy(s) >= SLOW_SOURCES) return false;
    return may_be_asked(src, now) && src->n_requests < (is_slow ? 1 : s->o.n_in_flight);
}

static bool offers(const source *src, uint32_t chunk) {
    return src->offer[chunk / 8] >> chunk % 8 & 1;
}

static int find_request(const source *src, uint32_t chunk) {
    for (int i = 0; i < src->n_requests; i++) {
        if (src->requests[i].chunk == chunk) return i;
    }
    return -1;
}

static int count_copies(const kin_swarm *s, uint32_t chunk) {
    int n = 0;
    for (int i = 0; i < s->n_sources; i++) n += find_request(&s->sources[i], chunk) >= 0;
    return n;
}

static void drop_request(kin_swarm *s, source *src, int i) {
    uint32_t chunk = src->requests[i].chunk;
    src->requests[i] = src->requests[--src->n_requests];
    s->n_in_flight--;
    if (s->states[chunk] == ASKED && count_copies(s, chunk) == 0) s->states[chunk] = OPEN;
}

static void drop_requests(kin_swarm *s, source *src) {
    while (src->n_requests > 0) drop_request(s, src, src->n_requests - 1);
}

static source *source_at(kin_swarm *s, int i) {
    kin_assert(i >= 0 && i < s->n_sources);
    return &s->sources[i];
}

// Returns a place for a new source: a free one, or that of a source that is gone and never sent wrong bytes; -1 if there is none.
static int find_place(kin_swarm *s) {
    if (s->n_sources < KIN_SWARM_SOURCES) {
        uint8_t *offer = calloc(offer_bytes(s) + 1, 1);
        if (!offer) return -1;
        s->sources[s->n_sources].offer = offer;
        return s->n_sources++;
    }
    for (int i = 0; i < s->n_sources; i++) {
        if (!s->sources[i].present && !s->sources[i].is_bad) return i;
    }
    return -1;
}

int kin_swarm_add_source(kin_swarm *s, const uint8_t id[KIN_SWARM_ID_BYTES], bool is_head) {
    int i = 0;
    while (i < s->n_sources && memcmp(s->sources[i].id, id, KIN_SWARM_ID_BYTES) != 0) i++;
    if (i < s->n_sources && s->sources[i].is_bad) return -1;
    if (i < s->n_sources) {
        drop_requests(s, &s->sources[i]); // from its earlier link
    } else {
        i = find_place(s);
        if (i < 0) return -1;
    }
    source *src = &s->sources[i];
    uint8_t *offer = src->offer;
    *src = (source){.is_head = is_head, .present = true, .offer = offer};
    memcpy(src->id, id, KIN_SWARM_ID_BYTES);
    memset(offer, is_head ? 0xff : 0, offer_bytes(s));
    return i;
}

void kin_swarm_offers(kin_swarm *s, int i, const uint8_t *bits, size_t n_bytes) {
    source *src = source_at(s, i);
    if (n_bytes > offer_bytes(s)) n_bytes = offer_bytes(s);
    memset(src->offer, 0, offer_bytes(s));
    if (n_bytes > 0) memcpy(src->offer, bits, n_bytes);
}

void kin_swarm_heard(kin_swarm *s, int i, uint32_t n_bytes, kin_time now) {
    source *src = source_at(s, i);
    src->heard = s->progressed = now;
    *(src->is_head ? &s->stats.bytes_head : &s->stats.bytes_peers) += n_bytes;
    meter_add(&src->meter, n_bytes, now);
    meter_add(&s->meter, n_bytes, now);
}

void kin_swarm_got(kin_swarm *s, int i, uint32_t chunk, kin_time now) {
    source *src = source_at(s, i);
    kin_assert(chunk < s->o.n_chunks);
    s->progressed = now;
    src->n_silent = 0;
    s->stats.n_twice += s->states[chunk] == DONE;
    s->stats.n_done += s->states[chunk] == OPEN || s->states[chunk] == ASKED;
    s->states[chunk] = DONE;
    int k = find_request(src, chunk); // a second request elsewhere stays: its bytes will arrive and occupy that source
    if (k >= 0) drop_request(s, src, k);
    while (s->i_pending < s->stats.n_wanted && s->states[s->order[s->i_pending]] == DONE) s->i_pending++;
}

void kin_swarm_lied(kin_swarm *s, int i, uint32_t chunk) {
    (void)chunk;
    source *src = source_at(s, i);
    src->is_bad = true;
    src->present = false;
    drop_requests(s, src);
}

void kin_swarm_spoiled(kin_swarm *s, int i, uint32_t chunk) {
    source *src = source_at(s, i);
    int k = find_request(src, chunk);
    if (k >= 0) drop_request(s, src, k);
}

void kin_swarm_lacks(kin_swarm *s, int i, uint32_t chunk) {
    source *src = source_at(s, i);
    if (chunk >= s->o.n_chunks) return;
    src->offer[chunk / 8] &= (uint8_t) ~(1u << chunk % 8);
    int k = find_request(src, chunk);
    if (k >= 0) drop_request(s, src, k);
}

void kin_swarm_lost(kin_swarm *s, int i) {
    source *src = source_at(s, i);
    src->present = false;
    drop_requests(s, src);
}

// ---- silence

static kin_time later(kin_time a, kin_time b) {
    return a > b ? a : b;
}

static void rest_silent(kin_swarm *s, kin_time now) {
    for (int i = 0; i < s->n_sources; i++) {
        source *src = &s->sources[i];
        bool silent = false;
        for (int k = 0; k < src->n_requests; k++) {
            silent = silent || now - later(src->requests[k].asked, src->heard) > s->o.timeout_ns;
        }
        if (!silent) continue;
        int doublings = src->n_silent < REST_DOUBLINGS_MAX ? src->n_silent : REST_DOUBLINGS_MAX;
        src->rests_until = now + (s->o.rest_ns << doublings);
        src->n_silent++;
        drop_requests(s, src);
    }
}

// ---- slow links

static void withdraw_from_slowest(kin_swarm *s) {
    source *slowest = NULL;
    for (int i = 0; i < s->n_sources; i++) {
        source *src = &s->sources[i];
        if (src->n_requests > 0 && (!slowest || src->meter.rate < slowest->meter.rate)) slowest = src;
    }
    drop_requests(s, slowest);
}

static void share_slow_link(kin_swarm *s) {
    while (is_link_slow(s) && count_busy(s) > SLOW_SOURCES) withdraw_from_slowest(s);
}

// ---- which source gets which request

// Estimates how long a new request would wait for its first byte at a device with pending requests: by its speed, or by its
// silence.
static uint64_t wait_at(const kin_swarm *s, const source *src, kin_time now) {
    if (src->n_requests == 0) return 0;
    kin_time since = now;
    for (int i = 0; i < src->n_requests; i++) since = src->requests[i].asked < since ? src->requests[i].asked : since;
    uint64_t silence = now - later(since, src->heard);
    return src->meter.rate > 0 ? later(silence, time_for(s, (uint64_t)src->n_requests, src->meter.rate)) : silence;
}

// True if a device has this chunk and will get to it soon enough, so that the head need not send it.
static bool a_device_will_do(const kin_swarm *s, uint32_t chunk, kin_time now) {
    for (int i = 0; i < s->n_sources; i++) {
        const source *src = &s->sources[i];
        if (src->is_head || !may_be_asked(src, now) || !offers(src, chunk)) continue;
        if (wait_at(s, src, now) <= s->o.max_wait_ns) return true;
    }
    return false;
}

// Returns the most needed open chunk for this source; UINT32_MAX if there is none.
static uint32_t find_open(const kin_swarm *s, const source *src, kin_time now) {
    for (uint32_t i = s->i_pending; i < s->stats.n_wanted; i++) {
        uint32_t chunk = s->order[i];
        if (s->states[chunk] != OPEN || !offers(src, chunk)) continue;
        if (!src->is_head || !a_device_will_do(s, chunk, now)) return chunk;
    }
    return UINT32_MAX;
}

// Returns the time of two chunks from this source; UINT64_MAX: not known. A source that has just come, or come back, gets only
// its part of a slow link, so it does not help.
static uint64_t twice_from(const kin_swarm *s, const source *src) {
    if (src->meter.rate > 0 || !is_link_slow(s)) return time_for(s, 2 * ((uint64_t)src->n_requests + 1), src->meter.rate);
    return time_for(s, 2 * ((uint64_t)count_busy(s) + 1), presumed_rate(s));
}

// Returns a chunk that was requested elsewhere longer ago than this source would need for it twice.
static uint32_t find_late(const kin_swarm *s, const source *src, kin_time now) {
    uint64_t own = twice_from(s, src);
    uint64_t age_min = own == UINT64_MAX ? 2 * TWICE_AGE_MIN : later(own, TWICE_AGE_MIN);
    uint32_t oldest = UINT32_MAX;
    for (int i = 0; i < s->n_sources; i++) {
        const source *other = &s->sources[i];
        for (int k = 0; k < other->n_requests && other != src; k++) {
            const request *r = &other->requests[k];
            uint64_t age = now - r->asked;
            if (age < age_min || s->states[r->chunk] != ASKED || !offers(src, r->chunk)) continue;
            if (find_request(src, r->chunk) >= 0 || count_copies(s, r->chunk) >= COPIES_MAX) continue;
            age_min = age;
            oldest = r->chunk;
        }
    }
    return oldest;
}

// Devices come before the head; among devices, the one with the fewest requests, then the fastest.
static bool comes_before(const source *a, const source *b) {
    if (a->is_head != b->is_head) return b->is_head;
    if (a->n_requests != b->n_requests) return a->n_requests < b->n_requests;
    return a->meter.rate > b->meter.rate;
}

// Lists the sources with room, in the order in which to ask them. Returns their number.
static int sort_sources(kin_swarm *s, source *sorted[KIN_SWARM_SOURCES], kin_time now) {
    int n = 0;
    for (int i = 0; i < s->n_sources; i++) {
        if (!has_room(s, &s->sources[i], now)) continue;
        int at = n++;
        for (; at > 0 && comes_before(&s->sources[i], sorted[at - 1]); at--) sorted[at] = sorted[at - 1];
        sorted[at] = &s->sources[i];
    }
    return n;
}

static kin_swarm_action ask_source(kin_swarm *s, source *src, uint32_t chunk, kin_time now) {
    if (src->n_requests == 0) { // idle time does not count as slowness
        src->meter.begin = now;
        src->meter.bytes = 0;
    }
    src->requests[src->n_requests++] = (request){.chunk = chunk, .asked = now};
    s->states[chunk] = ASKED;
    s->n_in_flight++;
    return (kin_swarm_action){.verb = KIN_SWARM_ASK, .source = (int)(src - s->sources), .chunk = chunk};
}

static bool any_open(const kin_swarm *s) {
    for (uint32_t i = s->i_pending; i < s->stats.n_wanted; i++) {
        if (s->states[s->order[i]] == OPEN) return true;
    }
    return false;
}

// ---- giving up

static kin_swarm_action give_up(const kin_swarm *s) {
    kin_swarm_action a = {.verb = KIN_SWARM_GIVE_UP};
    uint32_t chunk = s->order[s->i_pending];
    int n_present = 0, n_offer = 0, n_bad_peers = 0;
    for (int i = 0; i < s->n_sources; i++) {
        const source *src = &s->sources[i];
        n_present += src->present;
        n_offer += src->present && offers(src, chunk);
        n_bad_peers += src->is_bad;
    }
    int seconds = (int)(s->o.give_up_ns / SECOND);
    if (n_present == 0 && n_bad_peers > 0) {
        snprintf(a.reason, sizeof a.reason, "no device is left to fetch the model from; %d sent damaged chunks", n_bad_peers);
    } else if (n_present == 0) {
        snprintf(a.reason, sizeof a.reason, "there is no device to fetch the model from");
    } else if (n_offer == 0) {
        snprintf(a.reason, sizeof a.reason, "no device has chunk %" PRIu32 " of the model (asked %d)", chunk, n_present);
    } else {
        snprintf(a.reason, sizeof a.reason, "no data of the model arrived for %d s (asked %d)", seconds, n_offer);
    }
    return a;
}

// ---- actions

kin_swarm_action kin_swarm_next(kin_swarm *s, kin_time now) {
    source *sorted[KIN_SWARM_SOURCES];
    kin_swarm_action nothing = {.verb = KIN_SWARM_WAIT};
    if (kin_swarm_complete(s)) return nothing;
    rest_silent(s, now);
    share_slow_link(s);
    int n = s->n_in_flight < s->o.n_in_flight_all ? sort_sources(s, sorted, now) : 0;
    for (int i = 0; i < n; i++) {
        uint32_t chunk = find_open(s, sorted[i], now);
        if (chunk != UINT32_MAX) return ask_source(s, sorted[i], chunk, now);
    }
    bool all_asked = n > 0 && !any_open(s);
    for (int i = 0; i < n && all_asked; i++) {
        uint32_t chunk = find_late(s, sorted[i], now);
        if (chunk != UINT32_MAX) return ask_source(s, sorted[i], chunk, now);
    }
    return now - s->progressed > s->o.give_up_ns ? give_up(s) : nothing;
}

// ---- inspection

bool kin_swarm_is_asked(const kin_swarm *s, int i, uint32_t chunk) {
    return i >= 0 && i < s->n_sources && find_request(&s->sources[i], chunk) >= 0;
}

kin_swarm_stats kin_swarm_get_stats(const kin_swarm *s, kin_time now) {
    kin_swarm_stats stats = s->stats;
    rate_meter m = s->meter;
    meter_add(&m, 0, now); // silence counts at once
    stats.n_in_flight = (uint32_t)s->n_in_flight;
    double rate = known_rate(s) > 0 ? m.rate : 0;
    stats.rate = (uint64_t)rate;
    stats.left_ns = kin_swarm_complete(s) ? 0 : time_for(s, stats.n_wanted - stats.n_done, rate);
    return stats;
}
