// Ollama's /api/chat and /api/generate: a line of JSON for each piece, and a last one with counts and times. The two APIs differ
// only in the place of a piece's text.
#include <stdlib.h>
#include <string.h>

#include "serve/apis/ollama/ollama.h"
#include "serve/apis/openai/openai_json.h"
#include "serve/json_out.h"
#include "serve/reply_items.h"
#include "serve/writer.h"

struct kin_writer {
    const kin_writer_context *context;
    bool is_chat;
    kin_reply_items items;
    kin_finish finish;
    kin_text_buffer *out; // of the current call
    // Of tokens whose text has come, used without a stream; of tokens whose text has not come yet.
    json_t *probs, *unsaid;
};

static int open_ollama_writer(kin_writer **out, const kin_writer_context *context, bool is_chat, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    w->is_chat = is_chat;
    w->probs = json_array();
    w->unsaid = json_array();
    return 0;
}

static int open_chat(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    return open_ollama_writer(out, context, true, err);
}

static int open_generate(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    return open_ollama_writer(out, context, false, err);
}

static void close_ollama_writer(kin_writer *w) {
    if (!w) return;
    kin_reply_items_fini(&w->items);
    json_decref(w->probs);
    json_decref(w->unsaid);
    free(w);
}

// ---- lines

static json_t *call_of(const kin_writer *w, const kin_reply_item *item, int i) {
    json_t *function = json_object(), *call = json_object();
    char id[KIN_CALL_ID];
    int index = 0;
    for (int k = 0; k < i; k++) index += w->items.at[k].kind == KIN_REPLY_TOOL_BEGIN;
    kin_call_id(w->context, 0, i, kin_text_str(&item->id), id);
    json_object_set_new(function, "index", json_integer(index));
    json_object_set_new(function, "name", kin_json_text(kin_text_str(&item->name)));
    json_object_set_new(function, "arguments",
                        json_loadb(item->text.at ? item->text.at : "", item->text.len, JSON_ALLOW_NUL, NULL));
    json_object_set_new(call, "id", json_string(id));
    json_object_set_new(call, "function", function);
    return call;
}

// Returns the fields that both APIs have in a line. Takes over `calls`; NULL: none.
static json_t *line_of(const kin_writer *w, kin_str text, kin_str thinking, json_t *calls) {
    json_t *line = json_object(), *message = w->is_chat ? json_object() : json_incref(line);
    json_object_set_new(line, "model", json_string(w->context->model));
    json_object_set_new(line, "created_at", kin_ollama_time(w->context->created_s));
    if (w->is_chat) json_object_set_new(message, "role", json_string("assistant"));
    json_object_set_new(message, w->is_chat ? "content" : "response", kin_json_text(text));
    if (thinking.len) json_object_set_new(message, "thinking", kin_json_text(thinking));
    if (calls) json_object_set_new(message, "tool_calls", calls);
    if (w->is_chat) json_object_set(line, "message", message);
    json_object_set_new(line, "done", json_false());
    json_decref(message);
    return line;
}

// Without a stream only the last line is sent.
static void put_line(kin_writer *w, json_t *line) {
    if (!w->context->request->stream) {
        json_decref(line);
        return;
    }
    kin_json_put(line, w->out);
    kin_text_put(w->out, "\n", 1);
}

static void set_probs(json_t *line, const json_t *probs) {
    if (json_array_size(probs) > 0) json_object_set_new(line, "logprobs", json_copy((json_t *)probs));
}

static void set_end(const kin_writer *w, json_t *line) {
    const kin_finish *f = &w->finish;
    int64_t prompt_ns = (int64_t)(f->prompt_ms * 1e6), eval_ns = (int64_t)(f->generated_ms * 1e6);
    json_object_set_new(line, "done", json_true());
    json_object_set_new(line, "done_reason", json_string(f->reason == KIN_FINISH_LENGTH ? "length" : "stop"));
    json_object_set_new(line, "total_duration", json_integer(prompt_ns + eval_ns));
    json_object_set_new(line, "load_duration", json_integer(0));
    json_object_set_new(line, "prompt_eval_count", json_integer(f->n_prompt));
    json_object_set_new(line, "prompt_eval_duration", json_integer(prompt_ns));
    json_object_set_new(line, "eval_count", json_integer(f->n_generated));
    json_object_set_new(line, "eval_duration", json_integer(eval_ns));
}

// ---- pieces

static void open_item(void *user, const kin_reply_item *item, int i) {
    (void)user, (void)item, (void)i;
}

static void grow_item(void *user, const kin_reply_item *item, int i, kin_str piece) {
    static const kin_str none = {"", 0};
    kin_writer *w = user;
    (void)i;
    if (item->kind == KIN_REPLY_TEXT) {
        json_t *line = line_of(w, piece, none, NULL);
        set_probs(line, w->unsaid);
        put_line(w, line);
        json_array_extend(w->probs, w->unsaid);
    }
    if (item->kind == KIN_REPLY_REASONING) put_line(w, line_of(w, none, piece, NULL));
    json_array_clear(w->unsaid);
}

// Calls are sent whole; one that was cut off is dropped.
static void close_item(void *user, const kin_reply_item *item, int i) {
    if (item->kind != KIN_REPLY_TOOL_BEGIN || !item->is_whole) return;
    json_t *calls = json_array();
    json_array_append_new(calls, call_of(user, item, i));
    put_line(user, line_of(user, (kin_str){"", 0}, (kin_str){"", 0}, calls));
}

static kin_reply_items_sink sink_of(kin_writer *w) {
    return (kin_reply_items_sink){open_item, grow_item, close_item, w};
}

static void start(kin_writer *w, kin_text_buffer *out) {
    (void)w, (void)out;
}

static void delta(kin_writer *w, const kin_delta *delta, kin_text_buffer *out) {
    kin_reply_items_sink sink = sink_of(w);
    w->out = out;
    if (delta->choice != 0) return;
    kin_openai_add_probs(w->unsaid, delta, false);
    kin_reply_items_add(&w->items, delta->events, delta->n_events, &sink);
    out->failed |= w->items.failed;
}

static void finish(kin_writer *w, const kin_finish *finish, kin_text_buffer *out) {
    kin_reply_items_sink sink = sink_of(w);
    w->out = out;
    if (finish->choice != 0) return;
    w->finish = *finish;
    w->finish.stop_word = (kin_str){NULL, 0}; // borrowed, and not needed here
    kin_reply_items_end(&w->items, &sink);
}

static json_t *whole_of(const kin_writer *w) {
    kin_text_buffer text = {0}, thinking = {0};
    json_t *calls = NULL;
    for (int i = 0; i < w->items.n; i++) {
        const kin_reply_item *item = &w->items.at[i];
        if (item->kind == KIN_REPLY_TEXT) kin_text_put(&text, item->text.at, item->text.len);
        if (item->kind == KIN_REPLY_REASONING) kin_text_put(&thinking, item->text.at, item->text.len);
        if (item->kind != KIN_REPLY_TOOL_BEGIN || !item->is_whole) continue;
        if (!calls) calls = json_array();
        json_array_append_new(calls, call_of(w, item, i));
    }
    json_t *line = line_of(w, kin_text_str(&text), kin_text_str(&thinking), calls);
    set_probs(line, w->probs);
    kin_text_fini(&text);
    kin_text_fini(&thinking);
    return line;
}

static void end(kin_writer *w, kin_text_buffer *out) {
    bool stream = w->context->request->stream;
    json_t *line = stream ? line_of(w, (kin_str){"", 0}, (kin_str){"", 0}, NULL) : whole_of(w);
    set_end(w, line);
    kin_json_put(line, out);
    if (stream) kin_text_put(out, "\n", 1);
}

// ---- errors

static void put_error(const kin_api_error *error, kin_text_buffer *out) {
    json_t *o = json_object();
    json_object_set_new(o, "error", kin_json_text((kin_str){error->message, strlen(error->message)}));
    kin_json_put(o, out);
}

static void fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out) {
    (void)w;
    put_error(error, out);
    kin_text_put(out, "\n", 1);
}

const kin_api_format kin_format_ollama_chat = {.name = "ollama chat",
                                               .stream_type = "application/x-ndjson",
                                               .open = open_chat,
                                               .close = close_ollama_writer,
                                               .start = start,
                                               .delta = delta,
                                               .finish = finish,
                                               .end = end,
                                               .fail = fail,
                                               .error = put_error};

const kin_api_format kin_format_ollama_generate = {.name = "ollama generate",
                                                   .stream_type = "application/x-ndjson",
                                                   .open = open_generate,
                                                   .close = close_ollama_writer,
                                                   .start = start,
                                                   .delta = delta,
                                                   .finish = finish,
                                                   .end = end,
                                                   .fail = fail,
                                                   .error = put_error};
