#include "serve/client/chat_stream.h"

#include <jansson.h>
#include <string.h>

static void put_string(kin_text_buffer *to, const json_t *text) {
    if (json_is_string(text)) kin_text_put(to, json_string_value(text), json_string_length(text));
}

// Returns a count from untrusted JSON; 0 if it is not a valid count.
static int count_of(const json_t *o, const char *key) {
    const json_t *n = json_object_get(o, key);
    json_int_t value = json_integer_value(n);
    return value > 0 && value < 1 << 30 ? (int)value : 0;
}

static double ms_of(const json_t *o, const char *key) {
    double ms = json_number_value(json_object_get(o, key));
    return ms > 0 && ms < 1e12 ? ms : 0;
}

static bool error_of(const json_t *o, kin_err *err) {
    const json_t *error = json_object_get(o, "error");
    const char *message = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    if (!error || json_is_null(error)) return false;
    kin_err_set(err, "%.400s", message && message[0] ? message : "the server reported an error without a message");
    return true;
}

static void read_choice(kin_chat_stream *s, const json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta");
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    const json_t *thought = json_object_get(delta, "reasoning_content");
    put_string(&s->text, json_object_get(delta, "content"));
    put_string(&s->reasoning, thought ? thought : json_object_get(delta, "reasoning"));
    if (!reason) return;
    s->is_whole = true;
    s->is_cut = strcmp(reason, "length") == 0;
}

static void read_figures(kin_chat_stream *s, const json_t *chunk) {
    const json_t *progress = json_object_get(chunk, "prompt_progress"), *timings = json_object_get(chunk, "timings");
    const json_t *usage = json_object_get(chunk, "usage");
    if (progress) {
        s->n_done = count_of(progress, "processed");
        s->n_prompt = count_of(progress, "total");
    }
    if (usage) {
        s->n_prompt = count_of(usage, "prompt_tokens");
        s->n_generated = count_of(usage, "completion_tokens");
    }
    if (!timings) return;
    s->n_cached = count_of(timings, "cache_n");
    s->n_prompt = count_of(timings, "prompt_n") + s->n_cached;
    s->n_generated = count_of(timings, "predicted_n");
    s->prompt_ms = ms_of(timings, "prompt_ms");
    s->generated_ms = ms_of(timings, "predicted_ms");
}

static int handle_event(void *user, kin_str data, kin_err *err) {
    kin_chat_stream *s = user;
    json_error_t where;
    if (data.len == 6 && memcmp(data.at, "[DONE]", 6) == 0) {
        s->is_whole = true;
        return 0;
    }
    json_t *chunk = json_loadb(data.at, data.len, JSON_ALLOW_NUL, &where);
    if (!chunk) return kin_err_set(err, "the server's answer is not valid JSON: %s", where.text);
    int rc = error_of(chunk, err) ? KIN_FAIL : 0;
    const json_t *choices = json_object_get(chunk, "choices");
    if (rc == 0 && json_array_size(choices) > 0) read_choice(s, json_array_get(choices, 0));
    if (rc == 0) read_figures(s, chunk);
    json_decref(chunk);
    if (s->text.failed || s->reasoning.failed) return kin_err_set(err, "out of memory for the answer");
    return rc;
}

int kin_chat_stream_feed(kin_chat_stream *s, const char *bytes, size_t n, kin_err *err) {
    return kin_sse_reader_feed(&s->sse, bytes, n, handle_event, s, err);
}

void kin_chat_stream_fini(kin_chat_stream *s) {
    kin_sse_reader_fini(&s->sse);
    kin_text_fini(&s->text);
    kin_text_fini(&s->reasoning);
}

bool kin_chat_stream_error(const char *bytes, size_t n, kin_err *err) {
    json_t *o = json_loadb(bytes, n, JSON_ALLOW_NUL, NULL);
    bool is_one = o && error_of(o, err);
    json_decref(o);
    return is_one;
}
