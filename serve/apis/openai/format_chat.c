// OpenAI's chat completions.
//
// A stream's first chunk of each choice has the role and no content. Later chunks have text, reasoning or pieces of tool calls,
// never an empty text; the last one has the finish reason. Probabilities belong to tokens, whose text may come later: they are
// sent with the next chunk of the choice, whatever it contains.
#include <stdlib.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/json_out.h"
#include "serve/reply_items.h"

typedef struct choice {
    kin_reply_items items;   // of a document
    json_t *probs;           // array; in a stream: those not sent yet. NULL: none
    bool has_calls, in_call; // has_calls: complete ones; in_call: an incomplete one
    json_t *begun;           // in a stream: the beginning of a call, held back until it has arguments; NULL: none
    kin_finish_reason reason;
} choice;

struct kin_writer {
    const kin_writer_context *context;
    bool is_stream;
    kin_usage usage;
    kin_finish first; // of the first choice
    choice choices[]; // [context->n_choices]
};

static int open_chat_writer(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w + (size_t)context->n_choices * sizeof w->choices[0]);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    w->is_stream = context->request->stream;
    return 0;
}

static void close_chat_writer(kin_writer *w) {
    if (!w) return;
    for (int i = 0; i < w->context->n_choices; i++) {
        kin_reply_items_fini(&w->choices[i].items);
        json_decref(w->choices[i].probs);
        json_decref(w->choices[i].begun);
    }
    free(w);
}

// ---- pieces of JSON

static json_t *object_of(const kin_writer *w, const char *type, json_t *choices) {
    return kin_openai_object(w->context, "chatcmpl-", type, choices);
}

static const char *finish_reason(const choice *c) {
    if (c->reason == KIN_FINISH_LENGTH) return "length";
    return c->has_calls && !c->in_call ? "tool_calls" : "stop";
}

static void add_probs(choice *c, const kin_delta *delta, bool is_prob) {
    if (!delta->probs || delta->n_tokens == 0) return;
    if (!c->probs) c->probs = json_array();
    kin_openai_add_probs(c->probs, delta, is_prob);
}

// Returns the probabilities not sent yet, or NULL. The caller owns them.
static json_t *pop_logprobs(choice *c) {
    if (!c->probs) return NULL;
    json_t *logprobs = json_object();
    json_object_set_new(logprobs, "content", c->probs);
    json_object_set_new(logprobs, "refusal", json_null());
    c->probs = NULL;
    return logprobs;
}

static json_t *text_delta(const char *key, kin_str text) {
    json_t *delta = json_object();
    json_object_set_new(delta, key, kin_json_text(text));
    return delta;
}

static json_t *call_delta(int tool, json_t *function) {
    json_t *call = json_object(), *calls = json_array(), *delta = json_object();
    json_object_set_new(call, "index", json_integer(tool));
    json_object_set_new(call, "function", function);
    json_array_append_new(calls, call);
    json_object_set_new(delta, "tool_calls", calls);
    return delta;
}

static json_t *call_begin_delta(const kin_writer *w, int choice, const kin_reply_event *event) {
    char id[KIN_CALL_ID];
    json_t *function = json_object(), *delta;
    kin_call_id(w->context, choice, event->tool, event->id, id);
    json_object_set_new(function, "name", kin_json_text(event->name));
    json_object_set_new(function, "arguments", json_string(""));
    delta = call_delta(event->tool, function);
    json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0);
    json_object_set_new(call, "id", json_string(id));
    json_object_set_new(call, "type", json_string("function"));
    return delta;
}

// Returns an event's delta in a stream; NULL: none.
static json_t *event_delta(const kin_reply_event *event) {
    switch (event->kind) {
    case KIN_REPLY_TEXT: return event->text.len ? text_delta("content", event->text) : NULL;
    case KIN_REPLY_REASONING: return event->text.len ? text_delta("reasoning_content", event->text) : NULL;
    case KIN_REPLY_TOOL_ARGUMENTS: return event->text.len ? call_delta(event->tool, text_delta("arguments", event->text)) : NULL;
    default: return NULL;
    }
}

// ---- a stream

// Returns a chunk of one choice, with its pending probabilities.
static json_t *chunk_of(kin_writer *w, int i, json_t *delta, const char *reason) {
    json_t *one = json_object(), *choices = json_array(), *logprobs = pop_logprobs(&w->choices[i]);
    json_object_set_new(one, "index", json_integer(i));
    json_object_set_new(one, "delta", delta);
    if (logprobs) json_object_set_new(one, "logprobs", logprobs);
    json_object_set_new(one, "finish_reason", reason ? json_string(reason) : json_null());
    json_array_append_new(choices, one);
    return object_of(w, "chat.completion.chunk", choices);
}

static void start(kin_writer *w, kin_text_buffer *out) {
    for (int i = 0; w->is_stream && i < w->context->n_choices; i++)
        kin_json_put_event(NULL, chunk_of(w, i, json_pack("{s:s, s:n}", "role", "assistant", "content"), NULL), out);
}

static void progress(kin_writer *w, int choice, int n_done, int n_cached, int n_prompt, double ms, kin_text_buffer *out) {
    if (!w->is_stream || !w->context->request->return_progress) return;
    json_t *chunk = chunk_of(w, choice, json_object(), NULL);
    json_object_set_new(chunk, "prompt_progress", kin_progress_json(n_done, n_cached, n_prompt, ms));
    kin_json_put_event(NULL, chunk, out);
}

static void put_delta(kin_writer *w, const kin_delta *delta, json_t *said, kin_text_buffer *out) {
    if (!said) return;
    json_t *chunk = chunk_of(w, delta->choice, said, NULL);
    if (w->context->request->timings_per_token) json_object_set_new(chunk, "timings", kin_timings_json(&delta->so_far, 1));
    kin_json_put_event(NULL, chunk, out);
}

// A call is sent with its first argument: if it were cut off before, clients would see a call without arguments.
static void put_event(kin_writer *w, const kin_delta *delta, const kin_reply_event *event, kin_text_buffer *out) {
    choice *c = &w->choices[delta->choice];
    bool goes_on = event->kind == KIN_REPLY_TOOL_END || (event->kind == KIN_REPLY_TOOL_ARGUMENTS && event->text.len > 0);
    if (event->kind == KIN_REPLY_TOOL_BEGIN) {
        json_decref(c->begun);
        c->begun = call_begin_delta(w, delta->choice, event);
        return;
    }
    if (goes_on && c->begun) {
        put_delta(w, delta, c->begun, out);
        c->begun = NULL;
    }
    put_delta(w, delta, event_delta(event), out);
}

static void delta(kin_writer *w, const kin_delta *delta, kin_text_buffer *out) {
    choice *c = &w->choices[delta->choice];
    add_probs(c, delta, w->context->request->post_sampling_probs);
    for (int i = 0; i < delta->n_events; i++) {
        const kin_reply_event *event = &delta->events[i];
        c->has_calls |= event->kind == KIN_REPLY_TOOL_END;
        c->in_call = event->kind == KIN_REPLY_TOOL_BEGIN || (c->in_call && event->kind == KIN_REPLY_TOOL_ARGUMENTS);
        if (w->is_stream)
            put_event(w, delta, event, out);
        else
            kin_reply_items_add(&c->items, event, 1, NULL);
    }
    if (c->items.failed) out->failed = true;
}

static void finish(kin_writer *w, const kin_finish *finish, kin_text_buffer *out) {
    const kin_request *r = w->context->request;
    choice *c = &w->choices[finish->choice];
    c->reason = finish->reason;
    kin_usage_add(&w->usage, finish, finish->choice % r->n_choices == 0);
    if (finish->choice == 0) w->first = *finish;
    if (!w->is_stream) return;
    kin_timings timings = kin_finish_timings(finish);
    json_t *chunk = chunk_of(w, finish->choice, json_object(), finish_reason(c));
    if (!r->include_usage) json_object_set_new(chunk, "timings", kin_timings_json(&timings, 1));
    kin_openai_set_verbose(chunk, w->context, finish);
    kin_json_put_event(NULL, chunk, out);
}

// ---- a document

static json_t *call_json(const kin_writer *w, int choice, int tool, const kin_reply_item *item) {
    char id[KIN_CALL_ID];
    json_t *call = json_object(), *function = json_object();
    kin_call_id(w->context, choice, tool, kin_text_str(&item->id), id);
    json_object_set_new(function, "name", kin_json_text(kin_text_str(&item->name)));
    json_object_set_new(function, "arguments", kin_json_text(kin_text_str(&item->text)));
    json_object_set_new(call, "id", json_string(id));
    json_object_set_new(call, "type", json_string("function"));
    json_object_set_new(call, "function", function);
    return call;
}

static json_t *message_json(const kin_writer *w, int i, kin_text_buffer *out) {
    kin_text_buffer content = {0}, reasoning = {0};
    json_t *message = json_object(), *calls = json_array();
    const kin_reply_items *items = &w->choices[i].items;
    for (const kin_reply_item *item = items->at; item && item < items->at + items->n; item++) {
        kin_str text = kin_text_str(&item->text);
        out->failed |= item->text.failed;
        if (item->kind == KIN_REPLY_TEXT)
            kin_text_put(&content, text.at, text.len);
        else if (item->kind == KIN_REPLY_REASONING)
            kin_text_put(&reasoning, text.at, text.len);
        else if (item->is_whole || text.len > 0)
            json_array_append_new(calls, call_json(w, i, (int)json_array_size(calls), item));
    }
    bool has_calls = json_array_size(calls) > 0;
    out->failed |= content.failed || reasoning.failed;
    json_object_set_new(message, "role", json_string("assistant"));
    json_object_set_new(message, "content", content.len > 0 || !has_calls ? kin_json_text(kin_text_str(&content)) : json_null());
    json_object_set_new(message, "refusal", json_null());
    if (reasoning.len > 0) json_object_set_new(message, "reasoning_content", kin_json_text(kin_text_str(&reasoning)));
    if (has_calls) json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    kin_text_fini(&content);
    kin_text_fini(&reasoning);
    return message;
}

static json_t *choice_json(kin_writer *w, int i, kin_text_buffer *out) {
    json_t *one = json_object(), *logprobs = pop_logprobs(&w->choices[i]);
    json_object_set_new(one, "index", json_integer(i));
    json_object_set_new(one, "message", message_json(w, i, out));
    json_object_set_new(one, "logprobs", logprobs ? logprobs : json_null());
    json_object_set_new(one, "finish_reason", json_string(finish_reason(&w->choices[i])));
    return one;
}

// ---- the end

static void end_stream(kin_writer *w, kin_text_buffer *out) {
    if (w->context->request->include_usage) {
        json_t *last = object_of(w, "chat.completion.chunk", json_array());
        kin_openai_set_usage(last, &w->usage);
        kin_json_put_event(NULL, last, out);
    }
    kin_text_print(out, "%s", KIN_OPENAI_DONE);
}

static void end_document(kin_writer *w, kin_text_buffer *out) {
    json_t *choices = json_array();
    for (int i = 0; i < w->context->n_choices; i++) json_array_append_new(choices, choice_json(w, i, out));
    json_t *document = object_of(w, "chat.completion", choices);
    kin_openai_set_usage(document, &w->usage);
    kin_openai_set_verbose(document, w->context, &w->first);
    kin_json_put(document, out);
}

static void end(kin_writer *w, kin_text_buffer *out) {
    if (w->is_stream)
        end_stream(w, out);
    else
        end_document(w, out);
}

const kin_api_format kin_format_chat = {.name = "chat",
                                        .stream_type = "text/event-stream",
                                        .open = open_chat_writer,
                                        .close = close_chat_writer,
                                        .start = start,
                                        .progress = progress,
                                        .delta = delta,
                                        .finish = finish,
                                        .end = end,
                                        .ping = KIN_OPENAI_PING,
                                        .fail = kin_openai_fail,
                                        .error = kin_openai_put_error};
