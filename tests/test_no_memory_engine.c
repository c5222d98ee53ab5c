// Computing with failing allocations (failing_malloc.h): the shard, the head and the scheduler open or return an error. A
// sequence that fails for lack of memory does not affect others.
#include "failing_malloc.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "model/vocab_load.h"
#include "pipeline/scheduler.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"

enum { N_VOCAB = 300, N_CTX = 256, N_BATCH = 16, N_PROMPT = 20, N_MADE = 3 };

static char model_path[] = "/tmp/kin-no-memory-XXXXXX", block_path[] = "/tmp/kin-no-memory-XXXXXX";

static int make_file(char *path, const kin_model_spec *spec) {
    kin_err err;
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0 || kin_model_gen(spec, path, &err) != 0 ? -1 : 0;
}

static int make_models(void **state) {
    kin_model_spec spec = kin_model_spec_defaults();
    (void)state;
    spec.n_layer = 1;
    spec.n_embd = spec.n_ff = 64;
    spec.n_head = spec.n_head_kv = 2;
    spec.n_vocab = N_VOCAB;
    if (make_file(model_path, &spec) != 0) return -1;
    spec.arch = "qwen35";
    spec.draft_blocks = 1;
    return make_file(block_path, &spec);
}

static int remove_models(void **state) {
    (void)state;
    return unlink(model_path) | unlink(block_path);
}

static const kin_thread_ring_options alone = {
    .n_members = 1, .n_batch = N_BATCH, .n_ctx = N_CTX, .n_steps = 1, .shares = {{1, 0, 0}}};

typedef struct request {
    int n_made, n_ended;
    kin_generation_end how;
    kin_err why;
} request;

static int32_t next(void *user, float *logits) {
    request *t = user;
    (void)logits;
    return t->n_made == N_MADE ? KIN_GENERATION_NO_TOKEN : ++t->n_made;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    request *t = user;
    t->n_ended++;
    t->how = how;
    if (why) t->why = *why;
}

static int write_texts(kin_scheduler *s, request *requests, int n, int *n_submitted, kin_err *err) {
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 3 + i;
    for (int i = 0; i < n; i++) {
        const kin_generation_options o = {
            .prompt = prompt, .n_prompt = N_PROMPT, .next = next, .ended = ended, .user = &requests[i]};
        kin_generation *g;
        if (kin_scheduler_submit(s, &o, &g, err) != 0) return KIN_FAIL;
        *n_submitted = i + 1;
    }
    for (bool busy = true; busy;) {
        if (kin_scheduler_step(s, &busy, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int run_requests(kin_scheduler *s, kin_head *head, kin_err *err) {
    request requests[3] = {0};
    int n = 0;
    if (kin_scheduler_set_head(s, head, err) != 0) return KIN_FAIL;
    int rc = write_texts(s, requests, 3, &n, err);
    if (rc != 0) kin_scheduler_fail(s, err);
    for (int i = 0; i < n; i++) {
        assert_int_equal(requests[i].n_ended, 1);
        if (rc == 0 && requests[i].how != KIN_GENERATION_DONE) rc = kin_err_set(err, "%s", requests[i].why.text);
    }
    return rc;
}

static int compute(void *arg, kin_err *err) {
    const kin_scheduler_options o = {.n_ctx = N_CTX, .n_vocab = N_VOCAB, .n_parallel = 2, .keeps = true};
    kin_thread_ring *ring;
    kin_scheduler *s;
    (void)arg;
    if (kin_thread_ring_open(&ring, model_path, &alone, err) != 0) return KIN_FAIL;
    int rc = kin_scheduler_open(&s, &o, err);
    if (rc == 0) {
        rc = run_requests(s, kin_thread_ring_head(ring), err);
        kin_scheduler_close(s);
    }
    kin_thread_ring_close(ring);
    return rc;
}

static void every_sequence_ends_once(void **state) {
    (void)state;
    without_memory(compute, NULL);
}

// If there is no memory for a draft, there is no draft and no error.
static int write_drafts(void *arg, kin_err *err) {
    kin_draft_model_options o = {.path = model_path, .n_ctx = N_CTX, .n_batch = N_BATCH, .kv_type = GGML_TYPE_F16};
    kin_draft_limits limits = {.most = 3, .catch_up_s = INFINITY};
    int32_t tokens[N_PROMPT];
    kin_draft draft = {0};
    kin_draft_query query = {.sequence = 1, .tokens = tokens, .n = N_PROMPT, .most = 3, .out = &draft};
    kin_devices devices;
    kin_gguf *gguf = NULL;
    kin_vocab *vocab = NULL;
    kin_draft_model *model = NULL;
    (void)arg;
    const kin_device_options dopts = kin_device_options_defaults();
    if (kin_devices_open(&devices, &dopts, err) != 0) return KIN_FAIL;
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = 3 + i;
    int rc = kin_gguf_open(&gguf, model_path, err);
    if (rc == 0) rc = kin_vocab_load(&vocab, gguf, err);
    o.vocab = vocab;
    o.devices = &devices;
    if (rc == 0) rc = kin_draft_model_open(&model, &o, err);
    for (int i = 0; i < 2 && rc == 0; i++) kin_draft_model_propose(model, &query, 1, &limits);
    kin_draft_model_close(model);
    kin_vocab_free(vocab);
    kin_gguf_close(gguf);
    kin_devices_close(&devices);
    return rc;
}

static void a_draft_model_is_opened_or_says_why_not(void **state) {
    (void)state;
    without_memory(write_drafts, NULL);
}

// If there is no memory for states, there are no drafts and no error.
static int feed_drafter(void *arg, kin_err *err) {
    static float rows[N_PROMPT * 64];
    int32_t tokens[N_PROMPT];
    const kin_mtp_states states = {.sequence = 1, .tokens = tokens, .n_tokens = N_PROMPT, .pos = 0, .n = N_PROMPT, .rows = rows};
    kin_mtp_drafter_options o = {
        .n_ctx = N_CTX, .n_sequences = 1, .n_batch = N_BATCH, .n_vocab = N_VOCAB, .kv_type = GGML_TYPE_F16};
    kin_devices devices;
    kin_model model = {0};
    kin_mtp_drafter *d = NULL;
    (void)arg;
    const kin_device_options dopts = kin_device_options_defaults();
    if (kin_devices_open(&devices, &dopts, err) != 0) return KIN_FAIL;
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = 3 + i;
    int rc = kin_model_open(&model, block_path, err);
    o.model = &model;
    o.devices = &devices;
    if (rc == 0) rc = kin_mtp_drafter_open(&d, &o, err);
    if (rc == 0) kin_mtp_drafter_add_states(d, &states);
    kin_mtp_drafter_close(d);
    kin_model_close(&model);
    kin_devices_close(&devices);
    return rc;
}

static void a_draft_block_is_opened_or_says_why_not(void **state) {
    (void)state;
    without_memory(feed_drafter, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_model_is_opened_or_says_why_not),
        cmocka_unit_test(a_draft_block_is_opened_or_says_why_not),
        cmocka_unit_test(every_sequence_ends_once),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
