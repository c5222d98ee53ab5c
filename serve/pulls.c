#include "serve/pulls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pull/known_models.h"
#include "serve/json_out.h"
#include "serve/refuse.h"
#include "serve/request/fields.h"

static const char lines_type[] = "application/x-ndjson", document_type[] = "application/json; charset=utf-8";

enum { MAX_BODY = 64 << 10 }; // read in the loop's thread; a name has less than KIN_REF_TEXT bytes

typedef struct pull {
    kin_pulls *pulls;
    kin_http_exchange *x; // NULL: the client has gone
    kin_exchange_data data;
    bool streams;
    char name[KIN_REF_TEXT];
    uv_thread_t thread;
    uv_async_t wake;
    atomic_bool stop;
    kin_model_file *file;
    const char *last; // status that was written last
    // Under the mutex.
    pthread_mutex_t mutex;
    kin_download_progress progress;
    char digest[KIN_SHA256_HEX];
    bool is_over;
    int rc;
    kin_err err;
} pull;

struct kin_pulls {
    kin_pulls_options o;
    pull *open[KIN_PULLS_MAX];
    bool is_stopping;
};

// ---- what is written

static void put_line(kin_http_exchange *x, json_t *line) {
    kin_text_buffer text = {0};
    kin_json_put(line, &text);
    kin_text_put(&text, "\n", 1);
    if (!text.failed) kin_http_write(x, text.at, text.len);
    kin_text_fini(&text);
}

static void reply_pull(kin_http_exchange *x, int status, json_t *json) {
    kin_text_buffer text = {0};
    kin_json_put(json, &text);
    kin_http_reply(x, status, document_type, text.at ? text.at : "", text.len);
    kin_text_fini(&text);
}

// Writes a status once.
static void put_status(pull *p, const char *status) {
    if (!p->x || !p->streams || p->last == status) return;
    p->last = status;
    put_line(p->x, json_pack("{s:s}", "status", status));
}

static void put_progress(pull *p, const kin_download_progress *progress, const char *digest) {
    char status[40], whole[80];
    if (!p->x || !p->streams) return;
    snprintf(status, sizeof status, "pulling %.12s", digest[0] ? digest : "model");
    snprintf(whole, sizeof whole, "sha256:%s", digest);
    json_t *line = json_pack("{s:s, s:I, s:I}", "status", status, "total", (json_int_t)progress->total, "completed",
                             (json_int_t)progress->done);
    if (digest[0]) json_object_set_new(line, "digest", json_string(whole));
    p->last = NULL;
    put_line(p->x, line);
}

static void put_end(pull *p) {
    if (!p->x) return;
    kin_http_set_data(p->x, NULL);
    json_t *end =
        p->rc == 0 ? json_pack("{s:s}", "status", "success") : json_pack("{s:o}", "error", kin_json_string(p->err.text));
    if (p->streams) {
        if (p->rc == 0) put_status(p, "writing manifest");
        put_line(p->x, end);
        kin_http_end(p->x);
    } else {
        reply_pull(p->x, p->rc == 0 ? 200 : 500, end);
    }
    p->x = NULL;
}

// ---- a pull

static void on_closed(uv_handle_t *handle) {
    pull *p = handle->data;
    for (int i = 0; i < KIN_PULLS_MAX; i++)
        if (p->pulls->open[i] == p) p->pulls->open[i] = NULL;
    pthread_mutex_destroy(&p->mutex);
    free(p->file);
    free(p);
}

static void on_wake(uv_async_t *handle) {
    pull *p = handle->data;
    char digest[KIN_SHA256_HEX];
    pthread_mutex_lock(&p->mutex);
    kin_download_progress progress = p->progress;
    bool is_over = p->is_over;
    memcpy(digest, p->digest, sizeof digest);
    pthread_mutex_unlock(&p->mutex);
    if (progress.phase == KIN_DOWNLOAD_CHECKING && !is_over)
        put_status(p, "verifying sha256 digest");
    else if (progress.total > 0 && progress.phase != KIN_DOWNLOAD_CHECKING)
        put_progress(p, &progress, digest);
    if (!is_over || uv_is_closing((uv_handle_t *)handle)) return;
    uv_thread_join(&p->thread);
    if (p->rc == 0 && !p->file->is_usable)
        p->rc = kin_err_set(&p->err, "it was fetched, but cannot be used: %s", p->file->why.text);
    if (p->rc == 0 && !p->pulls->is_stopping) p->pulls->o.fetched(p->pulls->o.user, p->file);
    put_end(p);
    uv_close((uv_handle_t *)handle, on_closed);
}

// In the pull's thread.
static void on_progress(void *user, const char *file, const char *digest, const kin_download_progress *progress) {
    pull *p = user;
    (void)file;
    pthread_mutex_lock(&p->mutex);
    p->progress = *progress;
    snprintf(p->digest, sizeof p->digest, "%s", digest);
    pthread_mutex_unlock(&p->mutex);
    uv_async_send(&p->wake);
}

static void run_pulls(void *arg) {
    pull *p = arg;
    kin_pull_options o = p->pulls->o.pull;
    kin_model_record record;
    kin_err err;
    o.stop = &p->stop;
    o.refreshes = true;
    o.progress = on_progress;
    o.user = p;
    int rc = kin_pull(&o, p->name, &record, &err);
    if (rc == 0) kin_model_file_read(p->file, record.path);
    pthread_mutex_lock(&p->mutex);
    p->rc = rc;
    p->err = err;
    p->is_over = true;
    pthread_mutex_unlock(&p->mutex);
    uv_async_send(&p->wake);
}

static void on_gone(void *self) {
    pull *p = self;
    p->x = NULL;
    atomic_store(&p->stop, true);
}

// Returns the new pull's place; -1 if it could not begin.
static int begin_pull(kin_pulls *pulls, kin_http_exchange *x, const char *name, bool streams) {
    int at = 0;
    while (at < KIN_PULLS_MAX && pulls->open[at]) at++;
    if (at == KIN_PULLS_MAX || pulls->is_stopping) return -1;
    pull *p = calloc(1, sizeof *p);
    if (p) p->file = calloc(1, sizeof *p->file);
    if (!p || !p->file || uv_async_init(pulls->o.loop, &p->wake, on_wake) != 0) {
        if (p) free(p->file);
        free(p);
        return -1;
    }
    p->pulls = pulls;
    p->x = x;
    p->streams = streams;
    p->data = (kin_exchange_data){.gone = on_gone, .self = p};
    p->wake.data = p;
    snprintf(p->name, sizeof p->name, "%s", name);
    pthread_mutex_init(&p->mutex, NULL);
    pulls->open[at] = p;
    if (uv_thread_create(&p->thread, run_pulls, p) != 0) {
        uv_close((uv_handle_t *)&p->wake, on_closed);
        return -1;
    }
    kin_http_set_data(x, &p->data);
    if (streams) kin_http_begin(x, 200, lines_type);
    put_status(p, "pulling manifest");
    return at;
}

// ---- requests

// Finds the name in a body. It lives as long as the body.
static int find_name(const json_t *body, const char **name, kin_api_error *err) {
    kin_fields f;
    const json_t *value = NULL;
    if (kin_fields_open(&f, body, err) != 0 || kin_fields_get(&f, "model", KIN_FIELD_STRING, &value, err) != 0) return KIN_FAIL;
    if (!value && kin_fields_need(&f, "name", KIN_FIELD_STRING, &value, err) != 0) return KIN_FAIL;
    *name = json_string_value(value);
    return 0;
}

// Turns a client's name ("qwen3:8b" as Ollama's clients write it) into one of kin's.
static int read_name(const kin_pulls *pulls, const char *text, char *name, size_t size, kin_api_error *err) {
    kin_model_ref ref;
    kin_known_model known = {0};
    kin_err why;
    int rc = kin_model_ref_parse(&ref, text, &why);
    if (rc == KIN_ABSENT && kin_known_models_find(pulls->o.pull.known_file, text, &known, &why) == 0)
        snprintf(name, size, "%s", text);
    else if (rc == KIN_ABSENT)
        snprintf(name, size, "ollama:%s", text);
    else
        snprintf(name, size, "%s", text);
    if (rc == KIN_ABSENT) rc = known.name[0] && strcmp(name, text) == 0 ? 0 : kin_model_ref_parse(&ref, name, &why);
    if (rc != 0) return kin_api_error_set(err, 400, "model", "%s", why.text);
    if (ref.registry == KIN_REGISTRY_WEB)
        return kin_api_error_set(err, 400, "model",
                                 "clients may name models of Hugging Face and of Ollama's registry only, not web addresses");
    return 0;
}

// Reads the body with the name of a model. On failure the exchange is answered.
static json_t *read_body(kin_http_exchange *x, const char **name) {
    kin_str text = kin_http_body(x);
    json_error_t where;
    kin_api_error err = {.status = 400};
    json_t *body = text.at && text.len <= MAX_BODY ? json_loadb(text.at, text.len, 0, &where) : NULL;
    if (!body)
        kin_http_reply_error(
            x, 400, text.len > MAX_BODY ? "the body is longer than 64 KiB" : "the body is no JSON object with the field 'model'");
    else if (find_name(body, name, &err) != 0)
        kin_http_reply_error(x, err.status, err.message);
    else
        return body;
    json_decref(body);
    return NULL;
}

void kin_pulls_begin(kin_pulls *pulls, kin_http_exchange *x) {
    char name[KIN_REF_TEXT];
    const char *text;
    kin_api_error err;
    json_t *body = read_body(x, &text);
    if (!body) return;
    bool streams = !json_is_false(json_object_get(body, "stream"));
    int rc = read_name(pulls, text, name, sizeof name, &err);
    json_decref(body);
    if (rc != 0)
        kin_http_reply_error(x, err.status, err.message);
    else if (begin_pull(pulls, x, name, streams) < 0)
        kin_http_reply_error(x, 503, "too many downloads at once: try again later");
}

// Finds a fetched model by the name under which the server lists it, or by one that a client would fetch it with.
static int find_fetched(const kin_pulls *pulls, const char *text, kin_model_record *record, kin_api_error *error, kin_err *err) {
    char name[KIN_REF_TEXT];
    const char *path = pulls->o.listed(pulls->o.user, (kin_str){text, strlen(text)});
    if (path && kin_model_store_read(path, record)) return 0;
    if (read_name(pulls, text, name, sizeof name, error) == 0) return kin_pull_find(&pulls->o.pull, name, record, err);
    if (path) error->status = 0; // a file without a record: put there by hand
    return KIN_ABSENT;
}

void kin_pulls_delete(kin_pulls *pulls, kin_http_exchange *x) {
    kin_model_record record;
    kin_api_error error = {.status = 0};
    kin_err err;
    const char *text;
    json_t *body = read_body(x, &text);
    if (!body) return;
    int rc = find_fetched(pulls, text, &record, &error, &err);
    json_decref(body);
    if (rc == 0) rc = kin_model_store_remove(&record, &err);
    if (error.status)
        kin_http_reply_error(x, error.status, error.message);
    else if (rc == KIN_ABSENT)
        kin_http_reply_error(x, 404, "no model of that name was fetched; files that were put into the folder by hand stay");
    else if (rc != 0)
        kin_http_reply_error(x, 500, err.text);
    else
        kin_http_reply(x, 200, NULL, "", 0);
}

// ----

kin_pulls *kin_pulls_open(const kin_pulls_options *options) {
    kin_pulls *pulls = calloc(1, sizeof *pulls);
    if (pulls) pulls->o = *options;
    return pulls;
}

void kin_pulls_stop(kin_pulls *pulls) {
    if (!pulls) return;
    pulls->is_stopping = true;
    for (int i = 0; i < KIN_PULLS_MAX; i++)
        if (pulls->open[i]) atomic_store(&pulls->open[i]->stop, true);
}

void kin_pulls_close(kin_pulls *pulls) {
    free(pulls);
}
