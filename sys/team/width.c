#include "sys/team/width.h"

enum {
    LEAST_JOBS = 3, // that a trial measures with each number,
    MOST_JOBS = 64,
    BLOCK_NS = 10000000, // until they took this long, so that jobs that were preempted have their share
    SHARE = 64,          // trials may cost this part of the time
    LEAST_WAIT_NS = 50000000,
};

// The other number is chosen if its jobs take less than this part of the time.
static const uint64_t better_percent = 95;

static int half(int n) {
    return n > 1 ? n / 2 : 1;
}

static int twice(int n, int most) {
    return 2 * n < most ? 2 * n : most;
}

static int choose_other(kin_width *w, int most) {
    const int up = twice(w->now, most), down = half(w->now);
    w->goes_up = up != w->now && (down == w->now || !w->goes_up);
    return w->goes_up ? up : down;
}

static bool is_full(const kin_width_block *b) {
    return b->n >= MOST_JOBS || (b->n >= LEAST_JOBS && b->ns >= BLOCK_NS);
}

int kin_width_next(kin_width *w, int most, kin_time now) {
    if (w->now == 0 || w->now > most) *w = (kin_width){.now = most};
    if (most > 1 && w->other == 0 && w->due != 0 && now >= w->due) {
        w->other = choose_other(w, most);
        w->tried = w->kept = (kin_width_block){0};
        w->is_first = true;
    }
    return w->other != 0 && !is_full(&w->tried) ? w->other : w->now;
}

// Waits before the next trial so long that the time that this one lost is a small part.
static void end_trial(kin_width *w, kin_time now) {
    const uint64_t tried = w->tried.ns / (uint64_t)w->tried.n, kept = w->kept.ns / (uint64_t)w->kept.n;
    const uint64_t lost = tried > kept ? (tried - kept) * (uint64_t)(w->tried.n + 1) : 0;
    if (tried * 100 < kept * better_percent) {
        w->now = w->other;
        w->n_failures = 0;
    } else if (w->n_failures < KIN_WIDTH_FAILURES) {
        w->n_failures++;
    }
    const uint64_t wait = SHARE * lost;
    w->due = now + ((wait > LEAST_WAIT_NS ? wait : LEAST_WAIT_NS) << w->n_failures);
    w->other = 0;
    w->is_first = true;
}

static void add_job(kin_width *w, kin_width_block *block, uint64_t ns) {
    if (!w->is_first) *block = (kin_width_block){block->ns + ns, block->n + 1};
    w->is_first = is_full(block);
}

void kin_width_add(kin_width *w, int most, uint64_t ns, kin_time now) {
    if (most == 1) return;
    if (w->other == 0) {
        if (w->due == 0) w->due = now + SHARE * (LEAST_JOBS + 1) * ns;
    } else if (!is_full(&w->tried)) {
        add_job(w, &w->tried, ns);
    } else {
        add_job(w, &w->kept, ns);
        if (is_full(&w->kept)) end_trial(w, now);
    }
}
