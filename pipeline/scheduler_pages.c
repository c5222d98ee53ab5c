#include "pipeline/scheduler_pages.h"

#include <math.h>

#include "pipeline/scheduler_checkpoints.h"
#include "pipeline/scheduler_flights.h"
#include "pipeline/scheduler_sequences.h"
#include "pipeline/scheduler_slots.h"
#include "pipeline/scheduler_states.h"

// Loading pages may take this much longer than computing their tokens: links are opened first, and the measured time may not be
// typical.
static const double LOAD_TIMEOUT_S = 0.25;

// A member waits this much longer for pages from other devices' disks than computing their tokens would take, since links may
// have to be opened; the second: the whole wait if that time is not known.
static const double FETCH_TIMEOUT_S = 1, FETCH_TIMEOUT_UNKNOWN_S = 10;

enum { FIRST_LOAD = 2 }; // pages

// ---- loading from the disks

int kin_scheduler_find_pages(kin_scheduler *s, kin_generation *g) {
    kin_err err;
    const bool forgets = kin_scheduler_forgets(s);
    int first = g->n_sent / KIN_KV_CELLS;
    if (!s->o.pages || !s->o.keeps || g->o.no_cache || g->is_second) return 0;
    if (forgets && g->n_sent % KIN_KV_CELLS) first = 0; // it cannot go back to a full block
    const int n_known = kin_prefix_pages_find(s->o.pages, g->tokens, first, (g->n - 1) / KIN_KV_CELLS);
    const int n_most = g->n_refused > 0 ? kin_scheduler_min(n_known, g->n_refused - 1) : n_known;
    const int n = forgets ? kin_scheduler_last_checkpoint(s, g->tokens, n_most) : n_known;
    if (n * KIN_KV_CELLS <= g->n_sent) return n_known * KIN_KV_CELLS;
    if (g->n_sent > first * KIN_KV_CELLS &&
        kin_scheduler_change(s, (kin_kv_op){g->slot, g->slot, first * KIN_KV_CELLS}, &err) != 0)
        return 0;
    g->n_sent = g->n_done = g->n_cached = first * KIN_KV_CELLS;
    g->n_found = n;
    g->recomputes = false;
    return n_known * KIN_KV_CELLS;
}

static int fetch_timeout_ms(const kin_scheduler *s, int n_tokens) {
    double most_s = FETCH_TIMEOUT_S + s->prompt_alone_s * n_tokens;
    return (int)fmin(1e3 * (s->prompt_alone_s > 0 ? most_s : FETCH_TIMEOUT_UNKNOWN_S), UINT16_MAX);
}

// Returns how many pages the next request for a sequence has: a few at first, to measure them.
static int n_next(const kin_generation *g) {
    const int first = g->n_sent / KIN_KV_CELLS, most = first == 0 ? FIRST_LOAD : kin_scheduler_min(KIN_PAGES_MAX, 2 * first);
    return kin_scheduler_min(most, g->n_found - first);
}

// True if states follow the next pages: the sequence is to continue after them.
static bool is_next_last(const kin_scheduler *s, const kin_generation *g) {
    return kin_scheduler_forgets(s) && g->n_sent / KIN_KV_CELLS + n_next(g) == g->n_found;
}

// Loads no more of the sequence; the rest is computed. Without states nothing that was loaded is of use.
static int give_up_load(kin_scheduler *s, kin_generation *g, kin_err *err) {
    g->n_found = 0;
    if (!kin_scheduler_forgets(s)) return 0;
    s->stats.n_cached_tokens -= (uint64_t)g->n_cached;
    g->n_sent = g->n_done = g->n_cached = 0;
    kin_scheduler_choose_marks(s, g, 0);
    return kin_scheduler_change(s, (kin_kv_op){g->slot, g->slot, 0}, err);
}

static bool make_room_to_load(kin_scheduler *s, const kin_generation *g, const kin_page_request *r) {
    const int n_window = r->has_states ? kin_kv_window_n_blocks(&s->o.window) : 0;
    if (g->n_sent == 0 && !kin_scheduler_make_state(s, g->slot)) return false;
    while (!kin_kv_blocks_fit_load(s->blocks, r->n, n_window))
        if (!kin_scheduler_evict(s, g->slot)) return false;
    return true;
}

// Requests the next pages of a sequence that was found on the disks.
static int send_load(kin_scheduler *s, kin_generation *g, kin_err *err) {
    kin_page_request r = {.loads = true, .recomputes = g->recomputes, .seq = g->slot, .first = g->n_sent / KIN_KV_CELLS};
    const int32_t *tokens = g->tokens + g->n_sent;
    r.n = n_next(g);
    r.has_states = is_next_last(s, g);
    r.timeout_ms = fetch_timeout_ms(s, (r.has_states ? g->n_found : r.n) * KIN_KV_CELLS);
    if (!make_room_to_load(s, g, &r) || !kin_prefix_pages_name(s->o.pages, g->tokens, r.first, r.n, r.keys))
        return give_up_load(s, g, err);
    if (r.recomputes) r.n = kin_prefix_pages_borders(s->o.pages, r.keys, r.n, &r.borders);
    kin_flight *f = kin_scheduler_new_flight(s, KIN_FLIGHT_LOAD);
    f->sent = kin_clock_now();
    f->parts[f->n_parts++] = (kin_part){.g = g, .n = r.n * KIN_KV_CELLS};
    if (kin_kv_blocks_load(s->blocks, g->slot, r.n, r.has_states, err) != 0) return KIN_FAIL;
    g->n_sent += r.n * KIN_KV_CELLS;
    g->n_steps++;
    return kin_scheduler_send_pages(s, f, &r, tokens, err);
}

static bool wants_load(const kin_generation *g) {
    return kin_scheduler_is_loading(g) && g->n_steps == 0 && !g->cancelled;
}

bool kin_scheduler_waits_to_load(const kin_scheduler *s) {
    bool waits = false;
    if (s->n_flights == s->n_page_flights) return false;
    for (int i = 0; i < s->n_running; i++) waits = waits || (wants_load(s->running[i]) && is_next_last(s, s->running[i]));
    return waits;
}

int kin_scheduler_send_loads(kin_scheduler *s, kin_err *err) {
    if (kin_scheduler_waits_to_load(s)) return 0;
    for (int i = 0; i < s->n_running && kin_scheduler_has_room(s); i++) {
        kin_generation *g = s->running[i];
        if (wants_load(g) && send_load(s, g, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// True if loading pages is faster than computing their tokens: over a slow link, or from a slow disk, it is not.
static bool pays(const kin_scheduler *s, const kin_flight *f) {
    kin_time begun = f->sent > s->last_done ? f->sent : s->last_done;
    double took_s = kin_clock_ms(begun, kin_clock_now()) / 1e3;
    return s->prompt_alone_s <= 0 || took_s < LOAD_TIMEOUT_S + s->prompt_alone_s * f->parts[0].n;
}

// Pages that are not found, or come too slowly, are computed instead. If the sequence was in a ring before, at first only the
// layers that lack them are recomputed, while that is faster: the members of that ring have logged what they passed on.
static void give_up_pages(kin_generation *g) {
    if (g->recomputes || g->n_once <= g->n_done)
        g->n_found = 0;
    else
        g->recomputes = true;
}

// Counts each token once: loaded from disks, or computed in some layers.
static void count_loaded(kin_scheduler *s, kin_generation *g, int n) {
    g->n_cached += n;
    if (g->recomputes) {
        s->stats.n_partly_replayed_tokens += (uint64_t)n;
        return;
    }
    s->stats.n_cached_tokens += (uint64_t)n;
    s->stats.n_loaded_tokens += (uint64_t)n;
}

// The states at a checkpoint, or pages before it, were not found: an earlier one is loaded, or nothing. The checkpoint stays on
// record, since a device that has them may be away.
static int fall_back(kin_scheduler *s, kin_generation *g, kin_err *err) {
    const int n_pages = kin_scheduler_min(g->n_done / KIN_KV_CELLS, g->n_found - 1);
    g->n_refused = g->n_found;
    const int n = kin_scheduler_last_checkpoint(s, g->tokens, n_pages), kept = (n - 1) * KIN_KV_CELLS;
    if (n == 0 || kept < g->n_cached) return give_up_load(s, g, err);
    g->n_found = n;
    g->n_sent = g->n_done = kept; // the states follow the last page
    kin_scheduler_choose_marks(s, g, 0);
    return kin_scheduler_change(s, (kin_kv_op){g->slot, g->slot, kept}, err);
}

// The same for a model whose sequences go on at checkpoints only: its pages count when the states are there.
static int handle_load_to_checkpoint(kin_scheduler *s, kin_generation *g, int n, bool is_whole, kin_err *err) {
    g->n_done += n;
    if (!is_whole) return fall_back(s, g, err);
    if (!kin_scheduler_is_loading(g)) count_loaded(s, g, g->n_done - g->n_cached);
    return 0;
}

int kin_scheduler_handle_load(kin_scheduler *s, const kin_flight *f, kin_err *err) {
    if (f->n_parts == 0) return 0; // its sequence has failed
    kin_generation *g = f->parts[0].g;
    const int n = kin_head_n_good(s->head, f->number) * KIN_KV_CELLS;
    const bool is_whole = n == f->parts[0].n;
    g->n_steps--;
    if (kin_scheduler_forgets(s)) {
        if (handle_load_to_checkpoint(s, g, n, is_whole, err) != 0) return KIN_FAIL;
    } else {
        kin_scheduler_count_done(s, g, n, false);
        count_loaded(s, g, n);
        if (!is_whole || !pays(s, f)) give_up_pages(g);
        if (!is_whole) {
            g->n_sent = g->n_done;
            if (kin_scheduler_change(s, (kin_kv_op){g->slot, g->slot, g->n_done}, err) != 0) return KIN_FAIL;
        }
    }
    s->slots[g->slot].n_kept = g->n_done / KIN_KV_CELLS;
    kin_scheduler_report_progress(g);
    if (g->cancelled) kin_scheduler_end(s, g, KIN_GENERATION_CANCELLED, NULL);
    return 0;
}

// ---- dropping

void kin_scheduler_distrust_pages(kin_scheduler *s, kin_generation *g) {
    if (!s->o.pages || !s->o.keeps || g->o.no_cache) return;
    g->n_to_drop = g->n / KIN_KV_CELLS;
    g->n_dropped = 0;
    kin_prefix_pages_forget(s->o.pages, g->tokens, g->n_to_drop);
}

// *sent: false if the pages cannot be named now, for lack of memory.
static int send_drop(kin_scheduler *s, kin_generation *g, bool *sent, kin_err *err) {
    kin_page_request r = {
        .drops = true, .first = g->n_dropped, .n = kin_scheduler_min(KIN_PAGES_MAX, g->n_to_drop - g->n_dropped)};
    *sent = kin_prefix_pages_name(s->o.pages, g->tokens, r.first, r.n, r.keys);
    if (!*sent) return 0;
    g->n_dropped += r.n;
    return kin_scheduler_send_pages(s, kin_scheduler_new_flight(s, KIN_FLIGHT_KEEP), &r, NULL, err);
}

int kin_scheduler_send_drops(kin_scheduler *s, kin_err *err) {
    bool sent = true;
    for (kin_generation *g = s->waiting; g; g = g->next) {
        while (sent && g->n_dropped < g->n_to_drop && kin_scheduler_has_room(s)) {
            if (send_drop(s, g, &sent, err) != 0) return KIN_FAIL;
        }
    }
    return 0;
}

// ---- storing

bool kin_scheduler_keeps_at_once(const kin_scheduler *s) {
    return kin_head_n_members(s->head) > 1 && kin_head_pages_stay_behind(s->head);
}

// Returns how many tokens of the sequence may be stored. Drafted tokens after its last one are not included.
static int n_to_keep(const kin_scheduler *s, const kin_generation *g) {
    return kin_scheduler_keeps_at_once(s) ? kin_scheduler_min(g->n_sent, g->n) : g->n_done;
}

// Returns the tokens of a running or ended sequence that has full blocks not stored yet, and the number of its full blocks in *n.
// NULL: none.
static const int32_t *find_unkept(const kin_scheduler *s, const kin_slot *t, int *n) {
    const kin_generation *g = t->owner;
    if (g && (g->o.no_cache || kin_scheduler_is_loading(g))) return NULL;
    *n = (g ? n_to_keep(s, g) : t->n) / KIN_KV_CELLS;
    return *n > t->n_kept ? (g ? g->tokens : t->tokens) : NULL;
}

int kin_scheduler_send_keep(kin_scheduler *s, bool *sent, kin_err *err) {
    *sent = false;
    if (!s->head || !s->o.pages || !s->o.keeps || !kin_scheduler_has_room(s)) return 0;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        kin_slot *t = &s->slots[i];
        int n_full;
        const int32_t *tokens = find_unkept(s, t, &n_full);
        if (!tokens) continue;
        kin_page_request r = {.seq = i, .first = t->n_kept, .n = kin_scheduler_min(KIN_PAGES_MAX, n_full - t->n_kept)};
        if (!kin_prefix_pages_name(s->o.pages, tokens, r.first, r.n, r.keys)) return 0; // the next step tries again
        t->n_kept += r.n;
        const kin_border_set borders = kin_head_borders(s->head);
        kin_prefix_pages_keep(s->o.pages, tokens, r.first, r.n, r.keys, &borders);
        *sent = true;
        return kin_scheduler_send_pages(s, kin_scheduler_new_flight(s, KIN_FLIGHT_KEEP), &r, NULL, err);
    }
    return kin_scheduler_send_states(s, sent, err);
}
