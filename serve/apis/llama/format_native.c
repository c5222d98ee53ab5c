// llama.cpp's completion: one object per choice, at the end of its stream or in the document.
#include <stdlib.h>
#include <string.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/json_out.h"
#include "serve/request/settings.h"

typedef struct choice {
    kin_text_buffer text; // of a document
    json_t *tokens;       // array; in a stream: those not sent yet
    json_t *probs;        // likewise. NULL: none
    int n_tokens;
    bool has_new_line;
    json_t *whole; // of a document: the final object
} choice;

struct kin_writer {
    const kin_writer_context *context;
    bool is_stream;
    choice choices[]; // [context->n_choices]
};

static int open_native_writer(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w + (size_t)context->n_choices * sizeof w->choices[0]);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    w->is_stream = context->request->stream;
    return 0;
}

static void close_native_writer(kin_writer *w) {
    if (!w) return;
    for (int i = 0; i < w->context->n_choices; i++) {
        choice *c = &w->choices[i];
        kin_text_fini(&c->text);
        json_decref(c->tokens);
        json_decref(c->probs);
        json_decref(c->whole);
    }
    free(w);
}

// ---- accumulated output of a choice

static void gather(kin_writer *w, choice *c, const kin_delta *delta) {
    const kin_request *r = w->context->request;
    c->n_tokens += delta->n_tokens;
    for (int i = 0; i < delta->n_events; i++)
        c->has_new_line |= delta->events[i].text.len > 0 && memchr(delta->events[i].text.at, '\n', delta->events[i].text.len);
    if (!c->tokens) c->tokens = json_array();
    for (int i = 0; i < delta->n_tokens; i++) {
        if (w->is_stream || r->return_tokens) json_array_append_new(c->tokens, json_integer(delta->tokens[i]));
    }
    if (!delta->probs || delta->n_tokens == 0) return;
    if (!c->probs) c->probs = json_array();
    kin_openai_add_probs(c->probs, delta, r->post_sampling_probs);
}

static json_t *pop_tokens(choice *c) {
    json_t *tokens = c->tokens ? c->tokens : json_array();
    c->tokens = NULL;
    return tokens;
}

static void set_probs(json_t *o, choice *c) {
    if (c->probs) json_object_set_new(o, "completion_probabilities", c->probs);
    c->probs = NULL;
}

// ---- a stream

static json_t *piece_json(kin_writer *w, int i, kin_str text, const kin_timings *so_far) {
    choice *c = &w->choices[i];
    json_t *o = json_object();
    json_object_set_new(o, "index", json_integer(i));
    json_object_set_new(o, "content", kin_json_text(text));
    json_object_set_new(o, "tokens", pop_tokens(c));
    json_object_set_new(o, "stop", json_false());
    json_object_set_new(o, "id_slot", json_integer(-1));
    json_object_set_new(o, "tokens_predicted", json_integer(c->n_tokens));
    json_object_set_new(o, "tokens_evaluated", json_integer(so_far->n_prompt));
    if (w->context->request->timings_per_token) json_object_set_new(o, "timings", kin_timings_json(so_far, 1));
    set_probs(o, c);
    return o;
}

static void start(kin_writer *w, kin_text_buffer *out) {
    (void)w;
    (void)out;
}

static void progress(kin_writer *w, int choice, int n_done, int n_cached, int n_prompt, double ms, kin_text_buffer *out) {
    if (!w->is_stream || !w->context->request->return_progress) return;
    kin_timings so_far = {.n_prompt = n_prompt, .n_cached = n_cached, .prompt_ms = ms};
    json_t *o = piece_json(w, choice, (kin_str){"", 0}, &so_far);
    json_object_set_new(o, "prompt_progress", kin_progress_json(n_done, n_cached, n_prompt, ms));
    kin_json_put_event(NULL, o, out);
}

static void delta(kin_writer *w, const kin_delta *delta, kin_text_buffer *out) {
    choice *c = &w->choices[delta->choice];
    gather(w, c, delta);
    for (int i = 0; i < delta->n_events; i++) {
        kin_str text = delta->events[i].text;
        if (!w->is_stream)
            kin_text_put(&c->text, text.at, text.len);
        else if (text.len > 0)
            kin_json_put_event(NULL, piece_json(w, delta->choice, text, &delta->so_far), out);
    }
}

// ---- the final object

static void set_stop(json_t *o, const kin_finish *finish) {
    static const char *const types[] = {[KIN_FINISH_EOS] = "eos",
                                        [KIN_FINISH_STOP_WORD] = "word",
                                        [KIN_FINISH_LENGTH] = "limit",
                                        [KIN_FINISH_TOOL_CALLS] = "eos"};
    bool by_word = finish->reason == KIN_FINISH_STOP_WORD;
    json_object_set_new(o, "truncated", json_boolean(finish->truncated));
    json_object_set_new(o, "stop_type", json_string(types[finish->reason]));
    json_object_set_new(o, "stopping_word", kin_json_text(by_word ? finish->stop_word : (kin_str){"", 0}));
}

static json_t *whole_json(kin_writer *w, const kin_finish *finish) {
    const kin_writer_context *context = w->context;
    choice *c = &w->choices[finish->choice];
    kin_timings timings = kin_finish_timings(finish);
    int n_cells = finish->n_prompt + finish->n_generated - (finish->n_generated > 0); // the last token is not computed
    json_t *o = json_object();
    json_object_set_new(o, "index", json_integer(finish->choice));
    json_object_set_new(o, "content", kin_json_text(kin_text_str(&c->text)));
    json_object_set_new(o, "tokens", pop_tokens(c));
    json_object_set_new(o, "id_slot", json_integer(finish->slot));
    json_object_set_new(o, "stop", json_true());
    json_object_set_new(o, "model", json_string(context->model));
    json_object_set_new(o, "tokens_predicted", json_integer(finish->n_generated));
    json_object_set_new(o, "tokens_evaluated", json_integer(finish->n_prompt));
    json_object_set_new(o, "generation_settings", kin_settings_json(context->request, finish->seed));
    kin_str prompt = context->prompts ? context->prompts[finish->choice / context->request->n_choices] : (kin_str){"", 0};
    json_object_set_new(o, "prompt", kin_json_text(prompt));
    json_object_set_new(o, "has_new_line", json_boolean(c->has_new_line));
    set_stop(o, finish);
    json_object_set_new(o, "tokens_cached", json_integer(n_cells));
    json_object_set_new(o, "timings", kin_timings_json(&timings, 1));
    set_probs(o, c);
    return o;
}

// Returns the value at a path like "generation_settings/n_predict", or NULL.
static json_t *find(json_t *whole, const char *path) {
    json_t *at = whole;
    for (const char *end; at; path = end + 1) {
        end = path + strcspn(path, "/");
        at = json_object_getn(at, path, (size_t)(end - path));
        if (*end == '\0') break;
    }
    return at;
}

// Returns an object with only the wanted fields, each under its path. Takes over `whole`.
static json_t *pick(json_t *whole, const json_t *paths) {
    if (!paths) return whole;
    json_t *picked = json_object(), *path;
    size_t i;
    json_array_foreach(paths, i, path) {
        json_t *value = find(whole, json_string_value(path));
        if (value) json_object_set(picked, json_string_value(path), value);
    }
    json_decref(whole);
    return picked;
}

static void finish(kin_writer *w, const kin_finish *finish, kin_text_buffer *out) {
    json_t *whole = pick(whole_json(w, finish), w->context->request->response_fields);
    out->failed |= w->choices[finish->choice].text.failed;
    if (w->is_stream)
        kin_json_put_event(NULL, whole, out);
    else
        w->choices[finish->choice].whole = whole;
}

// A stream has no end marker.
static void end(kin_writer *w, kin_text_buffer *out) {
    if (w->is_stream) return;
    json_t *all = json_array();
    for (int i = 0; i < w->context->n_choices; i++) json_array_append(all, w->choices[i].whole);
    json_t *document = w->context->n_choices == 1 ? json_incref(json_array_get(all, 0)) : json_incref(all);
    json_decref(all);
    kin_json_put(document, out);
}

const kin_api_format kin_format_native = {.name = "native",
                                          .stream_type = "text/event-stream",
                                          .open = open_native_writer,
                                          .close = close_native_writer,
                                          .start = start,
                                          .progress = progress,
                                          .delta = delta,
                                          .finish = finish,
                                          .end = end,
                                          .ping = KIN_OPENAI_PING,
                                          .fail = kin_openai_fail,
                                          .error = kin_openai_put_error};
