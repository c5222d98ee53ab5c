// OpenAI's responses: output items (reasoning, message, function_call, custom_tool_call), each done before the next is added.
// Every event has a sequence number and names its item and part; clients build the response from events alone.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/apis/responses/responses.h"
#include "serve/apis/responses/tool_names.h"
#include "serve/json_out.h"
#include "serve/reply_items.h"
#include "serve/writer.h"

typedef enum response_status { IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED } response_status;

static const char *const names_of_statuses[] = {"in_progress", "completed", "incomplete", "failed"};

struct kin_writer {
    const kin_writer_context *context;
    kin_reply_items items;
    kin_finish finish;
    kin_text_buffer *out;   // of the current call
    json_t *probs, *unsaid; // probs: an array per item, of its tokens; unsaid: of tokens whose text has not come yet
    int n_events;
};

static int open_responses_writer(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    w->probs = json_array();
    w->unsaid = json_array();
    return 0;
}

static void close_responses_writer(kin_writer *w) {
    if (!w) return;
    kin_reply_items_fini(&w->items);
    json_decref(w->probs);
    json_decref(w->unsaid);
    free(w);
}

// ---- items

static void set_string(json_t *o, const char *key, const char *text) {
    json_object_set_new(o, key, json_string(text));
}

static void set_id(const kin_writer *w, json_t *o, const char *key, const char *prefix, int i) {
    char id[80];
    snprintf(id, sizeof id, "%s_%s%d", prefix, w->context->id, i);
    set_string(o, key, id);
}

static const char *prefix_of(const kin_reply_item *item) {
    return item->kind == KIN_REPLY_REASONING ? "rs" : item->kind == KIN_REPLY_TEXT ? "msg" : "fc";
}

static kin_responses_tool tool_of(const kin_writer *w, const kin_reply_item *item) {
    const json_t *echo = json_object_get(w->context->request->body, KIN_RESPONSES_ECHO);
    return kin_responses_find_tool(json_object_get(echo, "tools"), kin_text_str(&item->name));
}

// Returns the only part of a message or of reasoning. is_empty: as at its beginning.
static json_t *part_of(const kin_writer *w, const kin_reply_item *item, int i, bool is_empty) {
    kin_str text = is_empty ? (kin_str){"", 0} : kin_text_str(&item->text);
    json_t *part = json_object();
    set_string(part, "type", item->kind == KIN_REPLY_TEXT ? "output_text" : "reasoning_text");
    json_object_set_new(part, "text", kin_json_text(text));
    if (item->kind != KIN_REPLY_TEXT) return part;
    json_object_set_new(part, "annotations", json_array());
    json_object_set_new(part, "logprobs", is_empty ? json_array() : json_incref(json_array_get(w->probs, (size_t)i)));
    return part;
}

// Returns the item as it is added (IN_PROGRESS: empty), or as it is at its end.
static json_t *item_of(const kin_writer *w, const kin_reply_item *item, int i, response_status status) {
    bool is_empty = status == IN_PROGRESS;
    kin_str text = is_empty ? (kin_str){"", 0} : kin_text_str(&item->text);
    char call_id[KIN_CALL_ID];
    json_t *o = json_object();
    set_id(w, o, "id", prefix_of(item), i);
    set_string(o, "status", names_of_statuses[status]);
    if (item->kind == KIN_REPLY_TOOL_BEGIN) {
        kin_responses_tool tool = tool_of(w, item);
        set_string(o, "type", tool.is_custom ? "custom_tool_call" : "function_call");
        kin_call_id(w->context, 0, i, kin_text_str(&item->id), call_id);
        set_string(o, "call_id", call_id);
        if (tool.namespace) set_string(o, "namespace", tool.namespace);
        json_object_set_new(o, "name", kin_json_text(tool.name));
        if (tool.is_custom)
            json_object_set_new(o, "input", kin_responses_custom_input(text));
        else
            json_object_set_new(o, "arguments", kin_json_text(text));
        return o;
    }
    json_t *content = json_array();
    if (!is_empty) json_array_append_new(content, part_of(w, item, i, false));
    json_object_set_new(o, "content", content);
    set_string(o, "type", item->kind == KIN_REPLY_TEXT ? "message" : "reasoning");
    if (item->kind == KIN_REPLY_TEXT) set_string(o, "role", "assistant");
    if (item->kind == KIN_REPLY_REASONING) json_object_set_new(o, "summary", json_array());
    return o;
}

// ---- the response

static json_t *usage_of(const kin_finish *f) {
    json_t *usage = json_object(), *input = json_object(), *output = json_object();
    json_object_set_new(input, "cached_tokens", json_integer(f->n_cached));
    json_object_set_new(output, "reasoning_tokens", json_integer(f->n_reasoning));
    json_object_set_new(usage, "input_tokens", json_integer(f->n_prompt));
    json_object_set_new(usage, "input_tokens_details", input);
    json_object_set_new(usage, "output_tokens", json_integer(f->n_generated));
    json_object_set_new(usage, "output_tokens_details", output);
    json_object_set_new(usage, "total_tokens", json_integer(f->n_prompt + f->n_generated));
    return usage;
}

static response_status status_of(const kin_finish *f) {
    return f->reason == KIN_FINISH_LENGTH ? INCOMPLETE : COMPLETED;
}

// The last item of a response that was cut off is incomplete.
static response_status status_of_item(const kin_writer *w, const kin_reply_item *item, int i) {
    bool is_cut = status_of(&w->finish) == INCOMPLETE && i == w->items.n - 1;
    return is_cut || !item->is_whole ? INCOMPLETE : COMPLETED;
}

static void set_output(const kin_writer *w, json_t *o, response_status status) {
    json_t *output = json_array();
    for (int i = 0; status != IN_PROGRESS && i < w->items.n; i++) {
        const kin_reply_item *item = &w->items.at[i];
        json_array_append_new(output, item_of(w, item, i, status_of_item(w, item, i)));
    }
    json_object_set_new(o, "output", output);
}

// Rounds to six digits: a float converted to double would show more.
static void set_default(json_t *o, const char *key, float value) {
    if (json_is_null(json_object_get(o, key))) json_object_set_new(o, key, json_real(rint(1e6 * (double)value) / 1e6));
}

static void set_sampling(const kin_writer *w, json_t *o) {
    const kin_sampler_options *sampler = &w->context->request->sampler;
    set_default(o, "temperature", sampler->temperature);
    set_default(o, "top_p", sampler->top_p);
}

static json_t *error_of(const kin_api_error *error) {
    json_t *o = json_object();
    set_string(o, "code", error->code ? error->code : error->status == 429 ? "rate_limit_exceeded" : "server_error");
    json_object_set_new(o, "message", kin_json_text((kin_str){error->message, strlen(error->message)}));
    return o;
}

static json_t *response_of(const kin_writer *w, response_status status, const kin_api_error *error) {
    const kin_finish *f = &w->finish;
    json_t *o = json_object(), *why = NULL;
    char id[64];
    snprintf(id, sizeof id, "resp_%s", w->context->id);
    set_string(o, "id", id);
    set_string(o, "object", "response");
    json_object_set_new(o, "created_at", json_integer(w->context->created_s));
    set_string(o, "status", names_of_statuses[status]);
    json_object_set_new(o, "completed_at", json_null());
    if (status == COMPLETED) {
        int64_t s = (int64_t)((f->prompt_ms + f->generated_ms) / 1e3);
        json_object_set_new(o, "completed_at", json_integer(w->context->created_s + s));
    }
    if (status == INCOMPLETE) {
        why = json_object();
        set_string(why, "reason", "max_output_tokens");
    }
    json_object_set_new(o, "error", error ? error_of(error) : json_null());
    json_object_set_new(o, "incomplete_details", why ? why : json_null());
    set_string(o, "model", w->context->model);
    json_object_update(o, json_object_get(w->context->request->body, KIN_RESPONSES_ECHO));
    set_sampling(w, o);
    set_output(w, o, status);
    json_object_set_new(o, "usage", status == COMPLETED || status == INCOMPLETE ? usage_of(f) : json_null());
    return o;
}

// ---- events

// Without a stream there are no events.
static void put_event(kin_writer *w, const char *type, json_t *data) {
    if (!w->context->request->stream) {
        json_decref(data);
        return;
    }
    set_string(data, "type", type);
    json_object_set_new(data, "sequence_number", json_integer(w->n_events++));
    kin_json_put_event(type, data, w->out);
}

static void put_response_event(kin_writer *w, const char *type, response_status status, const kin_api_error *error) {
    json_t *data = json_object();
    json_object_set_new(data, "response", response_of(w, status, error));
    put_event(w, type, data);
}

// Emits an event of an item's only part. key: the field for `value`.
static void put_part_event(kin_writer *w, const char *type, const kin_reply_item *item, int i, const char *key, json_t *value) {
    json_t *data = json_object();
    set_id(w, data, "item_id", prefix_of(item), i);
    json_object_set_new(data, "output_index", json_integer(i));
    if (item->kind != KIN_REPLY_TOOL_BEGIN) json_object_set_new(data, "content_index", json_integer(0));
    json_object_set_new(data, key, value);
    if (item->kind == KIN_REPLY_TEXT && strcmp(key, "part") != 0) {
        bool is_whole = strcmp(key, "text") == 0;
        json_object_set_new(data, "logprobs", is_whole ? json_incref(json_array_get(w->probs, (size_t)i)) : json_copy(w->unsaid));
    }
    put_event(w, type, data);
}

static void put_item_event(kin_writer *w, const char *type, const kin_reply_item *item, int i, response_status status) {
    json_t *data = json_object();
    json_object_set_new(data, "output_index", json_integer(i));
    json_object_set_new(data, "item", item_of(w, item, i, status));
    put_event(w, type, data);
}

static void open_item(void *user, const kin_reply_item *item, int i) {
    kin_writer *w = user;
    json_array_append_new(w->probs, json_array());
    put_item_event(w, "response.output_item.added", item, i, IN_PROGRESS);
    if (item->kind == KIN_REPLY_TOOL_BEGIN) return;
    put_part_event(w, "response.content_part.added", item, i, "part", part_of(w, item, i, true));
}

static void grow_item(void *user, const kin_reply_item *item, int i, kin_str piece) {
    const char *type = item->kind == KIN_REPLY_TEXT        ? "response.output_text.delta"
                       : item->kind == KIN_REPLY_REASONING ? "response.reasoning_text.delta"
                                                           : "response.function_call_arguments.delta";
    kin_writer *w = user;
    if (piece.len == 0 || (item->kind == KIN_REPLY_TOOL_BEGIN && tool_of(w, item).is_custom)) return;
    put_part_event(w, type, item, i, "delta", kin_json_text(piece));
    if (item->kind == KIN_REPLY_TEXT) json_array_extend(json_array_get(w->probs, (size_t)i), w->unsaid);
    json_array_clear(w->unsaid);
}

static void close_item(void *user, const kin_reply_item *item, int i) {
    kin_writer *w = user;
    kin_str text = kin_text_str(&item->text);
    kin_responses_tool tool = item->kind == KIN_REPLY_TOOL_BEGIN ? tool_of(w, item) : (kin_responses_tool){0};
    if (tool.is_custom) { // its input is known when the arguments are complete
        put_part_event(w, "response.custom_tool_call_input.delta", item, i, "delta", kin_responses_custom_input(text));
        put_part_event(w, "response.custom_tool_call_input.done", item, i, "input", kin_responses_custom_input(text));
    } else if (item->kind == KIN_REPLY_TOOL_BEGIN) {
        json_t *data = json_object();
        set_id(w, data, "item_id", "fc", i);
        json_object_set_new(data, "output_index", json_integer(i));
        json_object_set_new(data, "name", kin_json_text(tool.name));
        json_object_set_new(data, "arguments", kin_json_text(text));
        put_event(w, "response.function_call_arguments.done", data);
    } else {
        const char *type = item->kind == KIN_REPLY_TEXT ? "response.output_text.done" : "response.reasoning_text.done";
        put_part_event(w, type, item, i, "text", kin_json_text(text));
        put_part_event(w, "response.content_part.done", item, i, "part", part_of(w, item, i, false));
    }
    put_item_event(w, "response.output_item.done", item, i, status_of_item(w, item, i));
}

static kin_reply_items_sink sink_of(kin_writer *w) {
    return (kin_reply_items_sink){open_item, grow_item, close_item, w};
}

static void start(kin_writer *w, kin_text_buffer *out) {
    w->out = out;
    put_response_event(w, "response.created", IN_PROGRESS, NULL);
    put_response_event(w, "response.in_progress", IN_PROGRESS, NULL);
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
    bool has_answer = false;
    for (int i = 0; i < w->items.n; i++) has_answer |= w->items.at[i].kind != KIN_REPLY_REASONING;
    const kin_reply_event none = {.kind = KIN_REPLY_TEXT, .text = {"", 0}}; // clients expect a message in what is completed
    if (!has_answer && status_of(finish) == COMPLETED) kin_reply_items_add(&w->items, &none, 1, &sink);
    kin_reply_items_end(&w->items, &sink);
    if (w->items.failed) out->failed = true;
}

static void end(kin_writer *w, kin_text_buffer *out) {
    response_status status = status_of(&w->finish);
    w->out = out;
    if (!w->context->request->stream)
        kin_json_put(response_of(w, status, NULL), out);
    else
        put_response_event(w, status == COMPLETED ? "response.completed" : "response.incomplete", status, NULL);
}

// Before there is a response to fail, clients expect an error as in all of OpenAI's streams.
static void fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out) {
    if (!w) {
        kin_openai_fail(w, error, out);
        return;
    }
    w->out = out;
    put_response_event(w, "response.failed", FAILED, error);
}

const kin_api_format kin_format_responses = {.name = "responses",
                                             .stream_type = "text/event-stream",
                                             .open = open_responses_writer,
                                             .close = close_responses_writer,
                                             .start = start,
                                             .delta = delta,
                                             .finish = finish,
                                             .end = end,
                                             .ping = KIN_OPENAI_PING,
                                             .fail = fail,
                                             .error = kin_openai_put_error};
