#include "pipeline/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pipeline/scheduler_branches.h"
#include "pipeline/scheduler_checkpoints.h"
#include "pipeline/scheduler_drafts.h"
#include "pipeline/scheduler_flights.h"
#include "pipeline/scheduler_pages.h"
#include "pipeline/scheduler_sequences.h"
#include "pipeline/scheduler_slots.h"
#include "pipeline/scheduler_states.h"

enum {
    LEAST_PREFIX = 8, // shortest prefix that is worth reusing, in tokens
    MOST_ROWS = 32,   // rows of prompts' logits in a step: 20 MB with a vocabulary of 151k
};

int kin_scheduler_open(kin_scheduler **out, const kin_scheduler_options *o, kin_err *err) {
    *out = NULL;
    kin_assert(o->n_parallel > 0 && o->n_parallel <= KIN_SCHEDULER_MAX_PARALLEL);
    kin_scheduler *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->o = *o;
    kin_prefill_init(&s->prefill);
    kin_speculation_init(&s->speculation);
    s->speculation.least = o->draft_least;
    if (o->mtp) s->speculation.computed = KIN_DRAFT_MTP;
    if (o->draft_most > 0 && o->draft_most < KIN_DRAFT_MAX) s->speculation.most = o->draft_most;
    if (o->n_states > 0) s->speculation.most = kin_scheduler_min(s->speculation.most, KIN_STATE_LOG - 1);
    *out = s;
    return 0;
}

void kin_scheduler_close(kin_scheduler *s) {
    if (!s) return;
    for (int i = 0; i < s->n_running; i++) kin_scheduler_free_generation(s->running[i]);
    for (kin_generation *g = s->waiting, *next; g; g = next) {
        next = g->next;
        kin_scheduler_free_generation(g);
    }
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) free(s->slots[i].tokens);
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) free(s->flights[i].logits);
    free(s->tokens);
    free(s->seq);
    free(s->pos);
    free(s->out);
    kin_kv_blocks_close(s->blocks);
    free(s);
}

void kin_scheduler_set_in_flight(kin_scheduler *s, int n_sequences, int n_steps) {
    kin_assert(n_sequences > 0 && n_sequences <= KIN_SCHEDULER_MAX_PARALLEL && n_steps >= 0 && n_steps <= KIN_STEPS_IN_FLIGHT);
    s->n_in_flight[n_sequences] = (uint8_t)n_steps;
}

// ---- sequences

int kin_scheduler_submit(kin_scheduler *s, const kin_generation_options *o, kin_generation **out, kin_err *err) {
    *out = NULL;
    if (o->n_prompt <= 0) return kin_err_set(err, "the prompt is empty");
    if (o->n_prompt > s->o.n_ctx)
        return kin_err_set(err, "the prompt has %d tokens, but the context is %d", o->n_prompt, s->o.n_ctx);
    kin_generation *g = calloc(1, sizeof *g);
    if (!g) return kin_err_set(err, "out of memory");
    g->o = *o;
    g->slot = KIN_SCHEDULER_NO_SLOT;
    g->number = s->next_number++;
    if (kin_scheduler_append(g, o->prompt, o->n_prompt, err) != 0) {
        kin_scheduler_free_generation(g);
        return KIN_FAIL;
    }
    g->o.prompt = NULL;
    kin_scheduler_wait_in_line(s, g);
    *out = g;
    return 0;
}

// ---- the KV cache

void kin_scheduler_cancel(kin_scheduler *s, kin_generation *g) {
    g->cancelled = true;
    kin_scheduler_drop_ahead(s, g);
    if (g->n_steps == 0 || !s->head) kin_scheduler_end(s, g, KIN_GENERATION_CANCELLED, NULL);
}

void kin_scheduler_fail(kin_scheduler *s, const kin_err *why) {
    for (int i = 0; i < s->n_flights; i++) s->flights[(s->first_flight + i) % KIN_STEPS_IN_FLIGHT].n_parts = 0;
    while (s->n_running > 0) kin_scheduler_end(s, s->running[0], KIN_GENERATION_FAILED, why);
    while (s->waiting) kin_scheduler_end(s, s->waiting, KIN_GENERATION_FAILED, why);
}

int kin_scheduler_erase(kin_scheduler *s, int tag) {
    int n = 0;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (t->n == 0 || t->tag != tag) continue;
        n += t->is_mark ? 0 : t->n; // a mark is a part of a sequence
        if (s->o.pages) kin_prefix_pages_forget(s->o.pages, t->tokens, t->n / KIN_KV_CELLS);
        kin_scheduler_free_slot(s, i);
    }
    return n;
}

int kin_scheduler_read_sequence(const kin_scheduler *s, int tag, int32_t **tokens) {
    const kin_slot *last = NULL;
    *tokens = NULL;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (t->n > 0 && t->tag == tag && !t->is_mark && (!last || t->used > last->used)) last = t;
    }
    if (last) *tokens = malloc((size_t)last->n * sizeof **tokens);
    if (*tokens) memcpy(*tokens, last->tokens, (size_t)last->n * sizeof **tokens);
    return *tokens ? last->n : 0;
}

typedef struct match {
    int slot, n;   // the longest prefix in the KV cache
    bool may_grow; // a longer one is being computed
} match;

static match find_prefix(const kin_scheduler *s, const kin_generation *g) {
    match best = {.slot = KIN_SCHEDULER_NO_SLOT};
    int n_soon = 0;
    if (g->o.no_cache || g->is_second || !s->o.keeps) return best;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        const kin_generation *o = t->owner;
        if (o && o->o.no_cache) continue;
        int n = o ? kin_scheduler_common_prefix(g, o->tokens, o->n_done) : kin_scheduler_common_prefix(g, t->tokens, t->n);
        int soon = o && o->n - o->n_done > 1 ? kin_scheduler_soon_reusable(s, g, o) : 0;
        n = kin_scheduler_reusable(s, i, n);
        if (n > best.n) best = (match){.slot = i, .n = n};
        if (soon > n_soon) n_soon = soon;
    }
    if (best.n < LEAST_PREFIX) best = (match){.slot = KIN_SCHEDULER_NO_SLOT};
    best.may_grow = n_soon >= LEAST_PREFIX && n_soon > best.n;
    return best;
}

// Gives a waiting sequence a slot, with the matching prefix. An ended sequence hands over its own slot if that loses no tokens,
// and the beginning of a prompt stays; or if there is no other room.
static bool choose_slot(kin_scheduler *s, kin_generation *g, match m) {
    kin_err err;
    bool gives = m.slot != KIN_SCHEDULER_NO_SLOT && !s->slots[m.slot].owner;
    bool hands_over = gives && m.n == s->slots[m.slot].n && !s->slots[m.slot].is_mark;
    bool fits =
        kin_scheduler_make_room(s, kin_scheduler_blocks_of(kin_scheduler_min(g->n + 1, s->o.n_ctx)) - m.n / KIN_KV_CELLS, m.slot);
    fits = fits && (hands_over || kin_scheduler_make_state(s, m.slot));
    if (!fits && (s->n_running > 0 || !gives)) return false;
    int i = gives && (!fits || hands_over) ? m.slot : kin_scheduler_find_free_slot(s, m.slot);
    if (i == KIN_SCHEDULER_NO_SLOT) return false;
    if (m.slot != KIN_SCHEDULER_NO_SLOT) s->slots[m.slot].used = s->stats.n_steps;
    const int n_marked = m.slot == KIN_SCHEDULER_NO_SLOT ? 0 : kin_scheduler_min(s->slots[m.slot].n_marked, m.n);
    if (i == m.slot) {
        free(s->slots[i].tokens);
        s->slots[i] = (kin_slot){0};
    }
    if (m.n > 0 && kin_scheduler_change(s, (kin_kv_op){i, m.slot, m.n}, &err) != 0) {
        kin_scheduler_free_slot(s, i);
        m.n = 0;
    }
    g->slot = i;
    g->n_sent = g->n_done = g->n_cached = m.n;
    s->slots[i].owner = g;
    s->slots[i].n_kept = m.n / KIN_KV_CELLS;
    s->slots[i].n_marked = m.n > 0 ? n_marked : 0;
    return true;
}

static void admit(kin_scheduler *s) {
    for (kin_generation *g = s->waiting, *next; g && s->n_running < kin_scheduler_n_parallel(s); g = next) {
        next = g->next;
        if (g->n_dropped < g->n_to_drop) continue;
        match m = find_prefix(s, g);
        if (m.may_grow) continue;
        if (!choose_slot(s, g, m)) return; // those after it wait, too
        kin_scheduler_leave_line(s, g);
        kin_scheduler_start_running(s, g);
        kin_scheduler_choose_marks(s, g, kin_scheduler_find_pages(s, g));
        s->stats.n_cached_tokens += (uint64_t)g->n_cached;
        kin_scheduler_report_progress(g);
    }
}

// Preempts the youngest sequence that is in no step. Returns false if only `but` is left.
static bool preempt(kin_scheduler *s, const kin_generation *but) {
    for (int i = s->n_running - 1; i >= 0; i--) {
        kin_generation *g = s->running[i];
        if (g->n_steps > 0 || g == but) continue;
        kin_scheduler_queue_again(s, g);
        s->stats.n_preempted++;
        return true;
    }
    return false;
}

int kin_scheduler_set_head(kin_scheduler *s, kin_head *head, kin_err *err) {
    s->head = NULL; // so that the changes below do not reach the old head
    s->n_flights = s->n_page_flights = 0;
    s->old.is_due = false; // the new ring has other disks
    kin_prefill_init(&s->prefill);
    kin_speculation_forget_times(&s->speculation);
    for (int i = s->n_running - 1; i >= 0; i--) {
        kin_generation *g = s->running[i];
        g->n_steps = 0;
        kin_scheduler_queue_again(s, g);
    }
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) kin_scheduler_free_slot(s, i);
    for (kin_generation *g = s->waiting, *next; g; g = next) {
        next = g->next;
        g->n_dropped = 0; // the new ring has other disks
        if (g->cancelled) kin_scheduler_end(s, g, KIN_GENERATION_CANCELLED, NULL);
    }
    kin_kv_blocks_close(s->blocks);
    s->blocks = NULL;
    if (kin_kv_blocks_open(&s->blocks, s->o.n_ctx, s->o.n_states, &s->o.window, err) != 0) return KIN_FAIL;
    int n = kin_head_n_batch(head);
    if (n > s->cap_step) {
        int32_t **arrays[] = {&s->tokens, &s->seq, &s->pos, &s->out};
        for (int i = 0; i < 4; i++) {
            int32_t *larger = realloc(*arrays[i], (size_t)n * sizeof *larger);
            if (!larger) return kin_err_set(err, "out of memory");
            *arrays[i] = larger;
        }
        s->cap_step = n;
    }
    kin_head_clear(head);
    s->head = head;
    if (s->o.mtp && !s->o.inexact_drafts && !kin_head_is_exact(head))
        kin_log(KIN_LOG_WARN,
                "no drafts by multi-token prediction here: a device computes with ggml's kernels or on a GPU, where they "
                "could change the text");
    return 0;
}

// ---- building a step

static bool is_written(const kin_generation *g) {
    return !g->o.hidden && g->n - g->n_sent <= 1 && (g->n_steps == 0 || g->n > g->o.n_prompt);
}

static int n_written(const kin_scheduler *s) {
    int n = 0;
    for (int i = 0; i < s->n_running; i++) n += is_written(s->running[i]);
    return n;
}

static bool wants_rows(const kin_generation *g) {
    return g->o.prompt_logits && g->n_sent < g->o.n_prompt;
}

// Adds n tokens of the sequence to the step. Their blocks must be available.
static int add_part(kin_scheduler *s, kin_flight *f, kin_generation *g, int n, kin_err *err) {
    bool is_last = g->n_sent + n == g->n, all = f->hidden || wants_rows(g);
    kin_part *p = &f->parts[f->n_parts++];
    *p = (kin_part){.g = g, .n = n, .first = f->n_tokens, .row = f->n_out, .all = all, .is_last = is_last};
    p->is_prompt = n > 1 || g->n_sent < g->o.n_prompt;
    g->draft.n = 0;
    if (all) f->n_prompt_rows += n;
    for (int i = 0; i < n; i++, f->n_tokens++) {
        int64_t cell;
        s->tokens[f->n_tokens] = g->tokens[g->n_sent + i];
        s->seq[f->n_tokens] = g->slot;
        s->pos[f->n_tokens] = g->n_sent + i;
        if (all) s->out[f->n_out++] = f->n_tokens;
        if (kin_kv_blocks_append(s->blocks, g->slot, g->n_sent + i, &cell, err) != 0) return KIN_FAIL;
    }
    if (is_last && !all) s->out[f->n_out++] = f->n_tokens - 1;
    if (p->is_prompt) f->n_prompt += n, f->ends_prompts |= is_last && !f->hidden;
    g->n_sent += n;
    g->n_steps++;
    return 0;
}

// ---- filling a step

// Returns the number of steps in flight that suits n_sequences sequences.
static int steps_for(const kin_scheduler *s, int n_sequences) {
    int n = s->n_in_flight[n_sequences];
    return n ? n : kin_head_n_members(s->head);
}

// True if prompts get steps of their own: few sequences do not keep the ring busy.
static bool has_spare_steps(const kin_scheduler *s) {
    return n_written(s) < kin_head_n_members(s->head) && kin_scheduler_has_prompts(s);
}

// Returns the number of steps in flight while sequences decode, and the sequences in each. With prompts beside few sequences
// there may be as many steps as if there were a sequence for each member.
static kin_prefill_beside count_beside(const kin_scheduler *s) {
    int n_sequences = n_written(s), n = steps_for(s, n_sequences);
    kin_prefill_beside b = {.n_least = n, .n_most = n, .n_steps = n};
    if (has_spare_steps(s)) {
        b.n_least = kin_scheduler_min(n, n_sequences > 0 ? n_sequences : 1);
        b.n_most = steps_for(s, kin_head_n_members(s->head));
        b.n_steps = kin_scheduler_min(b.n_most, s->prefill.n_steps);
        if (b.n_steps < b.n_least) b.n_steps = b.n_least;
    }
    b.n_rows = (n_sequences + b.n_steps - 1) / b.n_steps;
    return b;
}

// Returns the i-th flight, oldest first.
static const kin_flight *flight_at(const kin_scheduler *s, int i) {
    return &s->flights[(s->first_flight + i) % KIN_STEPS_IN_FLIGHT];
}

// Returns the number of steps in flight with sequences' last tokens.
static int n_with_tokens(const kin_scheduler *s) {
    int n = 0;
    for (int i = 0; i < s->n_flights; i++) {
        const kin_flight *f = flight_at(s, i);
        n += f->kind == KIN_FLIGHT_TOKENS && f->n_tokens > f->n_prompt;
    }
    return n;
}

static int add_tokens(kin_scheduler *s, kin_flight *f, kin_err *err) {
    int n_most = count_beside(s).n_rows, n_batch = kin_head_n_batch(s->head);
    for (int i = 0; i < s->n_running && f->n_parts < n_most && f->n_tokens < n_batch; i++) {
        kin_generation *g = s->running[i];
        if (!kin_scheduler_is_ready(g) || g->o.hidden) continue;
        while (!kin_scheduler_make_room(s, kin_scheduler_blocks_for(g, 1), KIN_SCHEDULER_NO_SLOT) && preempt(s, g)) continue;
        if (g->slot == KIN_SCHEDULER_NO_SLOT || !kin_kv_blocks_fit(s->blocks, kin_scheduler_blocks_for(g, 1))) continue;
        if (add_part(s, f, g, 1, err) != 0) return KIN_FAIL;
        g->n_steps_wanted = 1;
    }
    return f->n_parts > 0 ? kin_scheduler_add_drafts(s, f, err) : kin_scheduler_add_ahead(s, f, err);
}

// Returns how many tokens of prompts the step may have beside decoding sequences; 0: none for now, so that a step without prompts
// and drafts is measured. While only prompts for hidden states wait, sequences have drafts in every step, so such prompts do not
// wait for a measurement.
static int prompt_budget(const kin_scheduler *s, const kin_flight *f) {
    if (f->beside.n_rows == 0) return s->cap_step;
    bool any_sequences = f->n_tokens > 0 || n_with_tokens(s) > 0;
    if (any_sequences && kin_scheduler_has_prompts(s) && kin_prefill_wants_plain(&s->prefill)) return 0;
    return kin_scheduler_min(kin_prefill_tokens(&s->prefill, f->beside.n_rows), s->cap_step);
}

static int add_prompts(kin_scheduler *s, kin_flight *f, kin_err *err) {
    int n_prompts = 0, n_all = 0, n_batch = kin_head_n_batch(s->head);
    for (int i = 0; i < s->n_running; i++) {
        n_prompts += kin_scheduler_n_pending(s->running[i], f->hidden) > 0;
        n_all += kin_scheduler_n_pending(s->running[i], f->hidden) > 0 ? s->running[i]->n - s->running[i]->n_cached
                                                                       : 0; // the whole prompt
    }
    if (n_prompts == 0) return 0;
    int left = kin_scheduler_min(prompt_budget(s, f), n_batch - f->n_tokens);
    left = kin_scheduler_min(left, kin_head_n_chunk(s->head, n_all));
    unsigned n_running = (unsigned)s->n_running, first = s->turn++ % n_running;
    for (unsigned k = 0; k < n_running && left > 0; k++) {
        kin_generation *g = s->running[(first + k) % n_running];
        if (kin_scheduler_n_pending(g, f->hidden) == 0) continue;
        int share = (left + n_prompts - 1) / n_prompts;
        n_prompts--;
        int n = kin_scheduler_up_to_mark(g, kin_scheduler_min(share, kin_scheduler_n_pending(g, f->hidden)));
        if (wants_rows(g)) n = kin_scheduler_min(n, MOST_ROWS - f->n_prompt_rows);
        n = kin_scheduler_fit(s, g, n);
        if (n <= 0) continue;
        if (add_part(s, f, g, n, err) != 0) return KIN_FAIL;
        left -= n;
    }
    return 0;
}

static int fill_step(kin_scheduler *s, kin_flight *f, bool hidden, kin_err *err) {
    f->hidden = hidden;
    if (!hidden && add_tokens(s, f, err) != 0) return KIN_FAIL;
    return add_prompts(s, f, err);
}

// Takes the largest logits buffer of the idle flights, so that only the flights in use need memory.
static void reuse_idle_logits(kin_scheduler *s, kin_flight *f) {
    for (int i = s->n_flights; i < KIN_STEPS_IN_FLIGHT; i++) {
        kin_flight *idle = &s->flights[(s->first_flight + i) % KIN_STEPS_IN_FLIGHT];
        if (idle->cap_out <= f->cap_out) continue;
        float *logits = f->logits;
        int cap_out = f->cap_out;
        f->logits = idle->logits, f->cap_out = idle->cap_out;
        idle->logits = logits, idle->cap_out = cap_out;
    }
}

static int reserve_logits(kin_scheduler *s, kin_flight *f, kin_err *err) {
    // Hidden states share the buffer: rows of n_embd are counted in rows of n_vocab, rounded up.
    int n_rows =
        f->hidden ? (int)(((size_t)f->n_out * (size_t)s->o.n_embd + (size_t)s->o.n_vocab - 1) / (size_t)s->o.n_vocab) : f->n_out;
    if (n_rows > f->cap_out) reuse_idle_logits(s, f);
    if (n_rows <= f->cap_out) return 0;
    free(f->logits);
    f->logits = malloc((size_t)n_rows * (size_t)s->o.n_vocab * sizeof *f->logits);
    f->cap_out = f->logits ? n_rows : 0;
    return f->logits ? 0 : kin_err_set(err, "out of memory for the logits of %d sequences", f->n_out);
}

// Returns the number of steps in flight that suits the decoding sequences.
static int n_most_in_flight(const kin_scheduler *s) {
    return s->n_running == 1 && s->running[0]->n_steps_wanted > 1 ? s->running[0]->n_steps_wanted : count_beside(s).n_steps;
}

// True if prompts have enough tokens for a step after others: devices read their weights again for it, so a few tokens wait for
// more.
static bool is_worth_reading(const kin_scheduler *s) {
    int n = 0, worth = kin_head_chunk_worth(s->head);
    for (int i = 0; i < s->n_running; i++)
        n += kin_scheduler_n_pending(s->running[i], false) + kin_scheduler_n_pending(s->running[i], true);
    return worth <= KIN_PROMPT_CHUNK_LEAST || n >= worth / 2;
}

// True if any step may follow those in flight: up to n_most_in_flight while sequences decode, as many as the head takes for
// prompts alone.
static bool may_send_any(const kin_scheduler *s) {
    return s->n_flights - s->n_page_flights < n_most_in_flight(s) || (n_written(s) == 0 && is_worth_reading(s));
}

// Where one step at a time suits the ring, that step should have all sequences: a ready sequence waits for those whose prompts
// end in steps in flight. Its own step would return after theirs anyway, and their next step would be delayed by a whole step.
static bool waits_for_others(const kin_scheduler *s) {
    int n_sequences = n_written(s), n_members = kin_head_n_members(s->head);
    bool any_ends = false;
    for (int i = 0; i < s->n_flights; i++) any_ends |= flight_at(s, i)->ends_prompts;
    return any_ends && steps_for(s, n_sequences > n_members ? n_sequences : n_members) == 1;
}

// True if ready sequences may follow even more pieces of prompts than n_most_in_flight allows: the pieces were sent while fewer
// sequences decoded, or while more steps were allowed.
static bool may_send_ready(const kin_scheduler *s) {
    bool any_ready = false;
    for (int i = 0; i < s->n_running; i++)
        any_ready = any_ready || (kin_scheduler_is_ready(s->running[i]) && !s->running[i]->o.hidden);
    return any_ready && n_with_tokens(s) < n_most_in_flight(s) && !waits_for_others(s);
}

static bool may_send(const kin_scheduler *s) {
    return kin_scheduler_has_room(s) && !kin_scheduler_waits_to_load(s) && (may_send_any(s) || may_send_ready(s));
}

static int fill_next_step(kin_scheduler *s, kin_flight *f, kin_err *err) {
    bool hidden = s->stats.n_steps % 2; // the two kinds alternate; if one has nothing to send, the other is tried
    f->hidden = false;
    if (!may_send_any(s)) return add_tokens(s, f, err);
    if (fill_step(s, f, hidden, err) != 0) return KIN_FAIL;
    return f->n_tokens > 0 ? 0 : fill_step(s, f, !hidden, err);
}

// *sent: there was something to send.
static int send_step(kin_scheduler *s, bool *sent, kin_err *err) {
    kin_flight *f = kin_scheduler_new_flight(s, KIN_FLIGHT_TOKENS);
    f->beside = count_beside(s);
    if (fill_next_step(s, f, err) != 0) return KIN_FAIL;
    *sent = f->n_tokens > 0;
    if (!*sent) return 0;
    if (reserve_logits(s, f, err) != 0) return KIN_FAIL;
    for (int i = 0; i < s->n_flights; i++) f->follows_prompts |= flight_at(s, i)->n_prompt > 0;
    f->sent = kin_clock_now();
    kin_head_step step = {.n = f->n_tokens,
                          .tokens = s->tokens,
                          .seq = s->seq,
                          .pos = s->pos,
                          .out = s->out,
                          .n_out = f->n_out,
                          .logits = f->logits,
                          .hidden = f->hidden,
                          .states = kin_scheduler_wants_hidden(s, f),
                          .n_prompt = f->n_prompt,
                          .more = f->n_out == 0};
    if (kin_head_send(s->head, &step, &f->number, err) != 0) return KIN_FAIL;
    s->n_flights++;
    kin_kv_blocks_begin_step(s->blocks); // the next one: caches begin it before they apply operations
    kin_scheduler_keep_marks(s, f);
    return 0;
}

// ---- handling what comes back

static void blend(double *mean, double value) {
    *mean = *mean > 0 ? 0.75 * *mean + 0.25 * value : value;
}

static void learn_prefill(kin_scheduler *s, const kin_flight *f, double gap_s, double took_s) {
    if (f->beside.n_rows == 0) return;
    if (f->n_prompt == f->n_tokens)
        kin_prefill_learn_next(&s->prefill, f->n_prompt, took_s);
    else if (f->n_prompt == 0 && f->n_draft == 0 && !f->follows_prompts)
        kin_prefill_learn_plain(&s->prefill, f->beside.n_rows, gap_s);
    else
        kin_prefill_learn(&s->prefill, &f->beside, f->n_draft > 0 ? 0 : f->n_prompt, gap_s);
}

static void measure(kin_scheduler *s, const kin_flight *f, kin_time now) {
    kin_time begun = f->sent > s->last_done ? f->sent : s->last_done;
    double took_s = kin_clock_ms(begun, now) / 1e3;  // time of the ring
    double gap_s = kin_clock_ms(f->sent, now) / 1e3; // from a sequence's token to its next, with the steps in between
    s->last_done = now;
    if (f->hidden) return;
    if (f->in_chain) return kin_scheduler_measure_chain(s, took_s);
    if (f->n_prompt == 0) kin_speculation_learn_time(&s->speculation, f->n_tokens, took_s);
    learn_prefill(s, f, gap_s, took_s);
    if (f->n_prompt == f->n_tokens && f->beside.n_rows == 0) blend(&s->prompt_alone_s, took_s / f->n_prompt);
}

typedef enum outcome { GOES_ON, AGREES, ENDS } outcome; // AGREES: with the draft

static outcome end_with(kin_scheduler *s, kin_generation *g, kin_generation_end how, const kin_err *why) {
    kin_scheduler_end(s, g, how, why);
    return ENDS;
}

static bool are_wrong(const float *logits, int n) {
    for (int i = 0; i < n; i++) {
        if (isfinite(logits[i])) return false;
    }
    return true;
}

// A row without a finite logit was computed wrongly, or from wrong keys and values. Nothing of the sequence is reused: ended
// sequences with the same beginning leave the cache, and its pages leave the disks. It is recomputed, once for each wrong row.
// True: that was arranged; false: it was tried already for this row, or it is still in a step.
static bool compute_again(kin_scheduler *s, kin_generation *g) {
    kin_scheduler_drop_ahead(s, g);
    if (g->is_second || g->n_steps > 0) return false;
    kin_log(KIN_LOG_DEBUG,
            "no logit of a step is finite: dropping the cached pages of the sequence and computing the step once more");
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (t->n > 0 && kin_scheduler_common_prefix(g, t->tokens, t->n) >= LEAST_PREFIX) kin_scheduler_free_slot(s, i);
    }
    kin_scheduler_distrust_pages(s, g);
    kin_scheduler_queue_again(s, g);
    g->is_second = true;
    s->stats.n_wrong++;
    return true;
}

// Handles the row after drafted token *i (-1: after the sequence's last one) of part p; if the sampled token was drafted, *i
// becomes its index.
static outcome handle_row(kin_scheduler *s, const kin_part *p, float *logits, int *i) {
    kin_err err;
    kin_generation *g = p->g;
    const kin_draft *d = &g->draft;
    if (are_wrong(logits, s->o.n_vocab) && compute_again(s, g)) return ENDS;
    g->is_second = false;
    kin_draft_counts counts = {.n_written = !p->is_prompt || *i >= 0}; // a prompt's last token may have drafts
    int32_t id = g->o.next(g->o.user, logits);
    int next = p->n_draft > 0 && id != KIN_GENERATION_NO_TOKEN ? kin_scheduler_find_drafted(s, d, *i, id) : -1;
    bool agrees = next >= 0;
    counts.accepted[d->kind] = agrees;
    counts.accepted_branches = agrees && kin_draft_is_branch(d, next);
    kin_scheduler_count_drafts(s, g, counts);
    if (id == KIN_GENERATION_NO_TOKEN) return end_with(s, g, KIN_GENERATION_DONE, NULL);
    if (kin_scheduler_append(g, &id, 1, &err) != 0) return end_with(s, g, KIN_GENERATION_FAILED, &err);
    s->stats.n_generated_tokens++;
    if (g->n > s->o.n_ctx) return end_with(s, g, KIN_GENERATION_FULL, NULL);
    if (g->n_ahead > 0) {
        kin_scheduler_follow_ahead(s, g, id);
        return GOES_ON;
    }
    if (!agrees) return GOES_ON;
    *i = next;
    kin_scheduler_follow_branch(s, g, next);
    g->n_sent++; // its keys and values are in the cache
    kin_scheduler_give_hidden(s, g, p->draft_first + next, g->n_done, 1);
    kin_scheduler_count_done(s, g, 1, true);
    return AGREES;
}

// rows: the step's; last: index of the row after the sequence's last token.
static void handle_rows(kin_scheduler *s, const kin_part *p, float *rows, int last) {
    kin_generation *g = p->g;
    kin_draft_counts counts = {.n_passes = !p->is_ahead && !p->is_prompt, .n_drafts = p->n_draft > 0};
    counts.drafted[g->draft.kind] = (uint64_t)p->n_draft;
    for (int i = 0; i < p->n_draft; i++) counts.branches += kin_draft_is_branch(&g->draft, i);
    kin_scheduler_count_drafts(s, g, counts);
    outcome o = AGREES;
    for (int i = -1; o == AGREES;) {
        int row = i < 0 ? last : p->draft_row + i;
        o = handle_row(s, p, rows + (size_t)row * (size_t)s->o.n_vocab, &i);
    }
    if (o != GOES_ON || p->n_draft == 0) return;
    kin_scheduler_forget_branches(s, g);
    kin_scheduler_forget_rejected(s, g);
}

static void handle_part(kin_scheduler *s, const kin_part *p, float *logits) {
    kin_generation *g = p->g;
    if (!g) return;
    g->n_steps--;
    kin_scheduler_give_hidden(s, g, p->first, g->n_done, p->n);
    kin_scheduler_count_done(s, g, p->n, true);
    if (p->is_prompt) kin_scheduler_report_progress(g);
    if (g->cancelled) {
        if (g->n_steps == 0) kin_scheduler_end(s, g, KIN_GENERATION_CANCELLED, NULL);
    } else if (g->o.hidden) {
        g->o.hidden(g->o.user, g->n_done - p->n, logits + (size_t)p->row * (size_t)s->o.n_embd, p->n);
        if (g->n_done == g->n) kin_scheduler_end(s, g, KIN_GENERATION_DONE, NULL);
    } else if (p->all || p->is_last) { // else there may be no logits at all
        float *rows = logits + (size_t)p->row * (size_t)s->o.n_vocab;
        if (p->all) g->o.prompt_logits(g->o.user, g->n_done - p->n, rows, p->n);
        if (p->is_last) handle_rows(s, p, logits, p->all ? p->row + p->n - 1 : p->row);
    }
}

static int handle_pages(kin_scheduler *s, const kin_flight *f, kin_err *err) {
    int rc = f->kind == KIN_FLIGHT_LOAD ? kin_scheduler_handle_load(s, f, err) : 0;
    if (f->kind == KIN_FLIGHT_STATES) kin_scheduler_handle_states(s, f);
    s->last_done = kin_clock_now(); // steps are timed from here: pages do not count
    return rc;
}

static int receive_step(kin_scheduler *s, kin_err *err) {
    kin_flight *f = &s->flights[s->first_flight];
    uint64_t number;
    const kin_head_meanwhile meanwhile = {kin_scheduler_draft_ahead, s};
    if (kin_head_receive(s->head, s->o.draft_model ? &meanwhile : NULL, &number, err) != 0) return KIN_FAIL;
    if (number == 0) return 0; // woken: sequences may have been submitted or cancelled
    kin_assert(number == f->number);
    s->first_flight = (s->first_flight + 1) % KIN_STEPS_IN_FLIGHT;
    s->n_flights--;
    s->n_page_flights -= f->kind != KIN_FLIGHT_TOKENS;
    if (f->kind != KIN_FLIGHT_TOKENS) return handle_pages(s, f, err);
    s->stats.n_steps++;
    s->stats.n_prompt_tokens += (uint64_t)f->n_prompt;
    s->stats.n_decode_rows += (uint64_t)(f->n_tokens - f->n_prompt - f->n_draft);
    measure(s, f, kin_clock_now());
    uint64_t n_before = s->stats.n_generated_tokens;
    for (int i = 0; i < f->n_parts; i++) handle_part(s, &f->parts[i], f->logits);
    if (f->in_chain) s->chain.n_tokens += (int)(s->stats.n_generated_tokens - n_before);
    return 0;
}

// Nothing can be sent and nothing is in flight, but sequences run: two or more that are partly in the cache block each other.
static void untie(kin_scheduler *s) {
    if (s->n_running > 1)
        preempt(s, s->running[0]);
    else
        kin_scheduler_end(s, s->running[0], KIN_GENERATION_FULL, NULL);
}

static int step(kin_scheduler *s, kin_err *err) {
    bool kept;
    if (kin_scheduler_send_drops(s, err) != 0) return KIN_FAIL;
    admit(s);
    if (kin_scheduler_send_loads(s, err) != 0) return KIN_FAIL;
    for (bool sent = true; sent && may_send(s);) {
        if (send_step(s, &sent, err) != 0) return KIN_FAIL;
        if (sent && kin_scheduler_keeps_at_once(s) && kin_scheduler_send_keep(s, &kept, err) != 0) return KIN_FAIL;
    }
    if (s->n_flights > 0) return receive_step(s, err) == 0 ? kin_scheduler_send_keep(s, &kept, err) : KIN_FAIL;
    if (s->n_running > 0) untie(s);
    return 0;
}

// After a failure the contents of the KV cache are not known.
static int fail(kin_scheduler *s) {
    s->head = NULL;
    s->n_flights = s->n_page_flights = 0;
    return KIN_FAIL;
}

int kin_scheduler_step(kin_scheduler *s, bool *busy, kin_err *err) {
    kin_assert(s->head);
    if (step(s, err) != 0) return fail(s);
    *busy = s->n_running > 0 || s->waiting || s->n_flights > s->n_page_flights;
    return 0;
}

static int settle(kin_scheduler *s, kin_err *err) {
    for (bool sent = true; s->n_flights > 0 || sent;) {
        if (s->n_flights > 0 && receive_step(s, err) != 0) return KIN_FAIL;
        if (kin_scheduler_send_keep(s, &sent, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_scheduler_settle(kin_scheduler *s, kin_err *err) {
    s->settles = true;
    const int rc = settle(s, err);
    s->settles = false;
    return rc == 0 ? 0 : fail(s);
}

int kin_scheduler_n_beyond_pages(const kin_scheduler *s) {
    int n = 0;
    if (!s->o.pages || !s->o.keeps) return 0;
    for (int i = 0; i < s->n_running; i++) n += s->running[i]->o.no_cache ? 0 : s->running[i]->n_done % KIN_KV_CELLS;
    return n;
}

kin_scheduler_stats kin_scheduler_get_stats(const kin_scheduler *s) {
    kin_scheduler_stats t = s->stats;
    t.n_running = s->n_running;
    t.n_waiting = s->n_waiting;
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++)
        t.logits_bytes += (uint64_t)s->flights[i].cap_out * (uint64_t)s->o.n_vocab * sizeof(float);
    for (int i = 0; i < s->n_running; i++) t.n_running_tokens += (uint64_t)s->running[i]->n_done;
    t.n_blocks = s->blocks ? kin_kv_blocks_n(s->blocks) : 0;
    t.n_free_blocks = s->blocks ? kin_kv_blocks_n_free(s->blocks) : 0;
    return t;
}
