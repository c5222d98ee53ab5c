#include "cluster/compute_loop.h"

#include <stdlib.h>

#include "base/log.h"
#include "cluster/losses.h"
#include "pipeline/steps.h"

enum { FEW_BEYOND_PAGE = 8 }; // tokens of a sequence
static const kin_time DIVIDE_NS = 1000000000;

struct kin_compute_loop {
    kin_session *session;
    kin_scheduler *scheduler;
    kin_prefix_pages *pages; // NULL: pages are not stored on disks
    int n_parallel;
    const kin_head *head; // the scheduler's; NULL: none
    uint64_t ring_number; // ring of that head
    bool entered;
    int n_delayed; // steps for which a better plan has waited
    kin_losses losses;
    double rates[KIN_SCHEDULER_MAX_PARALLEL + 1]; // expected, by the number of sequences; 0: not known
    int n_divided;                                // sequences running at the last division,
    kin_time divided;                             // and its time
};

static void open_pages(kin_compute_loop *l) {
    const kin_session *s = l->session;
    kin_prefix_pages_options o = {.disk = s->kv_disk, .context = &s->kv_context, .n_context = sizeof s->kv_context};
    kin_err err;
    if (o.disk.dir && kin_prefix_pages_open(&l->pages, &o, &err) != 0)
        kin_log(KIN_LOG_WARN, "the on-disk KV cache is disabled: %s", err.text);
}

int kin_compute_loop_open(kin_compute_loop **out, kin_session *session, int n_parallel, bool keeps, kin_err *err) {
    kin_scheduler_options o = {.n_ctx = session->n_ctx,
                               .n_vocab = session->model.hp.n_vocab,
                               .n_embd = session->model.hp.n_embd,
                               .n_states = kin_kv_n_states(&session->model.hp, session->n_ctx),
                               .window = session->window,
                               .checkpoint_gap = session->checkpoint_gap,
                               .n_parallel = n_parallel,
                               .keeps = keeps,
                               .inexact_drafts = session->draft == KIN_DRAFT_ALSO_INEXACT,
                               .draft_model = session->draft_model,
                               .mtp = session->mtp,
                               .draft_least = session->draft_min,
                               .draft_most = session->draft_max};
    kin_compute_loop *l = *out = calloc(1, sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    l->session = session;
    l->n_parallel = n_parallel;
    if (keeps) open_pages(l);
    o.pages = l->pages;
    if (kin_scheduler_open(&l->scheduler, &o, err) == 0) return 0;
    kin_compute_loop_close(l);
    *out = NULL;
    return KIN_FAIL;
}

void kin_compute_loop_close(kin_compute_loop *l) {
    if (!l) return;
    kin_scheduler_close(l->scheduler);
    kin_prefix_pages_close(l->pages);
    free(l);
}

kin_scheduler *kin_compute_loop_scheduler(kin_compute_loop *l) {
    return l->scheduler;
}

int kin_compute_loop_open_drafter(kin_compute_loop *l, bool no_cache, kin_drafter **out, kin_err *err) {
    *out = NULL;
    return l->session->draft == KIN_DRAFT_OFF ? 0 : kin_drafter_open(out, no_cache ? NULL : l->pages, err);
}

double kin_compute_loop_rate(const kin_compute_loop *l, int n_sequences) {
    return n_sequences >= 0 && n_sequences <= KIN_SCHEDULER_MAX_PARALLEL ? l->rates[n_sequences] : 0;
}

// Sets the number of steps at once that suits the plan. n_cached: tokens of each sequence, -1: their share of the context.
static bool divide_sequences(kin_compute_loop *l, int n, int n_cached) {
    kin_batching b;
    if (!kin_session_batching(l->session, n, n_cached, KIN_STEPS_IN_FLIGHT, &b)) return false;
    kin_scheduler_set_in_flight(l->scheduler, n, b.n_batches);
    l->rates[n] = b.rate;
    return true;
}

// Divides any number of sequences; where the best number of steps is not known, it is the number of members.
static void divide_any_sequences(kin_compute_loop *l) {
    int n_members = kin_head_n_members(l->head), most = l->n_parallel < n_members ? n_members : l->n_parallel;
    for (int n = 1; n <= most; n++) {
        kin_scheduler_set_in_flight(l->scheduler, n, 0);
        l->rates[n] = 0;
        divide_sequences(l, n, -1);
    }
}

// Divides the running sequences, by the tokens that they have and the latest measurements.
static void divide_running_sequences(kin_compute_loop *l) {
    kin_scheduler_stats stats = kin_scheduler_get_stats(l->scheduler);
    kin_time now = kin_clock_now();
    if (stats.n_running == 0 || (stats.n_running == l->n_divided && now - l->divided < DIVIDE_NS)) return;
    l->n_divided = stats.n_running;
    l->divided = now;
    divide_sequences(l, stats.n_running, (int)(stats.n_running_tokens / (uint64_t)stats.n_running));
}

static int set_head(kin_compute_loop *l, kin_err *err) {
    kin_head *head = l->session->head;
    if (l->head == head && l->ring_number == kin_head_ring_number(head)) return 0;
    l->head = NULL;
    if (kin_scheduler_set_head(l->scheduler, head, err) != 0) return KIN_FAIL;
    l->head = head;
    l->ring_number = kin_head_ring_number(head);
    l->rates[1] = 0;
    return 0;
}

int kin_compute_loop_enter(kin_compute_loop *l, kin_err *err) {
    if (kin_session_check_files(l->session, err) != 0 || kin_session_begin(l->session, err) != 0) return KIN_FAIL;
    l->entered = true;
    if (set_head(l, err) != 0) {
        kin_compute_loop_leave(l);
        return KIN_FAIL;
    }
    // Repeats what is not known yet: a link may have been measured after the plan was made, and the planner does not answer while
    // it plans.
    if (l->rates[1] == 0) divide_any_sequences(l);
    if (kin_head_chunk_worth(l->head) == 0) kin_head_set_chunk_worth(l->session->head, kin_session_chunk_worth(l->session));
    return 0;
}

static bool is_stopped(const kin_compute_loop *l) {
    const atomic_bool *stop = l->session->console->stop;
    return stop && atomic_load(stop);
}

static void log_loss(kin_compute_loop *l, const kin_err *loss, const char *what_next) {
    if (kin_losses_is_news(&l->losses, loss->text, kin_clock_now())) l->session->console->log("%s; %s", loss->text, what_next);
}

void kin_compute_loop_leave(kin_compute_loop *l) {
    kin_err err;
    if (!l->entered) return;
    if (l->head && kin_scheduler_settle(l->scheduler, &err) != 0) {
        l->head = NULL;
        if (l->session->clustered && !is_stopped(l)) log_loss(l, &err, "rebuilding the ring");
    }
    kin_session_end(l->session);
    l->entered = false;
}

// True if entering a ring again is worth it.
static bool may_go_on(kin_compute_loop *l) {
    kin_scheduler_stats stats = kin_scheduler_get_stats(l->scheduler);
    if (!l->session->clustered || is_stopped(l)) return false;
    return kin_losses_add(&l->losses, stats.n_generated_tokens + stats.n_done);
}

// True if it is time to leave the ring for a better plan. What sequences have after their last full page is recomputed there,
// which takes longer than all else; so waits, for at most the steps of a page, until that is little.
static bool is_time_to_yield(kin_compute_loop *l) {
    if (!kin_session_yields(l->session)) {
        l->n_delayed = 0;
        return false;
    }
    const int n_sequences = kin_scheduler_get_stats(l->scheduler).n_running;
    return kin_scheduler_n_beyond_pages(l->scheduler) <= FEW_BEYOND_PAGE * n_sequences || ++l->n_delayed > KIN_KV_CELLS;
}

int kin_compute_loop_step(kin_compute_loop *l, bool *busy, kin_err *err) {
    if (is_time_to_yield(l)) {
        kin_compute_loop_leave(l);
        if (kin_compute_loop_enter(l, err) != 0) return KIN_FAIL;
    }
    divide_running_sequences(l);
    if (kin_scheduler_step(l->scheduler, busy, err) == 0) return 0;
    l->head = NULL;
    kin_compute_loop_leave(l);
    if (kin_session_check_files(l->session, err) != 0 || !may_go_on(l)) return KIN_FAIL;
    log_loss(l, err, "generation continues when the ring is rebuilt");
    *busy = true;
    return kin_compute_loop_enter(l, err);
}

int kin_compute_loop_finish(kin_compute_loop *l, kin_err *err) {
    static const kin_err stopped = {"stopped"};
    int rc = 0;
    for (bool busy = true; rc == 0 && busy && !is_stopped(l);) rc = kin_compute_loop_step(l, &busy, err);
    kin_scheduler_fail(l->scheduler, rc == 0 ? &stopped : err);
    return rc;
}
