// The computing side of a server with several models (serve/model_host.h): it loads and unloads models as ordered, computes the
// requests of all models in turns, and reports failures. All files are the demo model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/demo_model.h"
#include "serve/model_host.h"
#include "sys/cond.h"
#include "sys/whole_file.h"
#include "testkit/silent_console.h"
#include "tests/place.h"

enum { A, B, LOST, N_MODELS, N_CTX = 1024, N_MADE = 24, ENDLESS = N_CTX - 100, HANG_S = 300 };

static char path[] = "/tmp/kin-test-model-host-XXXXXX", lost[sizeof path + 5];

// ---- a host, and the loop's side of it

typedef struct request {
    kin_job *job;
    int32_t made[N_MADE];
    int n_made;
    bool has_ended;
    kin_job_end how;
} request;

typedef struct context {
    kin_model_file files[N_MODELS];
    kin_model_host *host;
    kin_loaded_model *loaded[N_MODELS]; // from the answers
    atomic_bool stop;
    kin_console console;
    pthread_t thread;
    kin_err why; // the error of a failed begin
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool has_woken, has_failed;
} context;

static void wake(void *user) {
    context *w = user;
    pthread_mutex_lock(&w->mutex);
    w->has_woken = true;
    pthread_cond_signal(&w->woken);
    pthread_mutex_unlock(&w->mutex);
}

static void wait_for_news(context *w) {
    pthread_mutex_lock(&w->mutex);
    while (!w->has_woken) pthread_cond_wait(&w->woken, &w->mutex);
    w->has_woken = false;
    pthread_mutex_unlock(&w->mutex);
}

static void *compute(void *user) {
    context *w = user;
    bool failed = kin_model_host_begin(w->host, &w->why) != 0;
    if (!failed) kin_model_host_run(w->host);
    pthread_mutex_lock(&w->mutex);
    w->has_failed = failed;
    pthread_mutex_unlock(&w->mutex);
    wake(w);
    return NULL;
}

static bool has_failed(context *w) {
    pthread_mutex_lock(&w->mutex);
    bool failed = w->has_failed;
    pthread_mutex_unlock(&w->mutex);
    return failed;
}

// Starts a host. first: the file to load at the start, or -1.
static void open_context(context *w, int first) {
    kin_err err;
    *w = (context){.console = kin_silent_console(&w->stop)};
    pthread_mutex_init(&w->mutex, NULL);
    kin_cond_init(&w->woken);
    for (int i = 0; i < N_MODELS; i++) {
        kin_model_file *f = &w->files[i];
        int which = first <= 0 ? i : (i + first) % N_MODELS;
        snprintf(f->name, sizeof f->name, "%c", 'a' + which);
        snprintf(f->path, sizeof f->path, "%s", which == LOST ? lost : path);
    }
    kin_model_host_options o = {.files = w->files, .n = N_MODELS, .has_first = first >= 0};
    o.loading = (kin_loaded_model_options){.session = kin_session_options_defaults(), .n_ctx = N_CTX};
    o.loading.session.console = &w->console;
    o.loading.session.n_threads = 1;
    o.loading.session.gpu_layers = "0";
    o.loading.session.no_kv_disk = o.loading.session.no_cache = true;
    o.loading.session.draft = "off";
    o.loading.service = (kin_service_options){.n_parallel = 4, .max_waiting = 4, .stop = &w->stop, .wake = wake, .wake_user = w};
    alarm(HANG_S);
    assert_int_equal(kin_model_host_open(&w->host, &o, &err), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, compute, w), 0);
    while (!kin_model_host_is_up(w->host) && !has_failed(w)) wait_for_news(w);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void stop(context *w) {
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
}

static void close_context(context *w) {
    if (!atomic_load(&w->stop)) stop(w);
    kin_model_host_close(w->host);
    pthread_cond_destroy(&w->woken);
    pthread_mutex_destroy(&w->mutex);
    alarm(0);
}

// Applies the events of all models' services.
static void handle_events(context *w) {
    kin_job_event e;
    for (int i = 0; i < N_MODELS; i++) {
        while (w->loaded[i] && kin_service_pop(w->loaded[i]->service, &e)) {
            request *t = e.user;
            assert_false(t->has_ended);
            if (e.kind == KIN_JOB_TOKEN && t->n_made++ < N_MADE) t->made[t->n_made - 1] = e.id;
            free(e.top);
            if (e.kind != KIN_JOB_ENDED) continue;
            t->has_ended = true;
            t->how = e.how;
            kin_job_free(e.job);
        }
    }
}

static kin_model_answer wait_for_answer(context *w) {
    kin_model_answer answer;
    for (; !kin_model_host_pop(w->host, &answer); wait_for_news(w)) handle_events(w);
    w->loaded[answer.model] = answer.loaded;
    return answer;
}
#define wait_for_answer(...) FROM_TEST(wait_for_answer(__VA_ARGS__))

static void load(context *w, int i) {
    kin_model_host_order(w->host, i, true);
    kin_model_answer answer = wait_for_answer(w);
    assert_int_equal(answer.model, i);
    assert_false(answer.failed);
    assert_non_null(answer.loaded);
}
#define load(...) FROM_TEST(load(__VA_ARGS__))

static void submit(context *w, request *t, int i, int n_predict) {
    kin_loaded_model *m = w->loaded[i];
    kin_sampler_options so = kin_sampler_options_defaults();
    kin_job_options o = {.n_prompt = 3, .n_predict = n_predict, .n_probs = -1, .ignore_eos = true, .user = t};
    kin_err err;
    *t = (request){0};
    so.temperature = 0;
    assert_int_equal(kin_sampler_new(&o.sampler, kin_vocab_n_tokens(m->session.vocab), &so, &err), 0);
    o.prompt = malloc((size_t)o.n_prompt * sizeof *o.prompt);
    for (int k = 0; k < o.n_prompt; k++) o.prompt[k] = 300 + 7 * k;
    assert_int_equal(kin_job_new(&t->job, &o, &err), 0);
    kin_service_submit(m->service, t->job);
}
#define submit(...) FROM_TEST(submit(__VA_ARGS__))

static void wait_for_tokens(context *w, const request *t, int n) {
    for (handle_events(w); t->n_made < n; handle_events(w)) {
        assert_false(t->has_ended);
        wait_for_news(w);
    }
}
#define wait_for_tokens(...) FROM_TEST(wait_for_tokens(__VA_ARGS__))

static void wait_for_end(context *w, const request *t) {
    for (handle_events(w); !t->has_ended; handle_events(w)) wait_for_news(w);
}
#define wait_for_end(...) FROM_TEST(wait_for_end(__VA_ARGS__))

static void expect_same(const request *a, const request *b) {
    assert_int_equal(a->how, KIN_JOB_LENGTH);
    assert_int_equal(a->n_made, N_MADE);
    assert_memory_equal(a->made, b->made, sizeof a->made);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

// ---- claims

static void a_model_is_there_from_the_order_to_load_it_to_the_order_to_unload_it(void **state) {
    (void)state;
    context w;
    request first, again;
    open_context(&w, -1);
    load(&w, B);
    submit(&w, &first, B, N_MADE);
    wait_for_end(&w, &first);
    kin_model_host_order(w.host, B, false);
    kin_model_answer answer = wait_for_answer(&w);
    assert_int_equal(answer.model, B);
    assert_null(answer.loaded);
    assert_false(answer.failed);
    load(&w, B);
    submit(&w, &again, B, N_MADE);
    wait_for_end(&w, &again);
    expect_same(&first, &again);
    close_context(&w);
}

static void the_first_model_comes_without_an_order(void **state) {
    (void)state;
    context w;
    request t;
    open_context(&w, A);
    kin_model_answer answer = wait_for_answer(&w);
    assert_int_equal(answer.model, A);
    assert_non_null(answer.loaded);
    submit(&w, &t, A, 2);
    wait_for_end(&w, &t);
    assert_int_equal(t.n_made, 2);
    close_context(&w);
}

static void without_its_first_model_a_host_does_not_begin(void **state) {
    (void)state;
    context w;
    open_context(&w, LOST);
    assert_true(has_failed(&w));
    assert_non_null(strstr(w.why.text, lost));
    assert_false(kin_model_host_is_up(w.host));
    close_context(&w);
}

static void a_model_that_cannot_be_loaded_is_told_and_others_go_on(void **state) {
    (void)state;
    context w;
    request t, late;
    open_context(&w, -1);
    load(&w, A);
    submit(&w, &t, A, ENDLESS);
    wait_for_tokens(&w, &t, 1);
    kin_model_host_order(w.host, LOST, true);
    kin_model_answer answer = wait_for_answer(&w);
    assert_int_equal(answer.model, LOST);
    assert_true(answer.failed);
    assert_null(answer.loaded);
    assert_non_null(strstr(answer.why.text, lost));
    wait_for_tokens(&w, &t, t.n_made + 1);
    assert_int_equal(symlink(path, lost), 0); // the next order tries to load it again
    load(&w, LOST);
    assert_int_equal(unlink(lost), 0);
    submit(&w, &late, LOST, 2);
    wait_for_end(&w, &late);
    kin_service_cancel(w.loaded[A]->service, t.job);
    wait_for_end(&w, &t);
    assert_int_equal(t.how, KIN_JOB_CANCELLED);
    close_context(&w);
}

static void sequences_of_two_models_are_written_in_turns_each_as_alone(void **state) {
    (void)state;
    context w;
    request alone, endless, beside;
    open_context(&w, A);
    wait_for_answer(&w);
    submit(&w, &alone, A, N_MADE);
    wait_for_end(&w, &alone);
    submit(&w, &endless, A, ENDLESS);
    wait_for_tokens(&w, &endless, 1);
    load(&w, B); // while A generates
    submit(&w, &beside, B, N_MADE);
    wait_for_end(&w, &beside);
    expect_same(&beside, &alone);
    int n = endless.n_made;
    assert_true(n < ENDLESS); // B's request did not wait for the end of A's
    kin_service_cancel(w.loaded[A]->service, endless.job);
    wait_for_end(&w, &endless);
    assert_memory_equal(endless.made, alone.made, sizeof alone.made);
    close_context(&w);
}

static void a_sequence_may_be_cancelled_while_another_model_is_loaded(void **state) {
    (void)state;
    context w;
    request t, queued;
    open_context(&w, A);
    wait_for_answer(&w);
    submit(&w, &t, A, ENDLESS);
    wait_for_tokens(&w, &t, 1);
    kin_model_host_order(w.host, B, true);
    kin_service_cancel(w.loaded[A]->service, t.job);
    submit(&w, &queued, A, ENDLESS);
    kin_service_cancel(w.loaded[A]->service, queued.job); // before the computing thread has seen it
    wait_for_answer(&w);
    wait_for_end(&w, &t);
    wait_for_end(&w, &queued);
    assert_int_equal(t.how, KIN_JOB_CANCELLED);
    assert_int_equal(queued.how, KIN_JOB_CANCELLED);
    close_context(&w);
}

static void what_is_written_when_the_host_stops_ends_as_failed(void **state) {
    (void)state;
    context w;
    request a, b;
    open_context(&w, A);
    wait_for_answer(&w);
    load(&w, B);
    submit(&w, &a, A, ENDLESS);
    submit(&w, &b, B, ENDLESS);
    wait_for_tokens(&w, &a, 1);
    wait_for_tokens(&w, &b, 1);
    stop(&w);
    wait_for_end(&w, &a);
    wait_for_end(&w, &b);
    assert_int_equal(a.how, KIN_JOB_FAILED);
    assert_int_equal(b.how, KIN_JOB_FAILED);
    close_context(&w);
}

static int write_model(void **state) {
    kin_err err;
    (void)state;
    int fd = mkstemp(path);
    snprintf(lost, sizeof lost, "%s.none", path);
    if (fd < 0 || close(fd) != 0) return -1;
    return kin_whole_file_write(path, kin_demo_model_bytes(), kin_demo_model_size(), &err);
}

static int remove_model(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_there_from_the_order_to_load_it_to_the_order_to_unload_it),
        cmocka_unit_test(the_first_model_comes_without_an_order),
        cmocka_unit_test(without_its_first_model_a_host_does_not_begin),
        cmocka_unit_test(a_model_that_cannot_be_loaded_is_told_and_others_go_on),
        cmocka_unit_test(sequences_of_two_models_are_written_in_turns_each_as_alone),
        cmocka_unit_test(a_sequence_may_be_cancelled_while_another_model_is_loaded),
        cmocka_unit_test(what_is_written_when_the_host_stops_ends_as_failed),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
