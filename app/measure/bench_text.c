#include "app/measure/bench_text.h"

#include "app/app.h"

typedef struct writing {
    const kin_bench_text *text;
    int n_made;
    kin_time first, last;
    bool failed;
    kin_err why;
} writing;

static int32_t next(void *user, float *logits) {
    writing *w = user;
    int32_t id = w->text->choose(w->text->user, logits, w->n_made);
    w->last = kin_clock_now();
    if (w->n_made++ == 0) w->first = w->last;
    return w->n_made == w->text->n_tokens || atomic_load(&kin_app_stop) ? KIN_GENERATION_NO_TOKEN : id;
}

static void show_progress(void *user, int n_done, int n_cached) {
    const writing *w = user;
    kin_app_progress(NULL, "reading the prompt", (uint64_t)n_done, (uint64_t)w->text->n_prompt);
    (void)n_cached;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    writing *w = user;
    w->failed = how == KIN_GENERATION_FAILED || how == KIN_GENERATION_FULL;
    if (how == KIN_GENERATION_FAILED) w->why = *why;
    if (how == KIN_GENERATION_FULL) kin_err_set(&w->why, "the context is full");
}

int kin_bench_write(kin_compute_loop *loop, const kin_bench_text *text, double *first_ms, double *rest_ms, kin_err *err) {
    writing w = {.text = text};
    kin_generation_options o = {.prompt = text->prompt,
                                .n_prompt = text->n_prompt,
                                .next = next,
                                .progress = show_progress,
                                .drafts = text->drafts,
                                .draft_counts = text->draft_counts,
                                .ended = ended,
                                .user = &w};
    kin_generation *generation;
    kin_time begun = kin_clock_now();
    if (kin_scheduler_submit(kin_compute_loop_scheduler(loop), &o, &generation, err) != 0) return KIN_FAIL;
    if (kin_compute_loop_finish(loop, err) != 0) return KIN_FAIL;
    if (w.failed) return kin_err_set(err, "%s", w.why.text);
    if (atomic_load(&kin_app_stop)) return kin_err_set(err, "stopped");
    *first_ms = kin_clock_ms(begun, w.first);
    *rest_ms = kin_clock_ms(w.first, w.last);
    return 0;
}
