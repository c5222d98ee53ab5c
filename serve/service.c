#include "serve/service.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/compute_loop.h"
#include "sys/cond.h"

enum { WEIGH_NS = 1000000000, LOOK_NS = 100000000 }; // LOOK_NS: interval for checking whether to stop when there is no work

static const kin_err stops = {"the server is shutting down"};

struct kin_job {
    kin_job_options o;
    kin_service *service;
    kin_generation *generation; // NULL: not with the scheduler
    kin_job *next;              // in the inbox
    int n_generated, n_echoed;
    kin_time first;       // time of the first token
    float *vector;        // [n_embd] with pooling
    kin_drafter *drafter; // NULL: none
    kin_draft_counts drafts;
    bool cancelled, ended; // under the service's mutex
    kin_job_end how;       // set when next() ends the job
    kin_err why;
    bool is_refused; // why: the request leaves no token to generate
};

// A pending query about the ended sequences with a tag.
typedef struct pending_query {
    kin_job_event_kind kind; // KIN_SEQUENCES_ERASED or KIN_SEQUENCE_READ
    int tag;
    void *user;
    struct pending_query *next;
} pending_query;

struct kin_service {
    kin_service_options o;
    kin_compute_loop *loop;
    kin_scheduler *scheduler; // the loop's
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Under the mutex.
    kin_job *inbox, **inbox_end;
    kin_job *cancelled[KIN_SERVICE_MAX_JOBS]; // [n_cancelled] cancelled, not ended
    int n_cancelled;
    pending_query *pending_queries;
    kin_job_event *outbox; // [cap_out] circular
    size_t first_out, n_out, cap_out;
    int n_jobs;   // submitted, not ended
    bool stopped; // by kin_service_stop
    bool over;    // kin_service_run has ended: new jobs end at once, with this reason
    kin_err over_why;
    bool has_changed; // the model's files have changed
    kin_service_status status;
    kin_time weighed; // when the shard's stats were last read; the computing thread's
};

// ---- jobs

void kin_job_options_fini(kin_job_options *o) {
    kin_thinking_budget_free(o->budget);
    kin_constraint_free(o->constraint);
    kin_matcher_free(o->matcher);
    kin_shared_grammar_release(o->grammar);
    kin_sampler_free(o->sampler);
    free(o->prompt);
    *o = (kin_job_options){0};
}

int kin_job_new(kin_job **out, const kin_job_options *o, kin_err *err) {
    kin_job *j = *out = calloc(1, sizeof *j);
    if (j) {
        j->o = *o;
        return 0;
    }
    kin_job_options left = *o;
    kin_job_options_fini(&left);
    return kin_err_set(err, "out of memory");
}

void kin_job_free(kin_job *j) {
    if (!j) return;
    kin_job_options_fini(&j->o);
    kin_drafter_close(j->drafter);
    free(j->vector);
    free(j);
}

// ---- the outbox

static bool grow_outbox(kin_service *s) {
    if (s->n_out < s->cap_out) return true;
    size_t cap = s->cap_out ? 2 * s->cap_out : 256;
    kin_job_event *larger = malloc(cap * sizeof *larger);
    if (!larger) return false;
    for (size_t i = 0; i < s->n_out; i++) larger[i] = s->outbox[(s->first_out + i) % s->cap_out];
    free(s->outbox);
    s->outbox = larger;
    s->cap_out = cap;
    s->first_out = 0;
    return true;
}

static void uncancel(kin_service *s, const kin_job *j) {
    int n = 0;
    for (int i = 0; i < s->n_cancelled; i++) {
        if (s->cancelled[i] != j) s->cancelled[n++] = s->cancelled[i];
    }
    s->n_cancelled = n;
}

static void queue_event(kin_service *s, const kin_job_event *event) {
    pthread_mutex_lock(&s->mutex);
    kin_assert(grow_outbox(s));
    s->outbox[(s->first_out + s->n_out++) % s->cap_out] = *event;
    if (event->kind == KIN_JOB_ENDED) {
        s->n_jobs--;
        event->job->ended = true;
        uncancel(s, event->job); // it may be freed from now on
    }
    pthread_mutex_unlock(&s->mutex);
    s->o.wake(s->o.wake_user);
}

bool kin_service_pop(kin_service *s, kin_job_event *event) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->n_out > 0;
    if (any) {
        *event = s->outbox[s->first_out];
        s->first_out = (s->first_out + 1) % s->cap_out;
        s->n_out--;
    }
    pthread_mutex_unlock(&s->mutex);
    return any;
}

static void end_job(kin_job *j, kin_job_end how, const kin_err *why) {
    kin_job_event event = {.kind = KIN_JOB_ENDED,
                           .job = j,
                           .user = j->o.user,
                           .pooling = j->o.pooling,
                           .restores = j->o.restores,
                           .at = kin_clock_now(),
                           .how = how};
    if (why) event.why = *why;
    event.drafts = j->drafts;
    if (how == KIN_JOB_EOS) event.vector = j->vector;
    queue_event(j->service, &event);
}

// ---- tokens (computing thread)

// Inserts an id into the n likeliest so far, in order.
static void rank(kin_job_prob *top, int *n, int n_most, int32_t id, float logit) {
    if (*n == n_most && logit <= top[n_most - 1].logprob) return;
    int i = *n < n_most ? (*n)++ : n_most - 1;
    for (; i > 0 && top[i - 1].logprob < logit; i--) top[i] = top[i - 1];
    top[i] = (kin_job_prob){id, logit};
}

// Computes the model's own probabilities, before the sampler. *log_sum: subtract it from a logit to get the log-probability.
static void find_likeliest(const kin_job *j, const float *logits, int n_vocab, kin_job_event *event, double *log_sum) {
    float largest = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) largest = logits[i] > largest ? logits[i] : largest;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)largest);
    *log_sum = (double)largest + log(sum);
    if (j->o.n_probs <= 0) return;
    event->top = malloc((size_t)j->o.n_probs * sizeof *event->top);
    for (int32_t i = 0; event->top && i < n_vocab; i++) rank(event->top, &event->n_top, j->o.n_probs, i, logits[i]);
    for (int i = 0; i < event->n_top; i++) event->top[i].logprob -= (float)*log_sum;
}

static int32_t stop(kin_job *j, kin_job_end how) {
    j->how = how;
    return KIN_GENERATION_NO_TOKEN;
}

// A control token counts as its name.
static void spend(kin_job *j, const kin_vocab *vocab, int32_t id) {
    if (!j->o.budget) return;
    kin_str text = kin_vocab_piece(vocab, id);
    kin_thinking_budget_accept(j->o.budget, text.len > 0 ? text : kin_vocab_text(vocab, id));
}

// Returns an id that must come because the reasoning budget is used up; KIN_FAIL: sample one.
static int32_t find_forced(const kin_job *j) {
    int32_t id = j->o.budget ? kin_thinking_budget_next(j->o.budget) : KIN_FAIL;
    return id >= 0 && j->o.constraint && !kin_constraint_allows(j->o.constraint, id) ? KIN_FAIL : id;
}

// Computes the probabilities that the sampler drew from.
static void find_drawn(const kin_job *j, int32_t id, kin_job_event *event) {
    if (j->o.n_probs > 0) event->top = malloc((size_t)j->o.n_probs * sizeof *event->top);
    for (size_t i = 0; i < kin_sampler_n_drawn(j->o.sampler); i++) {
        double p;
        int32_t other = kin_sampler_drawn(j->o.sampler, i, &p);
        if (other == id) event->logprob = (float)log(p);
        if (event->top) rank(event->top, &event->n_top, j->o.n_probs, other, (float)log(p));
    }
}

// Returns the next id, with its probabilities as requested. Writes to the logits.
static int32_t sample(kin_job *j, float *logits, kin_job_event *event) {
    double log_sum = 0;
    float *raw = NULL;
    int n_vocab = kin_vocab_n_tokens(j->service->o.session->vocab);
    bool has_models = j->o.n_probs >= 0 && !j->o.has_drawn_probs;
    if (has_models) {
        find_likeliest(j, logits, n_vocab, event, &log_sum);
        raw = malloc((size_t)n_vocab * sizeof *raw); // the sampler writes to the logits
        if (raw) memcpy(raw, logits, (size_t)n_vocab * sizeof *raw);
    }
    int32_t forced = find_forced(j);
    int32_t id = forced >= 0 ? forced : kin_sampler_sample_constrained(j->o.sampler, logits, j->o.constraint);
    if (id >= 0 && raw) event->logprob = raw[id] - (float)log_sum;
    if (id >= 0 && forced < 0 && j->o.n_probs >= 0 && !has_models) find_drawn(j, id, event);
    free(raw);
    return id;
}

// True if the sampler's options forbid everything that the grammar allows here.
static bool leaves_nothing(const kin_job *j) {
    int32_t n_vocab = kin_vocab_n_tokens(j->service->o.session->vocab);
    const uint64_t *allowed = j->o.constraint ? kin_constraint_mask(j->o.constraint) : NULL;
    if (!allowed) return false;
    for (int32_t id = 0; id < n_vocab; id++) {
        if (kin_token_set_has(allowed, id) && !kin_sampler_forbids(j->o.sampler, id)) return false;
    }
    return true;
}

static int32_t choose(kin_job *j, float *logits, kin_job_event *event) {
    kin_constraint *constraint = j->o.constraint;
    int32_t id = sample(j, logits, event);
    if (id < 0 && leaves_nothing(j)) {
        kin_err_set(
            &j->why,
            "after %d tokens the grammar (of 'grammar', a schema or tools) allows only tokens that 'logit_bias' or the model "
            "forbids",
            j->n_generated);
        j->is_refused = true;
        return KIN_FAIL;
    }
    if (id < 0) {
        kin_err_set(&j->why, "the model returned no usable logits (all%s are NaN or -inf)%s",
                    constraint ? " that the grammar allows" : "",
                    constraint
                        ? ""
                        : ": the file may be damaged, or a device computes wrong results; 'kin cache rm --conversations' removes "
                          "the on-disk KV cache");
        return KIN_FAIL;
    }
    kin_sampler_accept(j->o.sampler, id);
    spend(j, j->service->o.session->vocab, id);
    return constraint && kin_constraint_accept(constraint, id, &j->why) != 0 ? KIN_FAIL : id;
}

static int32_t next(void *user, float *logits) {
    kin_job *j = user;
    kin_job_event event = {.kind = KIN_JOB_TOKEN, .job = j, .user = j->o.user, .pooling = j->o.pooling};
    if (j->o.n_predict == 0) return stop(j, KIN_JOB_LENGTH);
    int32_t id = choose(j, logits, &event);
    if (id < 0 || (kin_vocab_is_eog(j->service->o.session->vocab, id) && !j->o.ignore_eos)) {
        free(event.top);
        return stop(j, id >= 0 ? KIN_JOB_EOS : j->is_refused ? KIN_JOB_REFUSED : KIN_JOB_FAILED);
    }
    event.id = id;
    event.at = kin_clock_now();
    event.drafts = j->drafts;
    j->n_generated++;
    queue_event(j->service, &event);
    if (j->o.constraint && kin_constraint_is_complete(j->o.constraint)) return stop(j, KIN_JOB_EOS);
    if (j->n_generated == 1) j->first = event.at;
    bool is_late = j->o.t_max_predict_ns && event.at - j->first >= j->o.t_max_predict_ns;
    if (is_late || j->n_generated == j->o.n_predict) return stop(j, KIN_JOB_LENGTH);
    return id;
}

// Row i follows the token at pos + i: it holds the probabilities of the next token.
static void prompt_logits(void *user, int pos, const float *rows, int n) {
    kin_job *j = user;
    int n_vocab = kin_vocab_n_tokens(j->service->o.session->vocab), n_row = j->service->o.session->model.hp.n_vocab;
    for (int i = -1; i < n; i++) { // -1: the first token, which has no row before it
        kin_job_event event = {.kind = KIN_JOB_ECHO, .job = j, .user = j->o.user, .at = kin_clock_now(), .logprob = NAN};
        double log_sum;
        if (pos + i + 1 != j->n_echoed || j->n_echoed == j->o.n_prompt) continue; // reported before
        event.id = j->o.prompt[j->n_echoed++];
        if (i >= 0) {
            const float *logits = rows + (size_t)i * (size_t)n_row;
            find_likeliest(j, logits, n_vocab, &event, &log_sum);
            if (event.id < n_vocab) event.logprob = logits[event.id] - (float)log_sum;
        }
        queue_event(j->service, &event);
    }
}

static void progress(void *user, int n_done, int n_cached) {
    kin_job *j = user;
    kin_job_event event = {.kind = KIN_JOB_PROGRESS,
                           .job = j,
                           .user = j->o.user,
                           .pooling = j->o.pooling,
                           .restores = j->o.restores,
                           .at = kin_clock_now()};
    event.n_done = n_done;
    event.n_cached = n_cached;
    queue_event(j->service, &event);
}

// Adds the mean, the first or the last of the rows. A preempted sequence starts again at pos 0.
static void hidden(void *user, int pos, const float *rows, int n) {
    kin_job *j = user;
    int n_embd = j->service->o.session->model.hp.n_embd;
    if (pos == 0) memset(j->vector, 0, (size_t)n_embd * sizeof *j->vector);
    for (int i = 0; i < n; i++, pos++) {
        bool is_first = pos == 0, is_last = pos == j->o.n_prompt - 1;
        const float *row = rows + (size_t)i * (size_t)n_embd;
        if (j->o.pooling == KIN_POOLING_CLS ? !is_first : j->o.pooling == KIN_POOLING_LAST && !is_last) continue;
        float part = j->o.pooling == KIN_POOLING_MEAN ? 1.0f / (float)j->o.n_prompt : 1;
        for (int k = 0; k < n_embd; k++) j->vector[k] += part * row[k];
    }
    j->how = KIN_JOB_EOS;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    kin_job *j = user;
    j->generation = NULL;
    switch (how) {
    case KIN_GENERATION_DONE: end_job(j, j->how, &j->why); break;
    case KIN_GENERATION_FULL: end_job(j, KIN_JOB_FULL, NULL); break;
    case KIN_GENERATION_CANCELLED: end_job(j, KIN_JOB_CANCELLED, NULL); break;
    case KIN_GENERATION_FAILED: end_job(j, KIN_JOB_FAILED, why); break;
    }
}

static void start_job(kin_service *s, kin_job *j) {
    kin_generation_options o = {.prompt = j->o.prompt,
                                .n_prompt = j->o.n_prompt,
                                .no_cache = j->o.no_cache,
                                .tag = j->o.tag,
                                .next = next,
                                .hidden = j->o.pooling ? hidden : NULL,
                                .prompt_logits = j->o.echoes ? prompt_logits : NULL,
                                .progress = progress,
                                .draft_counts = &j->drafts,
                                .ended = ended,
                                .user = j};
    kin_err err;
    if (!j->o.pooling && kin_compute_loop_open_drafter(s->loop, j->o.no_cache, &j->drafter, &err) != 0) {
        end_job(j, KIN_JOB_FAILED, &err);
        return;
    }
    o.drafts = kin_drafter_source(j->drafter);
    if (j->o.pooling) {
        o.no_cache = true;
        j->vector = calloc((size_t)s->o.session->model.hp.n_embd, sizeof *j->vector);
        if (!j->vector) {
            kin_err_set(&err, "out of memory");
            end_job(j, KIN_JOB_FAILED, &err);
            return;
        }
    }
    if (kin_scheduler_submit(s->scheduler, &o, &j->generation, &err) != 0) end_job(j, KIN_JOB_FAILED, &err);
}

// ---- the inbox

int kin_service_max_jobs(const kin_service *s) {
    return s->o.n_parallel + s->o.max_waiting;
}

bool kin_service_has_room(kin_service *s, int n) {
    pthread_mutex_lock(&s->mutex);
    bool has_room = s->n_jobs + n <= kin_service_max_jobs(s);
    pthread_mutex_unlock(&s->mutex);
    return has_room;
}

// Wakes the computing thread, wherever it waits.
static void call(kin_service *s) {
    kin_session_wake(s->o.session);
    if (s->o.called) s->o.called(s->o.called_user);
}

void kin_service_submit(kin_service *s, kin_job *j) {
    j->service = s;
    pthread_mutex_lock(&s->mutex);
    bool over = s->over;
    kin_assert(s->n_jobs < kin_service_max_jobs(s));
    s->n_jobs++;
    if (!over) {
        j->next = NULL;
        *s->inbox_end = j;
        s->inbox_end = &j->next;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    if (over) end_job(j, KIN_JOB_FAILED, &s->over_why);
    call(s);
}

// A job is listed once, so the array has room for all jobs. An ended job is not listed: it may be freed before the list is read.
void kin_service_cancel(kin_service *s, kin_job *j) {
    pthread_mutex_lock(&s->mutex);
    if (!j->cancelled && !j->ended) {
        j->cancelled = true;
        kin_assert(s->n_cancelled < KIN_SERVICE_MAX_JOBS);
        s->cancelled[s->n_cancelled++] = j;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    call(s);
}

static int add_query(kin_service *s, kin_job_event_kind kind, int tag, void *user) {
    pending_query *w = malloc(sizeof *w);
    if (!w) return KIN_FAIL;
    pthread_mutex_lock(&s->mutex);
    bool over = s->over;
    *w = (pending_query){.kind = kind, .tag = tag, .user = user};
    pending_query **last = &s->pending_queries; // handled in order of arrival
    while (*last) last = &(*last)->next;
    if (!over) *last = w;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (over) {
        queue_event(s, &(kin_job_event){.kind = kind, .user = user});
        free(w);
    }
    call(s);
    return 0;
}

int kin_service_erase(kin_service *s, int tag, void *user) {
    return add_query(s, KIN_SEQUENCES_ERASED, tag, user);
}

int kin_service_read_sequence(kin_service *s, int tag, void *user) {
    return add_query(s, KIN_SEQUENCE_READ, tag, user);
}

static void fulfil(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    pending_query *w = s->pending_queries;
    s->pending_queries = NULL;
    pthread_mutex_unlock(&s->mutex);
    for (pending_query *following; w; w = following) {
        kin_job_event event = {.kind = w->kind, .user = w->user};
        if (w->kind == KIN_SEQUENCES_ERASED)
            event.n_done = kin_scheduler_erase(s->scheduler, w->tag);
        else
            event.n_done = kin_scheduler_read_sequence(s->scheduler, w->tag, &event.tokens);
        queue_event(s, &event);
        following = w->next;
        free(w);
    }
}

void kin_service_stop(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    s->stopped = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    call(s);
}

static bool is_stopped(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    bool stopped = s->stopped;
    pthread_mutex_unlock(&s->mutex);
    return stopped || (s->o.stop && atomic_load(s->o.stop));
}

// Takes everything that arrived since the last step. Cancellations are handled only when the inbox is empty: the scheduler then
// knows their jobs.
static void read_inbox(kin_service *s) {
    for (bool any = true; any;) {
        pthread_mutex_lock(&s->mutex);
        kin_job *jobs = s->inbox, *cancelled = !jobs && s->n_cancelled > 0 ? s->cancelled[--s->n_cancelled] : NULL;
        s->inbox = NULL;
        s->inbox_end = &s->inbox;
        pthread_mutex_unlock(&s->mutex);
        for (kin_job *j = jobs, *following; j; j = following) {
            following = j->next;
            start_job(s, j);
        }
        if (cancelled) kin_scheduler_cancel(s->scheduler, cancelled->generation);
        any = jobs || cancelled;
    }
    fulfil(s);
}

// Waits at most LOOK_NS. Returns true if something has arrived.
static bool wait_for_jobs(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    if (!s->inbox && !s->pending_queries && !s->stopped && !(s->o.stop && atomic_load(s->o.stop)))
        kin_cond_wait_for(&s->changed, &s->mutex, LOOK_NS);
    bool any = (s->inbox || s->pending_queries) && !s->stopped;
    pthread_mutex_unlock(&s->mutex);
    return any;
}

// ---- running

// Only for a standalone machine: a cluster reports its shards itself (kin_cluster_ask_status).
static void publish_shard(kin_service *s) {
    kin_time now = kin_clock_now();
    if (s->o.session->clustered || now - s->weighed < WEIGH_NS) return;
    s->weighed = now;
    kin_shard_stats stats = kin_shard_get_stats(s->o.session->shard);
    pthread_mutex_lock(&s->mutex);
    s->status.shard = stats;
    pthread_mutex_unlock(&s->mutex);
}

static void publish(kin_service *s, bool is_up) {
    publish_shard(s);
    kin_scheduler_stats stats = kin_scheduler_get_stats(s->scheduler);
    pthread_mutex_lock(&s->mutex);
    bool changed = s->status.is_up != is_up;
    s->status.is_up = is_up;
    s->status.scheduler = stats;
    s->status.n_running = stats.n_running;
    s->status.expected_rate = kin_compute_loop_rate(s->loop, stats.n_running);
    pthread_mutex_unlock(&s->mutex);
    if (changed) s->o.wake(s->o.wake_user);
}

kin_service_status kin_service_get_status(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    kin_service_status status = s->status;
    int n_waiting = s->n_jobs - s->status.n_running; // a job that has just ended counts as running until the next publish
    status.n_waiting = n_waiting > 0 ? n_waiting : 0;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

// Runs while a ring is waited for: clients come and go.
static void meanwhile(void *user) {
    kin_service *s = user;
    read_inbox(s);
    publish(s, s->status.is_up);
}

static int enter(kin_service *s, kin_err *err) {
    if (kin_compute_loop_enter(s->loop, err) != 0) return KIN_FAIL;
    publish(s, true);
    return 0;
}

static void leave(kin_service *s) {
    kin_compute_loop_leave(s->loop);
    publish(s, true); // even if the ring was not brought up: the next job tries again
}

static int compute(kin_service *s, kin_err *err) {
    bool busy = true;
    while (busy && !is_stopped(s)) {
        read_inbox(s);
        if (kin_compute_loop_step(s->loop, &busy, err) != 0) return KIN_FAIL;
        publish(s, true);
        if (s->o.called) break; // other services have their turn
    }
    return 0;
}

// Computes until there are no jobs. If the ring cannot be brought up, the jobs fail; the next ones try again.
static void serve_jobs(kin_service *s) {
    kin_err err;
    bool computed = enter(s, &err) == 0 && compute(s, &err) == 0;
    leave(s);
    if (!computed && !is_stopped(s)) kin_scheduler_fail(s->scheduler, &err);
}

static bool has_texts(const kin_service *s) {
    kin_scheduler_stats stats = kin_scheduler_get_stats(s->scheduler);
    return stats.n_running > 0 || stats.n_waiting > 0;
}

static bool has_jobs(kin_service *s) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->inbox || s->pending_queries;
    pthread_mutex_unlock(&s->mutex);
    return any || has_texts(s);
}

int kin_service_begin(kin_service *s, kin_err *err) {
    int rc = enter(s, err);
    if (rc == 0 && s->o.begun) s->o.begun(s->o.begun_user);
    leave(s);
    return rc;
}

static int check_files(kin_service *s, kin_err *err) {
    if (kin_session_check_files(s->o.session, err) == 0) return 0;
    pthread_mutex_lock(&s->mutex);
    s->has_changed = true;
    pthread_mutex_unlock(&s->mutex);
    return KIN_FAIL;
}

bool kin_service_turn(kin_service *s) {
    kin_err why;
    if (s->has_changed) return false;
    if (has_jobs(s)) serve_jobs(s);
    if (check_files(s, &why) == 0) return has_jobs(s);
    kin_service_finish(s, &why);
    return false;
}

void kin_service_finish(kin_service *s, const kin_err *why) {
    publish(s, false);
    pthread_mutex_lock(&s->mutex);
    if (!s->over) s->over_why = why ? *why : stops;
    s->over = true;
    pthread_mutex_unlock(&s->mutex);
    read_inbox(s); // the last ones
    kin_scheduler_fail(s->scheduler, &s->over_why);
}

bool kin_service_has_changed(kin_service *s, kin_err *why) {
    pthread_mutex_lock(&s->mutex);
    bool has_changed = s->has_changed && s->over;
    if (has_changed) *why = s->over_why;
    pthread_mutex_unlock(&s->mutex);
    return has_changed;
}

int kin_service_run(kin_service *s, kin_err *err) {
    int rc = kin_service_begin(s, err);
    while (rc == 0 && !is_stopped(s)) {
        if (has_texts(s) || wait_for_jobs(s)) serve_jobs(s);
        rc = check_files(s, err);
    }
    if (rc != 0) check_files(s, err); // it may be the reason why it could not begin
    kin_service_finish(s, rc == 0 ? NULL : err);
    return rc;
}

int kin_service_open(kin_service **out, const kin_service_options *o, kin_err *err) {
    *out = NULL;
    kin_service *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    kin_assert(o->n_parallel > 0 && o->n_parallel + o->max_waiting <= KIN_SERVICE_MAX_JOBS);
    s->o = *o;
    s->inbox_end = &s->inbox;
    pthread_mutex_init(&s->mutex, NULL);
    kin_cond_init(&s->changed);
    if (kin_compute_loop_open(&s->loop, o->session, o->n_parallel, o->keeps, err) != 0) {
        kin_service_close(s);
        return KIN_FAIL;
    }
    s->scheduler = kin_compute_loop_scheduler(s->loop);
    kin_session_set_meanwhile(o->session, meanwhile, s);
    *out = s;
    return 0;
}

void kin_service_close(kin_service *s) {
    kin_job_event event;
    if (!s) return;
    while (kin_service_pop(s, &event)) {
        free(event.top);
        free(event.tokens);
        if (event.kind == KIN_JOB_ENDED) kin_job_free(event.job);
    }
    kin_compute_loop_close(s->loop);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s->outbox);
    free(s);
}
