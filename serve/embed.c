#include "serve/embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/arch.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/apis/openai/embeddings.h"
#include "serve/json_out.h"
#include "serve/refuse.h"

typedef struct embed embed;

struct kin_embed_input {
    embed *of;
    int32_t *ids; // [n], until the job takes them over
    int n;
    kin_job *job; // NULL: not submitted yet, or ended
};

struct embed {
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone, or has its answer
    kin_embed_shared *shared;
    kin_embed_api api;
    kin_lane_work preparing;
    uv_work_t work;
    char *body;
    size_t n_body;
    kin_http_hold hold;
    int rc;
    kin_api_error error;
    kin_embeddings_request request;
    kin_embed_input *inputs; // [n]
    float *vectors;          // f32 [n, n_embd]
    kin_text_buffer answer;
    int n, n_running;
    int64_t n_tokens;
    kin_time begun;
};

static void free_request(uv_work_t *work) {
    embed *e = work->data;
    kin_embeddings_fini(&e->request);
    kin_request_trim(e->hold.bytes);
}

static void request_is_free(uv_work_t *work, int status) {
    embed *e = work->data;
    (void)status;
    kin_http_release(&e->hold);
    free(e);
}

static void free_embed(embed *e) {
    for (int i = 0; i < e->n && e->inputs; i++) free(e->inputs[i].ids);
    e->shared->n_open--;
    free(e->inputs);
    free(e->vectors);
    kin_text_fini(&e->answer);
    free(e->body);
    if (e->n_body > KIN_LARGE_BODY && uv_queue_work(e->shared->loop, &e->work, free_request, request_is_free) == 0) return;
    kin_embeddings_fini(&e->request);
    kin_http_release(&e->hold);
    free(e);
}

// Jobs refer to it until they have ended.
static void cancel_jobs(embed *e) {
    e->x = NULL;
    for (int i = 0; i < e->n && e->inputs; i++) {
        if (e->inputs[i].job) kin_service_cancel(e->shared->service, e->inputs[i].job);
    }
    if (e->n_running == 0) free_embed(e);
}

static bool is_ollama(const embed *e) {
    return e->api == KIN_EMBED_OLLAMA || e->api == KIN_EMBED_OLLAMA_OLD;
}

static void refuse(embed *e) {
    if (e->x) kin_refuse(e->x, is_ollama(e) ? &kin_format_ollama_chat : NULL, &e->error);
    cancel_jobs(e);
}

static void on_embed_gone(void *self) {
    embed *e = self;
    e->x = NULL;
    if (e->n_running > 0) cancel_jobs(e); // otherwise the pool is using it
}

// ---- pooling

kin_pooling kin_embed_pooling(const kin_model *model, kin_pooling said) {
    // Indexed by the key's value.
    static const kin_pooling types[] = {KIN_POOLING_MEAN, KIN_POOLING_MEAN, KIN_POOLING_CLS, KIN_POOLING_LAST};
    char key[128];
    uint32_t type = 0;
    kin_err err;
    snprintf(key, sizeof key, "%s.pooling_type", model->hp.arch->name);
    if (said != KIN_POOLING_NONE) return said;
    if (kin_gguf_get_u32(model->gguf, key, &type, &err) < 0 || type >= sizeof types / sizeof *types) return KIN_POOLING_NONE;
    return types[type];
}

// ---- preparing

static int refuse_for_memory(embed *e) {
    return kin_api_error_set(&e->error, 500, NULL, "out of memory");
}

static int encode(embed *e, kin_embed_input *input, const json_t *from) {
    input->of = e;
    if (kin_prompter_encode_json(e->shared->prompter, from, true, true, &input->ids, &input->n, &e->error) != 0) return KIN_FAIL;
    if (input->n == 0) return kin_api_error_set(&e->error, 400, "input", "an input is empty");
    if (input->n > e->shared->n_ctx && e->request.truncates) input->n = e->shared->n_ctx;
    if (input->n > e->shared->n_ctx)
        return kin_api_error_set(&e->error, 400, "input", "an input has %d tokens, but the context is %d", input->n,
                                 e->shared->n_ctx);
    e->n_tokens += input->n;
    return 0;
}

static int read_request(embed *e) {
    json_t *body = kin_request_parse((kin_str){e->body, e->n_body}, &e->error), *from = body;
    if (!body) return KIN_FAIL;
    if (is_ollama(e)) {
        int rc = kin_ollama_translate_embed(&body, from, &e->error);
        json_decref(from);
        if (rc != 0) return KIN_FAIL;
    }
    if (kin_embeddings_parse(&e->request, body, e->shared->n_embd, &e->error) != 0) return KIN_FAIL;
    e->request.is_raw |= e->api == KIN_EMBED_OLLAMA_OLD; // like Ollama
    return 0;
}

static int check_pooling(embed *e) {
    if (e->shared->pooling != KIN_POOLING_NONE) return 0;
    return kin_api_error_set(&e->error, 501, NULL,
                             "this model's pooling_type does not produce embeddings (it is for reranking): "
                             "start the server with --pooling mean to produce them anyway");
}

static void prepare_inputs(embed *e) {
    e->rc = check_pooling(e);
    if (e->rc == 0) e->rc = read_request(e);
    if (e->rc == 0) e->rc = kin_model_names_check(&e->shared->names, e->request.model, &e->error);
    if (e->rc != 0) return;
    int n = (int)json_array_size(e->request.inputs);
    if (n > KIN_SERVICE_MAX_JOBS) {
        e->rc = kin_api_error_set(&e->error, 400, "input", "at most %d inputs at once", KIN_SERVICE_MAX_JOBS);
        return;
    }
    e->inputs = calloc((size_t)n, sizeof *e->inputs);
    e->vectors = calloc((size_t)n * (size_t)e->shared->n_embd, sizeof *e->vectors);
    if (!e->inputs || !e->vectors) {
        e->rc = refuse_for_memory(e);
        return;
    }
    for (e->n = 0; e->n < n && e->rc == 0; e->n++)
        e->rc = encode(e, &e->inputs[e->n], json_array_get(e->request.inputs, (size_t)e->n));
}

static void prepare(kin_lane_work *work) {
    prepare_inputs(work->user);
}

static int submit(embed *e) {
    int n_most = kin_service_max_jobs(e->shared->service);
    if (e->n > n_most)
        return kin_api_error_set(&e->error, 400, "input", "%d inputs, but this server accepts %d at once: send fewer", e->n,
                                 n_most);
    if (!kin_service_has_room(e->shared->service, e->n))
        return kin_api_error_set(&e->error, 429, NULL, "the queue is full: try again in a moment");
    for (int i = 0; i < e->n; i++) {
        kin_embed_input *input = &e->inputs[i];
        kin_job_options o = {
            .prompt = input->ids, .n_prompt = input->n, .pooling = e->shared->pooling, .n_probs = -1, .user = input};
        kin_err err;
        input->ids = NULL;
        if (kin_job_new(&input->job, &o, &err) != 0) return refuse_for_memory(e);
        kin_service_submit(e->shared->service, input->job);
        e->n_running++;
    }
    return 0;
}

static void prepared(kin_lane_work *work, int status) {
    embed *e = work->user;
    if (status != 0) e->rc = kin_api_error_set(&e->error, 503, NULL, "the server is shutting down");
    if (!e->x || e->rc != 0 || submit(e) != 0) refuse(e);
}

void kin_embed_begin(kin_embed_shared *shared, kin_embed_api api, kin_http_exchange *x) {
    embed *e = calloc(1, sizeof *e);
    if (!e) {
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    *e = (embed){.x = x, .shared = shared, .api = api, .begun = kin_clock_now()};
    e->data = (kin_exchange_data){on_embed_gone, e};
    shared->n_open++;
    kin_http_set_data(x, &e->data);
    e->body = kin_http_detach_body(x, &e->n_body, &e->hold);
    e->work.data = e;
    e->preparing = (kin_lane_work){.run = prepare, .done = prepared, .user = e};
    kin_lane_run(shared->huge, &e->preparing, e->n_body > KIN_HUGE_BODY);
}

// ---- vectors

static void put_answer(uv_work_t *work) {
    embed *e = work->data;
    const kin_embed_shared *w = e->shared;
    kin_ollama_embeddings o = {w->model, e->vectors, e->n, w->n_embd, (int)e->n_tokens, kin_clock_ms(e->begun, kin_clock_now())};
    for (int i = 0; i < e->n && !e->request.is_raw; i++)
        kin_embedding_normalize(e->vectors + (size_t)i * (size_t)w->n_embd, w->n_embd);
    if (e->api == KIN_EMBED_OLLAMA)
        kin_ollama_put_embed(&o, &e->answer);
    else if (e->api == KIN_EMBED_OLLAMA_OLD)
        kin_ollama_put_embeddings(&o, &e->answer);
    else if (e->api == KIN_EMBED_LLAMA)
        kin_json_put(kin_embedding_answer(e->vectors, e->n, w->n_embd), &e->answer);
    else
        kin_json_put(kin_embeddings_answer(&e->request, w->model, e->vectors, e->n, w->n_embd, e->n_tokens), &e->answer);
}

static void answer(uv_work_t *work, int status) {
    embed *e = work->data;
    if (e->x && status != 0)
        kin_http_reply_error(e->x, 503, "the server is shutting down");
    else if (e->x && e->answer.failed)
        kin_http_reply_error(e->x, 500, "cannot write the embeddings: out of memory, or they are not finite");
    else if (e->x)
        kin_http_reply(e->x, 200, "application/json; charset=utf-8", e->answer.at, e->answer.len);
    cancel_jobs(e);
}

static void handle_end(embed *e, kin_embed_input *input, const kin_job_event *event) {
    input->job = NULL;
    e->n_running--;
    if (e->x && event->how == KIN_JOB_EOS) {
        size_t n_embd = (size_t)e->shared->n_embd;
        memcpy(e->vectors + (size_t)(input - e->inputs) * n_embd, event->vector, n_embd * sizeof *e->vectors);
        if (e->n_running == 0) uv_queue_work(e->shared->loop, &e->work, put_answer, answer);
    } else if (e->x) {
        kin_api_error_set(&e->error, 503, NULL, "%s",
                          event->how == KIN_JOB_FAILED ? event->why.text : "the request was cancelled");
        refuse(e);
    } else if (e->n_running == 0) {
        free_embed(e);
    }
}

void kin_embed_handle(kin_job_event *event) {
    kin_embed_input *input = event->user;
    if (event->kind != KIN_JOB_ENDED) return;
    handle_end(input->of, input, event);
    kin_job_free(event->job);
}
