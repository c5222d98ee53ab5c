#include "serve/client/chat_client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    MAX_DOCUMENT = 16 << 20,
    AGAIN_MS = 100, // pause before asking a server again that is not ready
};

struct kin_chat_client {
    kin_chat_client_options o;
    kin_http_client *http;
    char model[256];
};

// An answer that is one document, or the requested stream.
typedef struct reading {
    kin_text_buffer document;
    kin_chat_stream *stream; // NULL: not requested
    void (*grown)(void *user, const kin_chat_stream *stream);
    void *user;
    int rc;
    kin_err *err;
} reading;

static bool handle_piece(void *user, int status, kin_str piece) {
    reading *r = user;
    if (status == 200 && r->stream) {
        r->rc = kin_chat_stream_feed(r->stream, piece.at, piece.len, r->err);
        r->grown(r->user, r->stream);
        return r->rc == 0;
    }
    if (r->document.len + piece.len <= MAX_DOCUMENT) kin_text_put(&r->document, piece.at, piece.len);
    return true;
}

// ---- a server that is not ready

static bool rest(const kin_chat_client *c) {
    kin_time until = kin_clock_now() + AGAIN_MS * UINT64_C(1000000);
    do {
        if (c->o.http.goes_on && !c->o.http.goes_on(c->o.http.user)) return false;
        poll(NULL, 0, AGAIN_MS / 4);
    } while (kin_clock_now() < until);
    return true;
}

// True if the answer says that the server is loading; reports it.
static bool is_loading(const kin_chat_client *c, int status, const kin_text_buffer *document) {
    if (status != 503) return false;
    kin_str text = kin_text_str(document);
    json_t *o = json_loadb(text.at, text.len, 0, NULL);
    const json_t *error = json_object_get(o, "error"), *loading = json_object_get(error, "loading");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *what = json_string_value(json_object_get(loading, "what"));
    const json_t *percent = json_object_get(loading, "percent");
    bool only_loads = message && strcmp(message, "Loading model") == 0; // llama-server sends only the message
    bool is = loading || only_loads;
    char why[100]; // there is no model: its file has changed, or is missing. The beginning is enough for a line
    if (loading && message && !only_loads) {
        const char *end = strstr(message, " while ");
        snprintf(why, sizeof why, "%.*s", end && end - message < 100 ? (int)(end - message) : 99, message);
        what = why;
    }
    if (is && c->o.waits)
        c->o.waits(c->o.user, what ? what : "the server is loading its model", percent ? json_number_value(percent) : -1);
    json_decref(o);
    return is;
}

static int refused(const reading *r, int status, kin_err *err) {
    kin_str text = kin_text_str(&r->document);
    if (!kin_chat_stream_error(text.at, text.len, err)) kin_err_set(err, "the server answered with status %d", status);
    if (status == 401) return kin_err_set(err, "the server refused the API key; give --api-key-file FILE or --api-key KEY");
    return KIN_FAIL;
}

// Sends one request, and repeats it while the server is loading. DONE: the status is 200.
static kin_http_client_end ask(kin_chat_client *c, const char *path, kin_str body, reading *r, kin_err *err) {
    for (;;) {
        int status;
        r->document.len = 0;
        r->rc = 0;
        r->err = err;
        kin_http_client_end end = kin_http_client_ask(c->http, path, body, handle_piece, r, &status, err);
        if (r->rc != 0) return KIN_HTTP_CLIENT_FAILED;
        if (end != KIN_HTTP_CLIENT_DONE) return end;
        if (status == 200) return KIN_HTTP_CLIENT_DONE;
        if (!is_loading(c, status, &r->document)) return refused(r, status, err) == 0 ? end : KIN_HTTP_CLIENT_FAILED;
        if (!rest(c)) return KIN_HTTP_CLIENT_STOPPED;
    }
}

// ---- the server's facts

static kin_http_client_end get(kin_chat_client *c, const char *path, json_t **out, kin_err *err) {
    reading r = {0};
    *out = NULL;
    kin_http_client_end end = ask(c, path, (kin_str){NULL, 0}, &r, err);
    kin_str text = kin_text_str(&r.document);
    if (end == KIN_HTTP_CLIENT_DONE) *out = json_loadb(text.at, text.len, 0, NULL);
    kin_text_fini(&r.document);
    return end;
}

static void choose_model(kin_chat_client *c, const json_t *models) {
    const json_t *first = json_array_get(json_object_get(models, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    snprintf(c->model, sizeof c->model, "%s", c->o.model ? c->o.model : id ? id : "");
}

kin_http_client_end kin_chat_client_greet(kin_chat_client *c, kin_chat_server_facts *facts, kin_err *err) {
    json_t *models, *props;
    *facts = (kin_chat_server_facts){0};
    kin_http_client_end end = get(c, "/v1/models", &models, err);
    if (end != KIN_HTTP_CLIENT_DONE) return end;
    if (!json_is_array(json_object_get(models, "data"))) {
        json_decref(models);
        kin_err_set(err, "the server at this address is not a language model server");
        return KIN_HTTP_CLIENT_FAILED;
    }
    choose_model(c, models);
    json_decref(models);
    memcpy(facts->model, c->model, sizeof facts->model);
    kin_err none;
    end = get(c, "/props", &props, &none); // llama-server's endpoint: others do not have it
    const char *template = json_string_value(json_object_get(props, "chat_template"));
    const json_t *n_ctx = json_object_get(json_object_get(props, "default_generation_settings"), "n_ctx");
    facts->lacks_template = template && !template[0];
    if (json_integer_value(n_ctx) > 0 && json_integer_value(n_ctx) < 1 << 30) facts->n_ctx = (int)json_integer_value(n_ctx);
    json_decref(props);
    return end == KIN_HTTP_CLIENT_STOPPED ? end : KIN_HTTP_CLIENT_DONE;
}

// ---- a chat

static char *body_of(const kin_chat_client *c, const json_t *messages) {
    json_t *body = json_pack("{s:b, s:b}", "stream", 1, "return_progress", 1);
    json_object_set(body, "messages", (json_t *)messages);
    if (c->model[0]) json_object_set_new(body, "model", json_string(c->model));
    if (c->o.fields) json_object_update(body, (json_t *)c->o.fields);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

kin_http_client_end kin_chat_client_ask(kin_chat_client *c, const json_t *messages, kin_chat_stream *answer,
                                        void (*grown)(void *user, const kin_chat_stream *answer), void *user, kin_err *err) {
    reading r = {.stream = answer, .grown = grown, .user = user};
    char *body = body_of(c, messages);
    if (!body) {
        kin_err_set(err, "out of memory");
        return KIN_HTTP_CLIENT_FAILED;
    }
    kin_http_client_end end = ask(c, "/v1/chat/completions", (kin_str){body, strlen(body)}, &r, err);
    if (end == KIN_HTTP_CLIENT_DONE && !answer->is_whole) {
        kin_err_set(err, "the server closed the connection before the answer was complete");
        end = KIN_HTTP_CLIENT_FAILED;
    }
    kin_text_fini(&r.document);
    free(body);
    return end;
}

// ----

int kin_chat_client_open(kin_chat_client **out, const kin_chat_client_options *o, kin_err *err) {
    *out = NULL;
    kin_chat_client *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    if (o->model) snprintf(c->model, sizeof c->model, "%s", o->model);
    if (kin_http_client_open(&c->http, &o->http, err) == 0) {
        *out = c;
        return 0;
    }
    free(c);
    return KIN_FAIL;
}

void kin_chat_client_close(kin_chat_client *c) {
    if (!c) return;
    kin_http_client_close(c->http);
    free(c);
}
