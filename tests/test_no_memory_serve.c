// The server with failing allocations (failing_malloc.h): connections, requests of all APIs, prompts, formats, and clients.
//
// A connection without memory refuses its client or closes. jansson omits values for which it has no memory, so a parsed request
// may lack fields; it must be refused or valid.
#include "failing_malloc.h"

#include <stdio.h>

#include "serve/apis/anthropic/messages.h"
#include "serve/apis/llama/text_tools.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/apis/responses/responses.h"
#include "serve/client/chat_stream.h"
#include "serve/client/http_client.h"
#include "serve/http/access.h"
#include "serve/http/http.h"
#include "serve/http/http_connection.h"
#include "serve/loaded_model.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"
#include "serve/writer.h"
#include "testkit/silent_console.h"

// ---- connections

typedef struct connection {
    kin_http_service service;
    kin_http_connection *c;
    kin_http_exchange *open;
    int n_requests, n_answered;
    bool is_over;
} connection;

static void send_bytes(void *socket, const void *bytes, size_t n) {
    (void)bytes;
    (void)n;
    assert_false(((connection *)socket)->is_over);
}

static size_t count_pending(const void *socket, uint64_t *n_out) {
    (void)socket;
    *n_out = 0;
    return 0;
}

static void set_reading(void *socket, bool on) {
    (void)socket;
    (void)on;
}

static void end_socket(void *socket) {
    ((connection *)socket)->is_over = true;
}

static void on_request(void *user, kin_http_exchange *x) {
    connection *w = user;
    w->n_requests++;
    w->open = x;
}

static void on_gone(void *user, kin_http_exchange *x) {
    connection *w = user;
    assert_ptr_equal(x, w->open);
    w->open = NULL;
}

// Answers a request, in pieces or as a whole.
static void answer(connection *w) {
    kin_http_exchange *x = w->open;
    w->open = NULL;
    kin_str q = kin_http_query(x, "q"), body = kin_http_body(x);
    kin_http_add_header(x, "X-Query", q.at ? q.at : "none");
    w->n_answered++;
    if (body.len > 0) {
        kin_http_reply(x, 200, "text/plain", body.at, body.len);
        return;
    }
    kin_http_begin(x, 200, "text/event-stream");
    kin_http_write(x, "data: 1\n\n", 9);
    kin_http_end(x);
}

static int serve_requests(void *arg, kin_err *err) {
    static const kin_http_socket_ops ops = {send_bytes, count_pending, set_reading, end_socket, end_socket};
    static const char *const requests[] = {
        "GET /a%20b?q=1%32 HTTP/1.1\r\nHost: a\r\nX-Long: ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
        "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\nde",
        "fg\r\n0\r\n\r\nPOST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"};
    connection w = {.service = {.limits = kin_http_options_default().limits,
                                .memory = {.max = 1 << 20},
                                .callbacks = {.request = on_request, .gone = on_gone}}};
    (void)arg;
    w.service.user = &w;
    kin_rng_seed(&w.service.rng, 1);
    if (kin_http_connection_open(&w.c, &w.service, &ops, &w, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < sizeof requests / sizeof *requests && !w.is_over; i++) {
        kin_http_connection_feed(w.c, requests[i], strlen(requests[i]));
        while (w.open) {
            answer(&w);
            if (!w.is_over) kin_http_connection_sent(w.c);
        }
    }
    kin_http_connection_free(w.c);
    assert_int_equal(w.service.memory.used, 0);
    if (w.n_answered == 3 && !w.is_over) return 0;
    return kin_err_set(err, "%d of 3 requests were answered", w.n_answered);
}

static void connections_end_or_answer(void **state) {
    (void)state;
    without_memory(serve_requests, NULL);
}

// ---- requests

static const char chat[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":"
    "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\","
    "\"type\":"
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","
    "\"content\":"
    "\"r\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"x\":"
    "{\"type\":\"integer\"}}}}}],\"stop\":[\"\\n\",\"END\"],\"logit_bias\":{\"5\":1.5,\"7\":-100},\"n\":2,\"max_tokens\":9,"
    "\"logprobs\":true,\"top_logprobs\":2,\"stream\":true,\"seed\":5}";
static const char structured[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
    "\"name\":\"s\","
    "\"schema\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}}}}";
static const char completion[] =
    "{\"prompt\":[\"a\",\"b c\"],\"n\":2,\"echo\":true,\"logprobs\":2,\"stop\":\"x\",\"suffix\":null}";
static const char native[] =
    "{\"prompt\":[1,\"b\",3],\"n_predict\":4,\"grammar\":\"root ::= [a-c]+\",\"logit_bias\":[[\"a\",false],[5,1]],"
    "\"response_fields\":[\"content\"],\"samplers\":[\"top_k\"]}";
static const char messages[] = "{\"model\":\"m\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{"
                               "\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":"
                               "\"\"},{\"type\":\"text\",\"text\":\"b\"},"
                               "{\"type\":\"tool_use\",\"id\":\"u1\",\"name\":\"f\",\"input\":{\"x\":1}}]},{\"role\":\"user\","
                               "\"content\":[{\"type\":\"tool_result\","
                               "\"tool_use_id\":\"u1\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]}]}],\"tools\":[{\"name\":"
                               "\"f\",\"input_schema\":{\"type\":"
                               "\"object\"}}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"},\"stop_sequences\":[\"x\"]}";
static const char responses[] = "{\"model\":\"m\",\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
                                "\"input_text\",\"text\":\"a\"}]},"
                                "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
                                "\"function_call_output\",\"call_id\":"
                                "\"c1\",\"output\":\"r\"}],\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{"
                                "\"type\":\"object\"}}],\"text\":{\"format\":"
                                "{\"type\":\"json_object\"}},\"max_output_tokens\":5}";
static const char ollama[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
    "calls\":["
    "{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_name\":\"f\"}],"
    "\"tools\":["
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}],\"format\":\"json\",\"options\":"
    "{\"temperature\":0,\"stop\":[\"x\"],\"num_predict\":3},\"think\":false}";

typedef int translate_function(json_t **out, const json_t *body, kin_api_error *err);
typedef int parse_function(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);

static int translate_ollama(json_t **out, const json_t *body, kin_api_error *err) {
    kin_ollama_kind kind;
    return kin_ollama_translate_chat(&kind, out, body, err);
}

// A request, from its bytes to its jobs.
typedef struct asking {
    const char *body;
    translate_function *translate; // NULL: needs no translation
    parse_function *parse;
    const kin_loaded_model *model; // NULL: only parses the request
} asking;

static int copy_error(const kin_api_error *api, kin_err *err) {
    assert_true(api->status >= 400);
    return kin_err_set(err, "%s", api->message);
}

static int parse_request(const asking *a, kin_request *request, kin_api_error *api) {
    const kin_request_defaults defaults = {.sampler = kin_sampler_options_defaults(), .n_predict = 7};
    failing_standby_json = true;
    json_t *body = kin_request_parse((kin_str){a->body, strlen(a->body)}, api), *translated = NULL;
    failing_standby_json = false;
    if (!body) return KIN_FAIL;
    if (a->translate) {
        int rc = a->translate(&translated, body, api);
        json_decref(body);
        if (rc != 0) return KIN_FAIL;
        body = translated;
    }
    return a->parse(request, body, &defaults, api);
}

static int ask(void *arg, kin_err *err) {
    const asking *a = arg;
    kin_api_error api = {0};
    kin_request request;
    if (parse_request(a, &request, &api) != 0) return copy_error(&api, err);
    if (a->model) {
        kin_prepared prepared;
        if (kin_prepare(&prepared, &a->model->preparer, &request, &api) != 0) return copy_error(&api, err);
        kin_grammar_budget budget = kin_grammar_budget_of(KIN_GRAMMAR_MAX_STEPS);
        if (kin_prepare_grammar(&prepared, &a->model->preparer, &budget, &api) != 0) {
            kin_prepared_fini(&prepared);
            return copy_error(&api, err);
        }
        kin_prepared_fini(&prepared);
    }
    kin_request_fini(&request);
    return 0;
}

static const struct {
    const char *body;
    translate_function *translate;
    parse_function *parse;
} askings[] = {
    {chat, NULL, kin_request_from_chat},
    {structured, NULL, kin_request_from_chat},
    {completion, NULL, kin_request_from_completions},
    {native, NULL, kin_request_from_native},
    {messages, kin_messages_to_chat, kin_request_from_chat},
    {responses, kin_responses_to_chat, kin_request_from_chat},
    {ollama, translate_ollama, kin_request_from_chat},
};

static int tokenize(void *arg, kin_err *err) {
    kin_tokenize_request request;
    kin_api_error api = {0};
    int32_t *ids;
    int n;
    (void)arg;
    failing_standby_json = true;
    json_t *body = kin_request_parse((kin_str){"{\"content\":\"a b\",\"with_pieces\":true}", 36}, &api);
    if (!body || kin_tokenize_parse(&request, body, &api) != 0) return copy_error(&api, err);
    kin_tokenize_fini(&request);
    body = kin_request_parse((kin_str){"{\"tokens\":[1,2,3]}", 18}, &api);
    failing_standby_json = false;
    if (!body || kin_detokenize_parse(&ids, &n, body, &api) != 0) return copy_error(&api, err);
    free(ids);
    return 0;
}

static void requests_are_refused_or_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof askings / sizeof *askings; i++) {
        asking a = {askings[i].body, askings[i].translate, askings[i].parse, NULL};
        without_memory(ask, &a);
    }
    without_memory(tokenize, NULL);
}

// ---- prompts and grammars

static atomic_bool never;

static void wake(void *user) {
    (void)user;
}

static void requests_become_jobs_or_errors(void **state) {
    (void)state;
    const kin_console console = kin_silent_console(&never);
    kin_loaded_model_options o = {.session = kin_session_options_defaults(), .n_ctx = 512};
    kin_loaded_model model = {0}; // the demo model
    kin_err err;
    o.session.console = &console;
    o.session.n_threads = 1;
    o.session.gpu_layers = "0";
    o.service = (kin_service_options){.n_parallel = 2, .max_waiting = 2, .stop = &never, .wake = wake};
    if (kin_loaded_model_open(&model, &o, &err) != 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof askings / sizeof *askings; i++) {
        asking a = {askings[i].body, askings[i].translate, askings[i].parse, &model};
        without_memory(ask, &a);
    }
    kin_loaded_model_close(&model);
}

// ---- responses

static int write_reply(void *arg, kin_err *err) {
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true}";
    static const kin_reply_event events[] = {{.kind = KIN_REPLY_TEXT, .text = {"so", 2}},
                                             {.kind = KIN_REPLY_TOOL_BEGIN, .name = {"f", 1}},
                                             {.kind = KIN_REPLY_TOOL_ARGUMENTS, .text = {"{}", 2}},
                                             {.kind = KIN_REPLY_TOOL_END}};
    const kin_api_format *format = *(const kin_api_format *const *)arg;
    const asking a = {.body = body, .parse = kin_request_from_chat};
    kin_api_error api = {0};
    kin_request request;
    kin_writer *w;
    kin_text_buffer out = {0};
    if (parse_request(&a, &request, &api) != 0) return copy_error(&api, err);
    const kin_str prompt = {"a", 1};
    const kin_writer_context context = {
        .request = &request, .model = "m", .fingerprint = "x", .id = "abc", .n_choices = 1, .n_prompt = 1, .prompts = &prompt};
    int rc = format->open(&w, &context, err);
    if (rc == 0) {
        format->start(w, &out);
        format->delta(w, &(kin_delta){.events = events, .n_events = 4}, &out);
        format->finish(w, &(kin_finish){.reason = KIN_FINISH_TOOL_CALLS, .n_prompt = 1, .n_generated = 4}, &out);
        format->end(w, &out);
        format->close(w);
    }
    kin_text_fini(&out);
    kin_request_fini(&request);
    return rc;
}

static void formats_leave_nothing_behind(void **state) {
    (void)state;
    static const kin_api_format *const formats[] = {&kin_format_chat,           &kin_format_completions, &kin_format_native,
                                                    &kin_format_responses,      &kin_format_messages,    &kin_format_ollama_chat,
                                                    &kin_format_ollama_generate};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const kin_api_format *format = formats[i];
        without_memory(write_reply, &format);
    }
}

// ---- clients, access

static int open_access(void *arg, kin_err *err) {
    const kin_access_options o = {.host = "localhost", .allow_hosts = "desk.local,kin.lan", .api_keys = "a,b"};
    kin_access *access;
    (void)arg;
    if (kin_access_open(&access, &o, err) != 0) return KIN_FAIL;
    bool right = kin_access_has_key(access, (kin_str){"Bearer b", 8}, (kin_str){0});
    kin_access_close(access);
    return right ? 0 : kin_err_set(err, "the key is not known");
}

static int read_stream(void *arg, kin_err *err) {
    static const char bytes[] =
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\",\"reasoning_content\":\"b\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3}}\n\n"
        "data: [DONE]\n\n";
    kin_chat_stream s = {0};
    (void)arg;
    failing_standby_json = true;
    int rc = kin_chat_stream_feed(&s, bytes, sizeof bytes - 1, err);
    failing_standby_json = false;
    if (rc == 0 && !s.is_whole) rc = kin_err_set(err, "it is not whole");
    kin_chat_stream_fini(&s);
    return rc;
}

static bool goes_on(void *user) {
    (void)user;
    return true;
}

static bool on_piece(void *user, int status, kin_str piece) {
    (void)user;
    (void)status;
    (void)piece;
    return true;
}

static int ask_nobody(void *arg, kin_err *err) {
    const kin_http_client_options o = {.url = "http://127.0.0.1:1/kin", .api_key = "k", .goes_on = goes_on};
    kin_http_client *c;
    int status;
    (void)arg;
    if (kin_http_client_open(&c, &o, err) != 0) return KIN_FAIL;
    kin_http_client_end end = kin_http_client_ask(c, "/v1/models", (kin_str){"{}", 2}, on_piece, NULL, &status, err);
    kin_http_client_close(c);
    assert_int_equal(end, KIN_HTTP_CLIENT_FAILED);
    if (err->text[0] == 0) return kin_err_set(err, "no sentence"), KIN_FAIL;
    return 0;
}

static void clients_and_keys(void **state) {
    (void)state;
    without_memory(open_access, NULL);
    without_memory(read_stream, NULL);
    without_memory(ask_nobody, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_end_or_answer),
        cmocka_unit_test(requests_are_refused_or_sound),
        cmocka_unit_test(requests_become_jobs_or_errors),
        cmocka_unit_test(formats_leave_nothing_behind),
        cmocka_unit_test(clients_and_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
