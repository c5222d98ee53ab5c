#include "serve/call.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/apis/anthropic/messages.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/apis/responses/responses.h"
#include "serve/refuse.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"

const double kin_call_bucket_s[16] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, INFINITY};

// A grammar that takes more steps (10 to 20 ms) is compiled in a lane, so that such grammars occupy one thread of the pool.
enum { QUICK_STEPS = 1 << 21 };

struct kin_call {
    kin_call *next, **at; // list of all calls
    kin_call_shared *shared;
    const kin_call_route *route;
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone
    uv_work_t work;
    kin_lane_work preparing, compiling;
    atomic_bool is_gone; // the client is: for the pool
    bool is_slow;        // its grammar goes into the lane
    char *body;
    size_t n_body;
    kin_http_hold hold; // of the body and everything parsed from it
    int rc;             // of the preparation
    kin_api_error error;
    kin_prepared prepared;
    kin_writer_context context;
    kin_writer *writer;
    kin_choice *choices; // [prepared.n_sequences]
    int n_opened, n_running, n_jobs;
    bool is_answered; // the preparation has written the answer
    bool has_failed;
    kin_time last_sign; // time of the last bytes sent to the client
    kin_text_buffer out;
    // The last token, until it is sent in a delta.
    kin_token_probs probs;
    kin_token_prob top[KIN_JOB_MAX_PROBS];
    int32_t token;
    bool has_token;
};

// ---- the end of a call

static void free_prepared(uv_work_t *work) {
    kin_call *c = work->data;
    kin_prepared_fini(&c->prepared);
    kin_request_trim(c->hold.bytes);
}

static void prepared_is_free(uv_work_t *work, int status) {
    kin_call *c = work->data;
    (void)status;
    kin_http_release(&c->hold);
    free(c);
}

static void free_call(kin_call *c) {
    if (c->next) c->next->at = c->at;
    *c->at = c->next;
    for (int i = 0; i < c->n_opened; i++) kin_choice_close(&c->choices[i]);
    if (c->writer) c->route->format->close(c->writer);
    kin_text_fini(&c->out);
    free(c->choices);
    free(c->body);
    // A hostile body may contain millions of values, and freeing them would block the loop for too long.
    if (c->n_body > KIN_LARGE_BODY && uv_queue_work(c->shared->loop, &c->work, free_prepared, prepared_is_free) == 0) return;
    kin_prepared_fini(&c->prepared);
    kin_http_release(&c->hold);
    free(c);
}

// Jobs refer to the call until they have ended.
static void cancel_jobs(kin_call *c) {
    for (int i = 0; i < c->n_opened; i++) {
        if (c->choices[i].job) kin_service_cancel(c->shared->service, c->choices[i].job);
    }
    if (c->n_jobs == 0) free_call(c);
}

static bool is_stream(const kin_call *c) {
    return c->prepared.request.stream;
}

static void begin_stream(kin_call *c) {
    if (!kin_http_has_begun(c->x)) kin_begin_stream(c->x, c->route->format);
}

static void flush(kin_call *c) {
    if (c->out.len == 0 || !c->x) return;
    begin_stream(c);
    kin_http_write(c->x, c->out.at, c->out.len);
    c->out.len = 0;
    c->last_sign = kin_clock_now();
}

static void fail(kin_call *c, const kin_api_error *error) {
    c->has_failed = true;
    c->shared->counters.n_failed++;
    if (c->x && c->writer && kin_http_has_begun(c->x)) {
        c->route->format->fail(c->writer, error, &c->out);
        flush(c);
        kin_http_end(c->x);
    } else if (c->x) {
        kin_refuse(c->x, c->route->format, error);
    }
    c->x = NULL;
    cancel_jobs(c);
}

static void fail_with(kin_call *c, int status, const char *why) {
    kin_api_error error;
    kin_api_error_set(&error, status, NULL, "%s", why);
    fail(c, &error);
}

static void finish(kin_call *c) {
    c->route->format->end(c->writer, &c->out);
    if (c->out.failed) {
        fail_with(c, 500, "out of memory for the response");
        return;
    }
    if (is_stream(c)) {
        flush(c);
        kin_http_end(c->x);
    } else {
        kin_http_reply(c->x, 200, "application/json; charset=utf-8", c->out.at ? c->out.at : "", c->out.len);
    }
    c->x = NULL;
    cancel_jobs(c);
}

static void on_call_gone(void *self) {
    kin_call *c = self;
    c->x = NULL;
    c->shared->counters.n_cancelled++;
    atomic_store(&c->is_gone, true);
    if (c->n_running > 0)
        cancel_jobs(c);
    else if (c->is_slow && kin_lane_remove(c->shared->compiling, &c->compiling))
        free_call(c); // otherwise the pool is preparing it
}

// ---- preparing

typedef int (*parse_fn)(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);

// Translates the body of another API into one of OpenAI's or llama.cpp's. Takes over the body.
static int translate(kin_call *c, json_t **body, parse_fn *parse) {
    json_t *from = *body;
    kin_ollama_kind kind = KIN_OLLAMA_CHAT;
    int rc = 0;
    *parse = kin_request_from_chat;
    switch (c->route->body) {
    case KIN_BODY_CHAT: return 0;
    case KIN_BODY_INFILL:
    case KIN_BODY_NATIVE: *parse = kin_request_from_native; return 0;
    case KIN_BODY_COMPLETIONS: *parse = kin_request_from_completions; return 0;
    case KIN_BODY_RESPONSES: rc = kin_responses_to_chat(body, from, &c->error); break;
    case KIN_BODY_MESSAGES: rc = kin_messages_to_chat(body, from, &c->error); break;
    case KIN_BODY_OLLAMA_CHAT: rc = kin_ollama_translate_chat(&kind, body, from, &c->error); break;
    case KIN_BODY_OLLAMA_GENERATE: rc = kin_ollama_translate_generate(&kind, body, from, &c->error); break;
    }
    json_decref(from);
    if (rc != 0) *body = NULL;
    if (kind == KIN_OLLAMA_NATIVE) *parse = kin_request_from_native;
    if (rc != 0 || kind == KIN_OLLAMA_CHAT || kind == KIN_OLLAMA_NATIVE) return rc;
    kin_ollama_put_loaded(kind, c->route->body == KIN_BODY_OLLAMA_CHAT, c->shared->model, (int64_t)time(NULL), &c->out);
    c->is_answered = true;
    json_decref(*body);
    return 0;
}

static bool is_gone(void *call) {
    return atomic_load(&((kin_call *)call)->is_gone);
}

static kin_grammar_budget budget_of(kin_call *c, uint64_t steps) {
    kin_grammar_budget budget = kin_grammar_budget_of(steps);
    budget.stopped = is_gone;
    budget.user = c;
    return budget;
}

static void prepare_call(kin_call *c) {
    const kin_call_shared *w = c->shared;
    kin_request request = {0};
    parse_fn parse;
    json_t *body = kin_request_parse((kin_str){c->body, c->n_body}, &c->error);
    c->rc = body ? translate(c, &body, &parse) : KIN_FAIL;
    if (c->rc != 0 || c->is_answered) return;
    c->rc = c->route->body == KIN_BODY_INFILL ? kin_request_from_infill(&request, body, &w->fim, &w->defaults, &c->error)
                                              : parse(&request, body, &w->defaults, &c->error);
    if (c->rc == 0 && c->route->body == KIN_BODY_CHAT) c->rc = kin_request_check_roles(&request, &c->error);
    if (c->rc == 0 && request.suffix) c->rc = kin_request_frame_prompts(&request, &w->fim, &c->error);
    if (c->rc == 0) c->rc = kin_prepare(&c->prepared, &w->preparer, &request, &c->error);
    if (c->rc != 0) return;
    kin_grammar_budget budget = budget_of(c, QUICK_STEPS);
    c->rc = kin_prepare_grammar(&c->prepared, &w->preparer, &budget, &c->error);
    c->is_slow = budget.is_spent;
}

static void prepare_in_pool(kin_lane_work *work) {
    prepare_call(work->user);
}

static void random_id(char id[40]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint8_t bytes[32];
    uv_random(NULL, NULL, bytes, sizeof bytes, 0, NULL);
    for (size_t i = 0; i < sizeof bytes; i++) id[i] = letters[bytes[i] % (sizeof letters - 1)];
    id[sizeof bytes] = 0;
}

static void handle_reply_events(void *user, int index, const kin_reply_event *events, int n);

static int open_choices(kin_call *c, kin_err *err) {
    kin_prepared *p = &c->prepared;
    c->choices = calloc((size_t)p->n_sequences, sizeof *c->choices);
    if (!c->choices) return kin_err_set(err, "out of memory");
    for (int i = 0; i < p->n_sequences; i++) {
        kin_choice *choice = &c->choices[i];
        c->n_opened++;
        if (kin_choice_open(choice, c->shared->preparer.session->vocab, &p->request, p->request.is_chat ? &p->reply : NULL,
                            err) != 0)
            return KIN_FAIL;
        choice->index = i;
        choice->on_events = handle_reply_events;
        choice->user = c;
        choice->n_prompt = p->jobs[i].n_prompt;
        choice->submitted = kin_clock_now();
        p->jobs[i].user = choice;
    }
    return 0;
}

static int open_writer(kin_call *c, kin_err *err) {
    const kin_prepared *p = &c->prepared;
    c->context = (kin_writer_context){.request = &p->request,
                                      .model = c->shared->model,
                                      .fingerprint = c->shared->fingerprint,
                                      .created_s = (int64_t)time(NULL),
                                      .n_choices = p->n_sequences,
                                      .n_prompt = p->jobs[0].n_prompt,
                                      .prompts = p->prompts};
    random_id(c->context.id);
    return c->route->format->open(&c->writer, &c->context, err);
}

static int submit(kin_call *c, kin_err *err) {
    for (int i = 0; i < c->prepared.n_sequences; i++) {
        kin_choice *choice = &c->choices[i];
        kin_job_options options = c->prepared.jobs[i];
        c->prepared.jobs[i] = (kin_job_options){0}; // the job owns it now
        if (kin_job_new(&choice->job, &options, err) != 0) return KIN_FAIL;
        kin_service_submit(c->shared->service, choice->job);
        c->n_running++;
        c->n_jobs++;
    }
    return 0;
}

// Checks that the model is the requested one, and that there is room for all sequences.
static int check(const kin_call *c, kin_api_error *error) {
    int n = c->prepared.n_sequences, n_most = kin_service_max_jobs(c->shared->service);
    if (kin_model_names_check(&c->shared->names, c->prepared.request.model, error) != 0) return KIN_FAIL;
    if (n > n_most)
        return kin_api_error_set(
            error, 400, NULL,
            "the request asks for %d completions, but this server accepts %d at once: ask for fewer, or start it with a "
            "larger --max-queue",
            n, n_most);
    if (kin_service_has_room(c->shared->service, n)) return 0;
    return kin_api_error_set(error, 429, NULL, "the queue is full: try again in a moment");
}

// Adds a header that names the parts of schemas that are not enforced, unless the stream's header was sent while its model was
// loading.
static void add_relaxed_header(kin_call *c) {
    kin_text_buffer *relaxed = &c->prepared.relaxed;
    if (relaxed->len == 0 || relaxed->failed || kin_http_has_begun(c->x)) return;
    for (size_t i = 0; i < relaxed->len; i++) {
        if (relaxed->at[i] < 0x20 || relaxed->at[i] > 0x7e) relaxed->at[i] = '?';
    }
    relaxed->at[relaxed->len] = '\0';
    kin_http_add_header(c->x, "X-Kin-Relaxed", relaxed->at);
}

static void start(kin_call *c) {
    kin_err err;
    kin_api_error error;
    if (check(c, &error) != 0) {
        fail(c, &error);
        return;
    }
    if (open_choices(c, &err) != 0 || open_writer(c, &err) != 0) {
        fail_with(c, 500, err.text);
        return;
    }
    add_relaxed_header(c);
    c->last_sign = kin_clock_now();
    c->route->format->start(c->writer, &c->out);
    if (submit(c, &err) != 0) fail_with(c, 500, err.text);
}

// Sends an answer that needs no generation.
static void answer(kin_call *c) {
    kin_http_reply(c->x, 200, "application/json; charset=utf-8", c->out.at ? c->out.at : "", c->out.len);
    c->x = NULL;
    free_call(c);
}

static void compile_in_lane(kin_lane_work *work) {
    kin_call *c = work->user;
    kin_grammar_budget budget = budget_of(c, KIN_GRAMMAR_MAX_STEPS);
    c->rc = kin_prepare_grammar(&c->prepared, &c->shared->preparer, &budget, &c->error);
}

static void go_on(kin_call *c, int status);

static void compiled(kin_lane_work *work, int status) {
    go_on(work->user, status);
}

static void queue_compiling(kin_call *c) {
    c->compiling = (kin_lane_work){.run = compile_in_lane, .done = compiled, .user = c};
    if (!kin_lane_queue(c->shared->compiling, &c->compiling))
        fail_with(c, 503, "too many requests wait whose schemas or grammars take long to compile: try again in a moment");
}

static void prepared(kin_lane_work *work, int status) {
    kin_call *c = work->user;
    free(c->body);
    c->body = NULL;
    if (c->x && status == 0 && c->is_slow)
        queue_compiling(c);
    else
        go_on(c, status);
}

// After the preparation, or its failure.
static void go_on(kin_call *c, int status) {
    if (!c->x)
        free_call(c);
    else if (status != 0)
        fail_with(c, 503, "the server is shutting down");
    else if (c->rc != 0)
        fail(c, &c->error);
    else if (c->is_answered)
        answer(c);
    else
        start(c);
}

void kin_call_begin(kin_call_shared *shared, const kin_call_route *route, kin_http_exchange *x) {
    kin_call *c = calloc(1, sizeof *c);
    kin_api_error error;
    if (!c) {
        kin_api_error_set(&error, 500, NULL, "out of memory");
        kin_refuse(x, route->format, &error);
        return;
    }
    shared->counters.n_requests++;
    c->shared = shared;
    c->route = route;
    c->x = x;
    c->data = (kin_exchange_data){on_call_gone, c};
    kin_http_set_data(x, &c->data);
    c->next = shared->calls;
    c->at = &shared->calls;
    if (c->next) c->next->at = &c->next;
    shared->calls = c;
    c->body = kin_http_detach_body(x, &c->n_body, &c->hold);
    c->work.data = c;
    c->preparing = (kin_lane_work){.run = prepare_in_pool, .done = prepared, .user = c};
    kin_lane_run(shared->huge, &c->preparing, c->n_body > KIN_HUGE_BODY);
}

// ---- tokens

static void send_delta(kin_call *c, kin_choice *choice, const kin_reply_event *events, int n) {
    kin_delta delta = {.choice = choice->index, .events = events, .n_events = n, .so_far = kin_choice_timings(choice)};
    if (c->has_token) {
        delta.tokens = &c->token;
        delta.probs = c->prepared.request.n_probs >= 0 ? &c->probs : NULL;
        delta.n_tokens = 1;
        c->has_token = false;
    }
    c->route->format->delta(c->writer, &delta, &c->out);
}

static void handle_reply_events(void *user, int index, const kin_reply_event *events, int n) {
    kin_call *c = user;
    send_delta(c, &c->choices[index], events, n);
}

static void count_in(uint64_t *buckets, double seconds) {
    int i = 0;
    while (seconds > kin_call_bucket_s[i]) i++;
    buckets[i]++;
}

static void count_token(kin_call *c, kin_choice *choice, kin_time at) {
    struct kin_call_counters *t = &c->shared->counters;
    if (!choice->first) {
        double seconds = kin_clock_ms(choice->submitted, at) / 1e3;
        choice->first = at;
        count_in(t->ttft_buckets, seconds);
        t->ttft_s += seconds;
    } else {
        double seconds = kin_clock_ms(choice->last, at) / 1e3;
        count_in(t->gap_buckets, seconds);
        t->gap_s += seconds;
    }
    choice->last = at;
}

static void copy_probs(kin_call *c, const kin_job_event *e) {
    const kin_vocab *vocab = c->shared->preparer.session->vocab;
    for (int i = 0; i < e->n_top; i++)
        c->top[i] = (kin_token_prob){e->top[i].id, kin_vocab_piece(vocab, e->top[i].id), e->top[i].logprob};
    c->probs = (kin_token_probs){{e->id, kin_vocab_piece(vocab, e->id), e->logprob}, c->top, e->n_top};
}

// Handles a token of the prompt.
static void handle_echo(kin_call *c, const kin_choice *choice, const kin_job_event *e) {
    copy_probs(c, e);
    kin_delta delta = {.choice = choice->index, .tokens = &e->id, .probs = &c->probs, .n_tokens = 1, .is_prompt = true};
    c->route->format->delta(c->writer, &delta, &c->out);
}

static void end_choice(kin_call *c, kin_choice *choice, kin_finish_reason reason, bool truncated) {
    kin_err err;
    struct kin_call_counters *t = &c->shared->counters;
    if (kin_choice_flush(choice, reason != KIN_FINISH_EOS, &err) != 0) {
        fail_with(c, 500, err.text);
        return;
    }
    if (reason == KIN_FINISH_EOS && choice->stop_word >= 0) reason = KIN_FINISH_STOP_WORD;
    if (reason == KIN_FINISH_EOS && choice->has_calls && !choice->in_call) reason = KIN_FINISH_TOOL_CALLS;
    kin_timings timings = kin_choice_timings(choice);
    int id_slot = c->prepared.request.id_slot;
    kin_finish finish_of = {.choice = choice->index,
                            .slot = id_slot < 0 ? 0 : id_slot,
                            .reason = reason,
                            .stop_word = choice->stop_word >= 0 ? c->prepared.request.stops[choice->stop_word] : (kin_str){"", 0},
                            .n_prompt = timings.n_prompt,
                            .n_cached = timings.n_cached,
                            .n_generated = timings.n_generated,
                            .n_reasoning = choice->n_reasoning,
                            .prompt_ms = timings.prompt_ms,
                            .generated_ms = timings.generated_ms,
                            .drafts = timings.drafts,
                            .truncated = truncated,
                            .seed = c->prepared.seeds[choice->index]};
    t->n_prompt += (uint64_t)timings.n_prompt;
    t->n_cached += (uint64_t)timings.n_cached;
    t->n_generated += (uint64_t)timings.n_generated;
    uint64_t n_after_first = (uint64_t)(timings.n_generated - (timings.n_generated > 0));
    uint64_t n_all = (uint64_t)timings.n_prompt + n_after_first;
    t->n_after_first += n_after_first;
    if (n_all > t->n_longest) t->n_longest = n_all;
    t->prompt_s += timings.prompt_ms / 1e3;
    t->generated_s += timings.generated_ms / 1e3;
    c->route->format->finish(c->writer, &finish_of, &c->out);
    if (--c->n_running == 0)
        finish(c);
    else if (is_stream(c))
        flush(c);
}

static void handle_token(kin_call *c, kin_choice *choice, const kin_job_event *e) {
    kin_err err;
    if (kin_choice_is_cut(choice)) return; // it came after the end of the text
    count_token(c, choice, e->at);
    choice->drafts = e->drafts;
    if (c->prepared.request.n_probs >= 0) copy_probs(c, e);
    c->token = e->id;
    c->has_token = true;
    if (kin_choice_push(choice, e->id, (kin_str){"", 0}, &err) != 0) {
        fail_with(c, 500, err.text);
        return;
    }
    if (c->has_token) send_delta(c, choice, NULL, 0);
    if (is_stream(c)) flush(c);
    if (!kin_choice_is_cut(choice)) return;
    kin_service_cancel(c->shared->service, choice->job);
    end_choice(c, choice, choice->stop_word >= 0 ? KIN_FINISH_STOP_WORD : KIN_FINISH_LENGTH, false);
}

static void handle_end(kin_call *c, kin_choice *choice, const kin_job_event *e) {
    choice->job = NULL;
    choice->drafts = e->drafts;
    c->n_jobs--;
    bool is_over = !c->x || c->has_failed;
    if (!is_over && !kin_choice_is_cut(choice)) {
        switch (e->how) {
        case KIN_JOB_EOS: end_choice(c, choice, KIN_FINISH_EOS, false); return;
        case KIN_JOB_LENGTH: end_choice(c, choice, KIN_FINISH_LENGTH, false); return;
        case KIN_JOB_FULL: end_choice(c, choice, KIN_FINISH_LENGTH, true); return;
        case KIN_JOB_REFUSED: fail_with(c, 400, e->why.text); return;
        case KIN_JOB_CANCELLED:
        case KIN_JOB_FAILED: fail_with(c, 503, e->how == KIN_JOB_FAILED ? e->why.text : "the request was cancelled"); return;
        }
    }
    if (c->n_jobs == 0 && is_over) free_call(c);
}

static void handle_progress(kin_call *c, kin_choice *choice, const kin_job_event *e) {
    const kin_api_format *f = c->route->format;
    if (!choice->first) { // later ones belong to a preempted sequence that is computed again
        choice->n_cached = e->n_cached;
        choice->n_done = e->n_done;
    }
    if (!is_stream(c)) return;
    if (c->prepared.request.return_progress && f->progress && e->n_done <= choice->n_prompt)
        f->progress(c->writer, choice->index, e->n_done, e->n_cached, choice->n_prompt, kin_clock_ms(choice->submitted, e->at),
                    &c->out);
    begin_stream(c); // some clients have a short timeout for the header
    flush(c);
}

void kin_call_handle(kin_call_shared *shared, kin_job_event *e) {
    (void)shared;
    kin_choice *choice = e->user;
    kin_call *c = choice->user;
    bool is_over = !c->x || c->has_failed;
    if (e->kind == KIN_JOB_ENDED)
        handle_end(c, choice, e);
    else if (!is_over && e->kind == KIN_JOB_TOKEN)
        handle_token(c, choice, e);
    else if (!is_over && e->kind == KIN_JOB_ECHO)
        handle_echo(c, choice, e);
    else if (!is_over)
        handle_progress(c, choice, e);
    free(e->top);
    if (e->kind == KIN_JOB_ENDED) kin_job_free(e->job);
}

int kin_call_views(const kin_call_shared *shared, kin_slot_view *views, int n_max) {
    int n = 0;
    for (const kin_call *c = shared->calls; c; c = c->next) {
        for (int i = 0; i < c->n_opened && n < n_max; i++) {
            const kin_choice *choice = &c->choices[i];
            const kin_request *r = &c->prepared.request;
            if (!choice->job) continue;
            views[n] = (kin_slot_view){.task = n,
                                       .is_processing = true,
                                       .n_prompt = choice->n_prompt,
                                       .n_done = choice->first ? choice->n_prompt : choice->n_done,
                                       .n_cached = choice->n_cached,
                                       .request = r,
                                       .seed = c->prepared.seeds[i],
                                       .n_generated = choice->n_generated,
                                       .n_left = r->n_predict < 0 ? -1 : r->n_predict - choice->n_generated,
                                       .has_new_line = choice->has_new_line};
            n++;
        }
    }
    return n;
}

void kin_call_tick(kin_call_shared *shared, kin_time now) {
    for (kin_call *c = shared->calls, *next; c; c = next) {
        next = c->next;
        if (!c->x || !c->writer || !is_stream(c)) continue; // without a writer, the pool may be preparing it
        int own_s = c->prepared.request.sse_ping_s, ping_s = own_s == KIN_REQUEST_PING_OF_SERVER ? shared->ping_s : own_s;
        if (ping_s <= 0) continue;
        if (now < c->last_sign + (kin_time)ping_s * 1000000000) continue;
        if (c->route->format->ping) kin_text_print(&c->out, "%s", c->route->format->ping);
        flush(c);
    }
}
