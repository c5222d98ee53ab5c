// The computing side of a server (serve/service.h): jobs arrive and are cancelled at any moment, and each gives the same text as
// when it runs alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "serve/service.h"
#include "sys/cond.h"
#include "testkit/logits.h"
#include "testkit/ref/dequant.h"
#include "testkit/ref/forward.h"
#include "testkit/ref_load.h"
#include "testkit/silent_console.h"
#include "tests/place.h"

enum { N_CTX = 2048, MAX_MADE = 24, ENDLESS = N_CTX - 100, N_PROMPT = 40, N_EMBD = 256 };

static kin_session session;
static atomic_bool never;

static kin_console console;

static int open_session(void **state) {
    (void)state;
    kin_session_options o = kin_session_options_defaults();
    kin_err err;
    console = kin_silent_console(&never);
    o.console = &console;
    o.n_threads = 1;
    o.n_ctx = N_CTX;
    o.gpu_layers = "0";
    return kin_session_open_model(&session, &o, &err) != 0 || kin_session_open(&session, &o, N_CTX, &err) != 0 ? -1 : 0;
}

static int close_session(void **state) {
    (void)state;
    kin_session_close(&session);
    return 0;
}

// ---- a service, and the loop's side of it

typedef struct context {
    kin_service *service;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool has_woken;
    int n_begun;
    _Atomic(kin_job *) leaves; // is cancelled when the service next calls `wake`; NULL: none
} context;

typedef struct request {
    kin_job *job;
    int32_t made[MAX_MADE];
    int n_made, n_ended;
    kin_job_end how;
    float vector[N_EMBD]; // with pooling
} request;

static void wake(void *user) {
    context *w = user;
    if (w->service) assert_true(kin_service_get_status(w->service).n_waiting >= 0);
    kin_job *leaves = atomic_exchange(&w->leaves, NULL);
    if (leaves) kin_service_cancel(w->service, leaves);
    pthread_mutex_lock(&w->mutex);
    w->has_woken = true;
    pthread_cond_signal(&w->woken);
    pthread_mutex_unlock(&w->mutex);
}

static void on_begun(void *user) {
    context *w = user;
    assert_true(kin_service_get_status(w->service).is_up);
    w->n_begun++;
}

static void *run(void *user) {
    kin_err err;
    assert_int_equal(kin_service_run(((context *)user)->service, &err), 0);
    return NULL;
}

static void wait_for_news(context *w) {
    pthread_mutex_lock(&w->mutex);
    while (!w->has_woken) pthread_cond_wait(&w->woken, &w->mutex);
    w->has_woken = false;
    pthread_mutex_unlock(&w->mutex);
}

static void open_context(context *w, int n_parallel, int max_waiting, bool keeps) {
    kin_err err;
    *w = (context){0};
    pthread_mutex_init(&w->mutex, NULL);
    kin_cond_init(&w->woken);
    kin_service_options o = {
        .session = &session, .n_parallel = n_parallel, .max_waiting = max_waiting, .keeps = keeps, .wake = wake, .wake_user = w};
    o.begun = on_begun;
    o.begun_user = w;
    assert_int_equal(kin_service_open(&w->service, &o, &err), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
    while (!kin_service_get_status(w->service).is_up) wait_for_news(w);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void end_run(context *w) {
    kin_service_stop(w->service);
    pthread_join(w->thread, NULL);
    assert_int_equal(w->n_begun, 1);
}
#define end_run(...) FROM_TEST(end_run(__VA_ARGS__))

static void close_context(context *w) {
    kin_service_close(w->service);
    pthread_cond_destroy(&w->woken);
    pthread_mutex_destroy(&w->mutex);
}

// Options of job i. All jobs share the first half of their prompt; the second half differs. Even jobs are greedy, odd ones
// sample.
static kin_job_options options_of(int i, int n_predict) {
    kin_job_options o = {.n_prompt = N_PROMPT, .n_predict = n_predict, .n_probs = -1, .ignore_eos = true};
    kin_sampler_options so = kin_sampler_options_defaults();
    kin_err err;
    so.seed = (uint64_t)i;
    if (i % 2 == 0) so.temperature = 0;
    assert_int_equal(kin_sampler_new(&o.sampler, kin_vocab_n_tokens(session.vocab), &so, &err), 0);
    o.prompt = malloc(N_PROMPT * sizeof *o.prompt);
    for (int k = 0; k < N_PROMPT; k++) o.prompt[k] = k < N_PROMPT / 2 ? 300 + k : 300 + (i * 131 + k * k * 7) % 900;
    return o;
}
#define options_of(...) FROM_TEST(options_of(__VA_ARGS__))

static void submit(context *w, request *t, int i, int n_predict) {
    kin_job_options o = options_of(i, n_predict);
    kin_err err;
    *t = (request){0};
    o.user = t;
    assert_int_equal(kin_job_new(&t->job, &o, &err), 0);
    kin_service_submit(w->service, t->job);
}
#define submit(...) FROM_TEST(submit(__VA_ARGS__))

static int handle_all(context *w) {
    kin_job_event e;
    int n_ended = 0;
    while (kin_service_pop(w->service, &e)) {
        request *t = e.user;
        free(e.top);
        assert_int_equal(t->n_ended, 0);
        if (e.kind == KIN_JOB_TOKEN && t->n_made++ < MAX_MADE) t->made[t->n_made - 1] = e.id;
        if (e.kind != KIN_JOB_ENDED) continue;
        t->n_ended = 1;
        t->how = e.how;
        if (e.pooling && e.how == KIN_JOB_EOS) memcpy(t->vector, e.vector, sizeof t->vector);
        kin_job_free(e.job);
        t->job = NULL;
        n_ended++;
    }
    return n_ended;
}
#define handle_all(...) FROM_TEST(handle_all(__VA_ARGS__))

static void wait_for(context *w, int n) {
    while ((n -= handle_all(w)) > 0) wait_for_news(w);
}
#define wait_for(...) FROM_TEST(wait_for(__VA_ARGS__))

static void wait_until_idle(context *w) {
    kin_service_status status;
    while (status = kin_service_get_status(w->service), status.n_waiting + status.n_running > 0) wait_for_news(w);
}

// ---- claims

static void at_once_64_sequences_are_what_each_is_alone(void **state) {
    (void)state;
    enum { N = 64 };
    static request alone[N], now[N];
    context w;
    open_context(&w, 1, 0, false);
    for (int i = 0; i < N; i++) {
        submit(&w, &alone[i], i, MAX_MADE);
        wait_for(&w, 1);
    }
    end_run(&w);
    close_context(&w);
    for (int keeps = 0; keeps < 2; keeps++) {
        open_context(&w, 32, N, keeps);
        for (int i = 0; i < N; i++) submit(&w, &now[i], i, MAX_MADE);
        wait_for(&w, N);
        for (int i = 0; i < N; i++) {
            assert_int_equal(now[i].n_made, MAX_MADE);
            assert_memory_equal(now[i].made, alone[i].made, sizeof now[i].made);
        }
        end_run(&w);
        close_context(&w);
    }
    assert_memory_not_equal(alone[0].made, alone[2].made, sizeof alone[0].made);
}

static void a_job_may_be_cancelled_before_it_was_seen(void **state) {
    (void)state;
    enum { ROUNDS = 300, N = 32 };
    static request requests[N];
    context w;
    open_context(&w, 4, N, true);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++) {
            submit(&w, &requests[i], i, ENDLESS); // otherwise one might end first
            kin_service_cancel(w.service, requests[i].job);
        }
        wait_for(&w, N);
        for (int i = 0; i < N; i++) assert_int_equal(requests[i].how, KIN_JOB_CANCELLED);
    }
    end_run(&w);
    close_context(&w);
}

static void a_job_may_be_cancelled_when_its_end_was_not_yet_taken(void **state) {
    (void)state;
    static request first, second;
    context w;
    open_context(&w, 2, 2, true);
    submit(&w, &first, 0, 1);
    wait_until_idle(&w);
    kin_service_cancel(w.service, first.job);
    wait_for(&w, 1); // and it is freed
    assert_int_equal(first.how, KIN_JOB_LENGTH);
    submit(&w, &second, 1, MAX_MADE);
    wait_for(&w, 1);
    assert_int_equal(second.how, KIN_JOB_LENGTH);
    end_run(&w);
    close_context(&w);
}

// The computing thread reports the prompt and the only token in one step, and looks for cancelled jobs after it. The job is freed
// later here: one that is still listed shows without a reused address.
static void a_job_that_is_cancelled_in_its_last_step_is_not_listed_any_more(void **state) {
    (void)state;
    static request first, second;
    kin_job_event e;
    context w;
    open_context(&w, 2, 2, true);
    kin_job_options o = options_of(0, 1);
    kin_err err;
    assert_int_equal(kin_job_new(&first.job, &o, &err), 0);
    atomic_store(&w.leaves, first.job);
    kin_service_submit(w.service, first.job);
    do {
        while (!kin_service_pop(w.service, &e)) wait_for_news(&w);
    } while (e.kind != KIN_JOB_ENDED);
    assert_null(atomic_load(&w.leaves));
    assert_int_equal(e.how, KIN_JOB_LENGTH);
    submit(&w, &second, 1, MAX_MADE);
    wait_for(&w, 1);
    assert_int_equal(second.how, KIN_JOB_LENGTH);
    kin_job_free(first.job);
    end_run(&w);
    close_context(&w);
}

static void jobs_that_leave_at_any_moment_leave_nothing_behind(void **state) {
    (void)state;
    enum { N = 200 };
    static request requests[N];
    context w;
    kin_rng rng;
    int n_ended = 0;
    kin_rng_seed(&rng, 1);
    open_context(&w, 16, N, false);
    for (int i = 0; i < N; i++) {
        submit(&w, &requests[i], i, MAX_MADE);
        int other = (int)(kin_rng_u64(&rng) % (uint64_t)(i + 1));
        if (requests[other].job) kin_service_cancel(w.service, requests[other].job);
        if (kin_rng_u64(&rng) % 4 == 0) wait_for_news(&w);
        n_ended += handle_all(&w);
    }
    for (int i = 0; i < N; i++) {
        if (requests[i].job) kin_service_cancel(w.service, requests[i].job);
    }
    wait_for(&w, N - n_ended);
    submit(&w, &requests[0], 0, 1); // one more step, after which the counts are final
    wait_for(&w, 1);
    end_run(&w);
    kin_service_status status = kin_service_get_status(w.service);
    assert_int_equal(status.n_running + status.n_waiting, 0);
    assert_int_equal(status.scheduler.n_free_blocks, status.scheduler.n_blocks);
    close_context(&w);
}

static void there_is_room_for_so_many_jobs(void **state) {
    (void)state;
    static request requests[5];
    context w;
    open_context(&w, 2, 3, true);
    assert_int_equal(kin_service_max_jobs(w.service), 5);
    for (int i = 0; i < 2; i++) submit(&w, &requests[i], i, MAX_MADE);
    assert_false(kin_service_has_room(w.service, 6));
    wait_for(&w, 2);
    assert_true(kin_service_has_room(w.service, 5));
    for (int i = 0; i < 5; i++) submit(&w, &requests[i], i, MAX_MADE);
    wait_for(&w, 5);
    assert_true(kin_service_has_room(w.service, 5));
    end_run(&w);
    close_context(&w);
}

static void what_comes_after_the_end_ends_at_once(void **state) {
    (void)state;
    static request before, after;
    context w;
    open_context(&w, 2, 3, true);
    submit(&w, &before, 0, MAX_MADE);
    end_run(&w);
    submit(&w, &after, 1, MAX_MADE);
    wait_for(&w, 2);
    assert_int_equal(before.n_ended, 1); // either generated or failed
    assert_int_equal(after.how, KIN_JOB_FAILED);
    close_context(&w);
}

// A leak would be reported by LeakSanitizer.
static void a_sequence_that_was_read_for_a_gone_request_is_freed(void **state) {
    (void)state;
    static request first;
    context w;
    open_context(&w, 1, 1, true);
    submit(&w, &first, 0, 1);
    wait_for(&w, 1);
    assert_int_equal(kin_service_read_sequence(w.service, 0, NULL), 0);
    end_run(&w);
    close_context(&w);
}

// ---- embeddings

enum { N_WORDS = 30 };

static int32_t word(int i, int k) {
    return 300 + (i * 131 + k * k * 7) % 900;
}

static void submit_embedding(context *w, request *t, int i, int n, kin_pooling pooling) {
    kin_job_options o = {.n_prompt = n, .pooling = pooling, .n_probs = -1, .user = t};
    kin_err err;
    o.prompt = malloc((size_t)n * sizeof *o.prompt);
    for (int k = 0; k < n; k++) o.prompt[k] = word(i, k);
    *t = (request){0};
    assert_int_equal(kin_job_new(&t->job, &o, &err), 0);
    kin_service_submit(w->service, t->job);
}
#define submit_embedding(...) FROM_TEST(submit_embedding(__VA_ARGS__))

// The reference engine's hidden states of text i after the output norm, pooled: vectors // [KIN_POOLING_CLS + 1][n_embd]
static void make_reference(float vectors[][N_EMBD], int i) {
    kin_gguf *gguf;
    kin_ref_model m;
    kin_err err;
    float x[N_EMBD], weights[N_EMBD];
    assert_int_equal(kin_gguf_open(&gguf, KIN_SOURCE_DIR "/assets/demo.gguf", &err), 0);
    assert_int_equal(kin_ref_load(&m, gguf, &err), 0);
    assert_int_equal(m.n_embd, N_EMBD);
    kin_ref_session *s = kin_ref_session_open(&m, 0, m.n_layer, N_WORDS);
    kin_ref_dequant(m.output_norm.type, m.output_norm.data, N_EMBD, weights);
    memset(vectors, 0, (KIN_POOLING_CLS + 1) * sizeof *vectors);
    for (int pos = 0; pos < N_WORDS; pos++) {
        double squares = 0;
        assert_int_equal(kin_ref_session_embed(s, word(i, pos), x), 0);
        assert_int_equal(kin_ref_session_run(s, 0, m.n_layer, pos, x), 0);
        for (int k = 0; k < N_EMBD; k++) squares += (double)x[k] * x[k];
        for (int k = 0; k < N_EMBD; k++) {
            float normed = (float)(x[k] / sqrt(squares / N_EMBD + m.rms_eps)) * weights[k];
            vectors[KIN_POOLING_MEAN][k] += normed / N_WORDS;
            vectors[KIN_POOLING_LAST][k] = normed;
            if (pos == 0) vectors[KIN_POOLING_CLS][k] = normed;
        }
    }
    kin_ref_session_close(s);
    kin_ref_unload(&m);
    kin_gguf_close(gguf);
}
#define make_reference(...) FROM_TEST(make_reference(__VA_ARGS__))

static void an_embedding_is_made_of_the_references_hidden_states(void **state) {
    (void)state;
    static float want[KIN_POOLING_CLS + 1][N_EMBD];
    static request t;
    context w;
    make_reference(want, 1);
    open_context(&w, 1, 1, true);
    for (kin_pooling pooling = KIN_POOLING_MEAN; pooling <= KIN_POOLING_CLS; pooling++) {
        submit_embedding(&w, &t, 1, N_WORDS, pooling);
        wait_for(&w, 1);
        assert_int_equal(t.how, KIN_JOB_EOS);
        double error = kin_logits_error(t.vector, want[pooling], N_EMBD);
        print_message("             pooling %d: error %.1e\n", pooling, error);
        assert_true(error < 0.08);
    }
    end_run(&w);
    close_context(&w);
}

static void embeddings_that_lose_their_place_begin_again(void **state) {
    (void)state;
    enum { N = 4, N_LONG = 600 }; // there is room for three of them
    static request alone[N], now[N];
    context w;
    open_context(&w, N, N, false);
    for (int i = 0; i < N; i++) {
        submit_embedding(&w, &alone[i], i, N_LONG, KIN_POOLING_MEAN + i % 3);
        wait_for(&w, 1);
    }
    // On a busy machine the first may be done before the last arrives.
    for (int tries = 0; tries < 20 && kin_service_get_status(w.service).scheduler.n_preempted == 0; tries++) {
        for (int i = 0; i < N; i++) submit_embedding(&w, &now[i], i, N_LONG, KIN_POOLING_MEAN + i % 3);
        wait_for(&w, N);
        for (int i = 0; i < N; i++) assert_memory_equal(now[i].vector, alone[i].vector, sizeof now[i].vector);
    }
    assert_true(kin_service_get_status(w.service).scheduler.n_preempted > 0);
    end_run(&w);
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_once_64_sequences_are_what_each_is_alone),
        cmocka_unit_test(a_job_may_be_cancelled_before_it_was_seen),
        cmocka_unit_test(a_job_may_be_cancelled_when_its_end_was_not_yet_taken),
        cmocka_unit_test(a_job_that_is_cancelled_in_its_last_step_is_not_listed_any_more),
        cmocka_unit_test(jobs_that_leave_at_any_moment_leave_nothing_behind),
        cmocka_unit_test(there_is_room_for_so_many_jobs),
        cmocka_unit_test(what_comes_after_the_end_ends_at_once),
        cmocka_unit_test(a_sequence_that_was_read_for_a_gone_request_is_freed),
        cmocka_unit_test(an_embedding_is_made_of_the_references_hidden_states),
        cmocka_unit_test(embeddings_that_lose_their_place_begin_again),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
