// Anthropic's messages: blocks of thinking, text and tool use; each is closed before the next is opened.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/json_out.h"
#include "serve/reply_items.h"
#include "serve/writer.h"

struct kin_writer {
    const kin_writer_context *context;
    kin_reply_items items;
    kin_finish finish;
    kin_text_buffer stop_word; // a copy: finish.stop_word is borrowed
    kin_text_buffer *out;      // of the current call
};

static int open_messages_writer(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    return 0;
}

static void close_messages_writer(kin_writer *w) {
    if (!w) return;
    kin_reply_items_fini(&w->items);
    kin_text_fini(&w->stop_word);
    free(w);
}

// ---- pieces of JSON

static json_t *typed(const char *type) {
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string(type));
    return o;
}

static void put_event(kin_writer *w, const char *type, json_t *data) {
    kin_json_put_event(type, data, w->out);
}

// input_tokens does not include tokens from the prefix cache, which are counted in cache_read_input_tokens.
static json_t *usage_of(const kin_finish *f) {
    json_t *usage = json_object();
    json_object_set_new(usage, "input_tokens", json_integer(f->n_prompt - f->n_cached));
    json_object_set_new(usage, "cache_creation_input_tokens", json_integer(0));
    json_object_set_new(usage, "cache_read_input_tokens", json_integer(f->n_cached));
    json_object_set_new(usage, "output_tokens", json_integer(f->n_generated));
    return usage;
}

static void set_stop(const kin_writer *w, json_t *o) {
    static const char *const reasons[] = {[KIN_FINISH_EOS] = "end_turn",
                                          [KIN_FINISH_STOP_WORD] = "stop_sequence",
                                          [KIN_FINISH_LENGTH] = "max_tokens",
                                          [KIN_FINISH_TOOL_CALLS] = "tool_use"};
    bool by_word = w->finish.reason == KIN_FINISH_STOP_WORD;
    json_object_set_new(o, "stop_reason", json_string(reasons[w->finish.reason]));
    json_object_set_new(o, "stop_sequence", by_word ? kin_json_text(kin_text_str(&w->stop_word)) : json_null());
}

// Returns the block as in a document; with is_empty, as at the beginning of a stream.
static json_t *block_of(const kin_writer *w, const kin_reply_item *item, int i, bool is_empty) {
    kin_str text = is_empty ? (kin_str){"", 0} : kin_text_str(&item->text);
    char id[KIN_CALL_ID];
    json_t *block, *input;
    switch (item->kind) {
    case KIN_REPLY_REASONING:
        block = typed("thinking");
        json_object_set_new(block, "thinking", kin_json_text(text));
        json_object_set_new(block, "signature", json_string(""));
        return block;
    case KIN_REPLY_TEXT:
        block = typed("text");
        json_object_set_new(block, "text", kin_json_text(text));
        return block;
    default:
        kin_call_id(w->context, 0, i, kin_text_str(&item->id), id);
        input = json_loadb(text.at, text.len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(input)) { // none yet, or not valid
            json_decref(input);
            input = json_object();
        }
        block = typed("tool_use");
        json_object_set_new(block, "id", json_string(id));
        json_object_set_new(block, "name", kin_json_text(kin_text_str(&item->name)));
        json_object_set_new(block, "input", input);
        return block;
    }
}

static json_t *message_of(const kin_writer *w) {
    char id[64];
    json_t *message = json_object();
    snprintf(id, sizeof id, "msg_%s", w->context->id);
    json_object_set_new(message, "id", json_string(id));
    json_object_set_new(message, "type", json_string("message"));
    json_object_set_new(message, "role", json_string("assistant"));
    json_object_set_new(message, "content", json_array());
    json_object_set_new(message, "model", json_string(w->context->model));
    return message;
}

// ---- a stream

static void put_block_event(kin_writer *w, const char *type, int i, const char *key, json_t *value) {
    json_t *data = typed(type);
    json_object_set_new(data, "index", json_integer(i));
    if (key) json_object_set_new(data, key, value);
    put_event(w, type, data);
}

static void put_block_delta(kin_writer *w, int i, const char *type, const char *key, kin_str text) {
    json_t *delta = typed(type);
    json_object_set_new(delta, key, kin_json_text(text));
    put_block_event(w, "content_block_delta", i, "delta", delta);
}

static bool is_call(const kin_reply_item *item) {
    return item->kind == KIN_REPLY_TOOL_BEGIN;
}

static void put_block_start(void *user, const kin_reply_item *item, int i) {
    put_block_event(user, "content_block_start", i, "content_block", block_of(user, item, i, true));
}

// A call is sent with its first argument: if it were cut off before, clients would see a call without arguments.
static void open_block(void *user, const kin_reply_item *item, int i) {
    if (!is_call(item)) put_block_start(user, item, i);
}

static void grow_block(void *user, const kin_reply_item *item, int i, kin_str piece) {
    if (is_call(item) && item->text.len == piece.len) put_block_start(user, item, i);
    if (item->kind == KIN_REPLY_REASONING)
        put_block_delta(user, i, "thinking_delta", "thinking", piece);
    else if (item->kind == KIN_REPLY_TEXT)
        put_block_delta(user, i, "text_delta", "text", piece);
    else
        put_block_delta(user, i, "input_json_delta", "partial_json", piece);
}

static void close_block(void *user, const kin_reply_item *item, int i) {
    if (is_call(item) && item->text.len == 0) {
        if (!item->is_whole) return;
        put_block_start(user, item, i);
    }
    if (item->kind == KIN_REPLY_REASONING) put_block_delta(user, i, "signature_delta", "signature", (kin_str){"", 0});
    put_block_event(user, "content_block_stop", i, NULL, NULL);
}

static kin_reply_items_sink sink_of(kin_writer *w) {
    return (kin_reply_items_sink){open_block, grow_block, close_block, w};
}

static void start(kin_writer *w, kin_text_buffer *out) {
    if (!w->context->request->stream) return;
    kin_finish known = {.n_prompt = w->context->n_prompt};
    json_t *message = message_of(w), *data = typed("message_start");
    json_object_set_new(message, "stop_reason", json_null());
    json_object_set_new(message, "stop_sequence", json_null());
    json_object_set_new(message, "usage", usage_of(&known));
    json_object_set_new(data, "message", message);
    w->out = out;
    put_event(w, "message_start", data);
}

static void delta(kin_writer *w, const kin_delta *delta, kin_text_buffer *out) {
    kin_reply_items_sink sink = sink_of(w);
    w->out = out;
    if (delta->choice != 0) return;
    kin_reply_items_add(&w->items, delta->events, delta->n_events, w->context->request->stream ? &sink : NULL);
    out->failed |= w->items.failed;
}

static void finish(kin_writer *w, const kin_finish *finish, kin_text_buffer *out) {
    kin_reply_items_sink sink = sink_of(w);
    w->out = out;
    if (finish->choice != 0) return;
    w->finish = *finish;
    kin_text_put(&w->stop_word, finish->stop_word.at, finish->stop_word.len);
    kin_reply_items_end(&w->items, w->context->request->stream ? &sink : NULL);
}

static void put_document(kin_writer *w, kin_text_buffer *out) {
    json_t *message = message_of(w), *content = json_object_get(message, "content");
    for (int i = 0; i < w->items.n; i++) { // drops a call that was cut off: its input would lack arguments
        const kin_reply_item *item = &w->items.at[i];
        if (!is_call(item) || item->is_whole) json_array_append_new(content, block_of(w, item, i, false));
    }
    set_stop(w, message);
    json_object_set_new(message, "usage", usage_of(&w->finish));
    kin_json_put(message, out);
}

static void end(kin_writer *w, kin_text_buffer *out) {
    if (!w->context->request->stream) {
        put_document(w, out);
        return;
    }
    json_t *stop = json_object(), *data = typed("message_delta");
    set_stop(w, stop);
    json_object_set_new(data, "delta", stop);
    json_object_set_new(data, "usage", usage_of(&w->finish));
    w->out = out;
    put_event(w, "message_delta", data);
    put_event(w, "message_stop", typed("message_stop"));
}

// ---- errors

static const char *error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 402: return "billing_error";
    case 403: return "permission_error";
    case 404:
    case 405: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    case 504: return "timeout_error";
    case 501: return "invalid_request_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static json_t *error_of(const kin_api_error *error) {
    char message[sizeof error->message];
    json_t *inner = typed(error_type(error->status)), *outer = typed("error");
    snprintf(message, sizeof message, "%s", error->message);
    if (strcmp(error->type, "exceed_context_size_error") == 0) // these words make agents compact their conversation
        snprintf(message, sizeof message, "prompt is too long: %d tokens > %d maximum", error->n_prompt, error->n_ctx);
    json_object_set_new(inner, "message", kin_json_text((kin_str){message, strlen(message)}));
    json_object_set_new(outer, "error", inner);
    return outer;
}

static void fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out) {
    (void)w;
    kin_json_put_event("error", error_of(error), out);
}

static void put_error(const kin_api_error *error, kin_text_buffer *out) {
    kin_json_put(error_of(error), out);
}

const kin_api_format kin_format_messages = {.name = "messages",
                                            .stream_type = "text/event-stream",
                                            .open = open_messages_writer,
                                            .close = close_messages_writer,
                                            .start = start,
                                            .delta = delta,
                                            .finish = finish,
                                            .end = end,
                                            .ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                                            .fail = fail,
                                            .error = put_error};
