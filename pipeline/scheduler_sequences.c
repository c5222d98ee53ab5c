#include "pipeline/scheduler_sequences.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/scheduler_branches.h"
#include "pipeline/scheduler_slots.h"

int kin_scheduler_append(kin_generation *g, const int32_t *tokens, int n, kin_err *err) {
    if (g->n + n > g->cap) {
        int cap = g->n + n > 2 * g->cap ? g->n + n : 2 * g->cap;
        int32_t *larger = realloc(g->tokens, (size_t)cap * sizeof *larger);
        if (!larger) return kin_err_set(err, "out of memory");
        g->tokens = larger;
        g->cap = cap;
    }
    memcpy(g->tokens + g->n, tokens, (size_t)n * sizeof *tokens);
    g->n += n;
    return 0;
}

void kin_scheduler_free_generation(kin_generation *g) {
    free(g->tokens);
    free(g);
}

void kin_scheduler_wait_in_line(kin_scheduler *s, kin_generation *g) {
    kin_generation **at = &s->waiting;
    while (*at && (*at)->number < g->number) at = &(*at)->next;
    g->next = *at;
    *at = g;
    s->n_waiting++;
}

void kin_scheduler_leave_line(kin_scheduler *s, kin_generation *g) {
    kin_generation **at = &s->waiting;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    s->n_waiting--;
}

static void count_sequences(const kin_scheduler *s) {
    if (s->head) kin_head_count_sequences(s->head, s->n_sequences, s->n_running);
}

static void stop_running(kin_scheduler *s, kin_generation *g) {
    int i = 0;
    while (s->running[i] != g) i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (size_t)(s->n_running - i) * sizeof *s->running);
    count_sequences(s);
}

void kin_scheduler_start_running(kin_scheduler *s, kin_generation *g) {
    int i = s->n_running++;
    for (; i > 0 && s->running[i - 1]->number > g->number; i--) s->running[i] = s->running[i - 1];
    s->running[i] = g;
    s->n_sequences += !g->was_running;
    g->was_running = true;
    count_sequences(s);
}

// Takes the sequence out of the KV cache. keep: its tokens stay there as a prefix for others.
static void leave_slot(kin_scheduler *s, kin_generation *g, bool keep) {
    kin_slot *own = &s->slots[g->slot];
    own->owner = NULL;
    kin_scheduler_drop_ahead(s, g);
    kin_scheduler_forget_branches(s, g);
    if (keep && s->head && g->n_done > 0 && kin_scheduler_reusable(s, g->slot, g->n_done) == g->n_done) {
        kin_scheduler_forget_rejected(s, g);
        own->tokens = g->tokens;
        own->n = g->n_done;
        own->tag = g->o.tag;
        own->used = s->stats.n_steps;
        g->tokens = NULL;
    } else {
        kin_scheduler_free_slot(s, g->slot);
    }
    g->slot = KIN_SCHEDULER_NO_SLOT;
    g->n_sent = g->n_done = g->n_found = 0;
}

void kin_scheduler_queue_again(kin_scheduler *s, kin_generation *g) {
    stop_running(s, g);
    leave_slot(s, g, false);
    kin_scheduler_wait_in_line(s, g);
}

void kin_scheduler_end(kin_scheduler *s, kin_generation *g, kin_generation_end how, const kin_err *why) {
    if (g->slot == KIN_SCHEDULER_NO_SLOT) {
        kin_scheduler_leave_line(s, g);
    } else {
        stop_running(s, g);
        leave_slot(s, g, s->o.keeps && !g->o.no_cache);
    }
    if (s->o.draft_model) kin_draft_model_end(s->o.draft_model, g->number);
    if (s->o.mtp) kin_mtp_drafter_end(s->o.mtp, g->number);
    s->stats.n_done += how == KIN_GENERATION_DONE;
    g->o.ended(g->o.user, how, why);
    kin_scheduler_free_generation(g);
}

void kin_scheduler_count_done(kin_scheduler *s, kin_generation *g, int n, bool computed) {
    if (computed && g->n_done < g->n_once) s->stats.n_replayed_tokens += (uint64_t)kin_scheduler_min(n, g->n_once - g->n_done);
    g->n_done += n;
    if (g->n_done > g->n_once) g->n_once = g->n_done;
}

void kin_scheduler_report_progress(const kin_generation *g) {
    if (g->o.progress && !g->cancelled && g->n == g->o.n_prompt) g->o.progress(g->o.user, g->n_done, g->n_cached);
}

bool kin_scheduler_is_ready(const kin_generation *g) {
    return g->n - g->n_sent == 1 && g->n_steps == 0 && !g->cancelled;
}

int kin_scheduler_n_pending(const kin_generation *g, bool hidden) {
    if ((g->o.hidden != NULL) != hidden || g->cancelled || kin_scheduler_is_loading(g)) return 0;
    return kin_scheduler_is_ready(g) && !hidden ? 0 : g->n - g->n_sent;
}

bool kin_scheduler_has_prompts(const kin_scheduler *s) {
    for (int i = 0; i < s->n_running; i++) {
        if (kin_scheduler_n_pending(s->running[i], false) > 0) return true;
    }
    return false;
}
