// Shared by the tests of the translated APIs: bodies and events as JSON, written with ' for " and compared by structure, and
// the life cycle of a writer.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "serve/request/request.h"
#include "serve/writer.h"
#include "tests/place.h"

typedef int translate_function(json_t **out, const json_t *body, kin_api_error *err);

static inline json_t *json_of(const char *text) {
    json_error_t err;
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    json_t *json = json_loads(copy, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    if (!json) fail_msg("%s at %d: %s", err.text, err.position, text);
    free(copy);
    return json;
}
#define json_of(...) FROM_TEST(json_of(__VA_ARGS__))

// Takes ownership of `got`.
static inline void expect_json(json_t *got, const char *want) {
    json_t *wanted = json_of(want);
    if (!json_equal(got, wanted)) {
        char *text = json_dumps(got, JSON_ENCODE_ANY);
        print_error("got    %s\n", text ? text : "nothing");
        free(text);
        text = json_dumps(wanted, JSON_ENCODE_ANY);
        print_error("wanted %s\n", text);
        free(text);
        fail();
    }
    json_decref(got);
    json_decref(wanted);
}
#define expect_json(...) FROM_TEST(expect_json(__VA_ARGS__))

static inline void expect_chat(translate_function *translate, const char *body, const char *want) {
    json_t *given = json_of(body), *chat = NULL;
    kin_api_error err = {0};
    if (translate(&chat, given, &err) != 0) fail_msg("%s: %s", body, err.message);
    json_decref(given);
    expect_json(chat, want);
}
#define expect_chat(...) FROM_TEST(expect_chat(__VA_ARGS__))

static inline void expect_refused(translate_function *translate, const char *body, int status, const char *param,
                                  const char *words) {
    json_t *given = json_of(body), *chat = NULL;
    kin_api_error err = {0};
    if (translate(&chat, given, &err) == 0) fail_msg("accepted: %s", body);
    json_decref(given);
    assert_int_equal(err.status, status);
    assert_string_equal(err.param, param);
    if (!strstr(err.message, words)) fail_msg("\"%s\" does not say \"%s\"", err.message, words);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

// ---- a writer

typedef struct written {
    kin_request request;
    kin_writer_context context;
    const kin_api_format *format;
    kin_writer *writer;
    kin_text_buffer out;
} written;

static inline void begin_writing(written *w, const kin_api_format *format, bool stream) {
    kin_err err;
    *w = (written){
        .request = {.stream = stream, .is_chat = true, .n_choices = 1},
        .context = {.model = "demo", .fingerprint = "kin", .id = "ID", .created_s = 1000, .n_choices = 1, .n_prompt = 9},
        .format = format};
    w->context.request = &w->request;
    assert_int_equal(format->open(&w->writer, &w->context, &err), 0);
    format->start(w->writer, &w->out);
}
#define begin_writing(...) FROM_TEST(begin_writing(__VA_ARGS__))

typedef int parse_request(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);

// Begins writing the answer to the request in `body`. Every prompt is "Once".
static inline void begin_answer(written *w, const kin_api_format *format, parse_request *parse, const char *body) {
    static const kin_str prompts[] = {{"Once", 4}, {"Once", 4}, {"Once", 4}};
    kin_request_defaults defaults = {.sampler = kin_sampler_options_defaults(), .n_predict = -1};
    kin_api_error error = {0};
    kin_err err;
    *w = (written){
        .format = format,
        .context = {.model = "demo", .fingerprint = "kin", .id = "ID", .created_s = 1000, .n_prompt = 9, .prompts = prompts}};
    if (parse(&w->request, json_of(body), &defaults, &error) != 0) fail_msg("%s: %s", body, error.message);
    int n_prompts = w->request.is_chat ? 1 : (int)json_array_size(w->request.prompts);
    assert_true(n_prompts <= 3);
    w->context.request = &w->request;
    w->context.n_choices = n_prompts * w->request.n_choices;
    assert_int_equal(format->open(&w->writer, &w->context, &err), 0);
    format->start(w->writer, &w->out);
}

static inline void write_event(written *w, kin_reply_kind kind, const char *text) {
    kin_reply_event event = {.kind = kind};
    kin_str said = {text, strlen(text)};
    char id[24];
    snprintf(id, sizeof id, "id_%s", text);
    if (kind == KIN_REPLY_TOOL_BEGIN) event.name = said;
    if (kind == KIN_REPLY_TOOL_BEGIN) event.id = (kin_str){id, strlen(id)};
    if (kind != KIN_REPLY_TOOL_BEGIN) event.text = said;
    kin_delta delta = {.events = &event, .n_events = 1};
    w->format->delta(w->writer, &delta, &w->out);
}

// Writes one token of text with its probability and the most likely alternative.
static inline void write_probable(written *w, kin_reply_kind kind, const char *text) {
    kin_token_prob top = {.id = 8, .piece = {"b", 1}, .logprob = -0.5f};
    kin_token_probs probs = {.chosen = {.id = 7, .piece = {text, strlen(text)}, .logprob = -1}, .top = &top, .n_top = 1};
    kin_reply_event event = {.kind = kind, .text = {text, strlen(text)}};
    int32_t token = 7;
    kin_delta delta = {.events = &event, .n_events = 1, .tokens = &token, .probs = &probs, .n_tokens = 1};
    w->format->delta(w->writer, &delta, &w->out);
}

static inline void write_call(written *w, const char *name, const char *arguments, const char *more) {
    write_event(w, KIN_REPLY_TOOL_BEGIN, name);
    write_event(w, KIN_REPLY_TOOL_ARGUMENTS, arguments);
    if (more) write_event(w, KIN_REPLY_TOOL_ARGUMENTS, more);
    write_event(w, KIN_REPLY_TOOL_END, "");
}

static inline void end_writing(written *w, kin_finish_reason reason, const char *stop_word);

// Writes a reply of random pieces, determined by the seed. Some replies end inside a tool call.
static inline void write_random(written *w, uint64_t seed) {
    static const char *const pieces[] = {"a", "\"", "\\", "\n", "\xc3\xa9", "<b>", "{", "\xf0\x9f\x90\x89", "\x01", " "};
    kin_rng rng;
    kin_rng_seed(&rng, seed);
    for (int n = (int)(kin_rng_u64(&rng) % 12); n > 0; n--) {
        uint64_t kind = kin_rng_u64(&rng) % 4;
        const char *piece = pieces[kin_rng_u64(&rng) % 10];
        if (kind < 3) {
            write_event(w, kind < 2 ? KIN_REPLY_TEXT : KIN_REPLY_REASONING, piece);
            continue;
        }
        write_event(w, KIN_REPLY_TOOL_BEGIN, "f");
        write_event(w, KIN_REPLY_TOOL_ARGUMENTS, "{\"x\":");
        if (n == 1 && seed % 3 == 0) break;
        write_event(w, KIN_REPLY_TOOL_ARGUMENTS, "\"\xc3\xa9\"}");
        write_event(w, KIN_REPLY_TOOL_END, "");
    }
    end_writing(w, seed % 3 == 0 ? KIN_FINISH_LENGTH : KIN_FINISH_EOS, "");
}

// Appends the text `more` to the object's field `key`.
static inline void add_text_to(json_t *object, const char *key, const json_t *more) {
    const char *before = json_string_value(json_object_get(object, key)), *after = json_string_value(more);
    assert_non_null(after);
    json_t *joined = json_sprintf("%s%s", before ? before : "", after);
    assert_int_equal(json_object_set_new(object, key, joined), 0);
}

static inline void finish_choice(written *w, int choice, kin_finish_reason reason, const char *stop_word) {
    kin_finish finish = {.reason = reason, .stop_word = {stop_word, strlen(stop_word)}, .n_prompt = 9, .n_cached = 4};
    finish.choice = choice;
    finish.n_generated = 7;
    finish.n_reasoning = 2;
    finish.prompt_ms = 2;
    finish.generated_ms = 3;
    finish.seed = 5;
    w->format->finish(w->writer, &finish, &w->out);
}

static inline void end_writing(written *w, kin_finish_reason reason, const char *stop_word) {
    finish_choice(w, 0, reason, stop_word);
    w->format->end(w->writer, &w->out);
}

static inline void drop_writing(written *w) {
    assert_false(w->out.failed);
    w->format->close(w->writer);
    kin_request_fini(&w->request);
    kin_text_fini(&w->out);
}
#define drop_writing(...) FROM_TEST(drop_writing(__VA_ARGS__))

// Readers of the output: one JSON document, lines of newline-delimited JSON, or named events. An event's name must equal its
// `type`.
static inline json_t *read_json(const char *at, size_t n) {
    json_error_t err;
    json_t *json = json_loadb(at, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    if (!json) fail_msg("%s: %.*s", err.text, (int)n, at);
    return json;
}
#define read_json(...) FROM_TEST(read_json(__VA_ARGS__))

static inline json_t *lines_of(const kin_text_buffer *out) {
    json_t *list = json_array();
    for (const char *at = out->at, *end; at && *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        json_array_append_new(list, read_json(at, (size_t)(end - at)));
    }
    return list;
}
#define lines_of(...) FROM_TEST(lines_of(__VA_ARGS__))

static inline json_t *events_of(const kin_text_buffer *out) {
    json_t *list = json_array();
    char name[80];
    for (const char *at = out->at, *end; at && *at; at = end + 2) {
        int n = 0;
        end = strstr(at, "\n\n");
        assert_non_null(end);
        assert_int_equal(sscanf(at, "event: %79s\ndata: %n", name, &n), 1);
        assert_true(n > 0);
        json_t *data = read_json(at + n, (size_t)(end - at - n));
        assert_string_equal(json_string_value(json_object_get(data, "type")), name);
        json_array_append_new(list, data);
    }
    return list;
}
#define events_of(...) FROM_TEST(events_of(__VA_ARGS__))

// Reads unnamed events (chunks). *is_done: the last one is [DONE].
static inline json_t *chunks_of(const kin_text_buffer *out, bool *is_done) {
    json_t *list = json_array();
    *is_done = false;
    for (const char *at = out->at, *end; at && *at; at = end + 2) {
        end = strstr(at, "\n\n");
        assert_non_null(end);
        assert_false(*is_done);
        if (at[0] == ':') continue; // an SSE comment
        assert_memory_equal(at, "data: ", 6);
        *is_done = strncmp(at, "data: [DONE]", 12) == 0;
        if (!*is_done) json_array_append_new(list, read_json(at + 6, (size_t)(end - at - 6)));
    }
    return list;
}
#define chunks_of(...) FROM_TEST(chunks_of(__VA_ARGS__))

static inline void expect_document(written *w, const char *want) {
    expect_json(read_json(w->out.at, w->out.len), want);
    drop_writing(w);
}
#define expect_document(...) FROM_TEST(expect_document(__VA_ARGS__))

static inline void expect_events(written *w, const char *want) {
    expect_json(events_of(&w->out), want);
    drop_writing(w);
}
#define expect_events(...) FROM_TEST(expect_events(__VA_ARGS__))

static inline void expect_error(const kin_api_format *format, kin_api_error err, const char *want) {
    kin_text_buffer out = {0};
    format->error(&err, &out);
    expect_json(read_json(out.at, out.len), want);
    kin_text_fini(&out);
}
#define expect_error(...) FROM_TEST(expect_error(__VA_ARGS__))
