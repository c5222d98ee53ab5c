#include "serve/utility.h"

#include <stdlib.h>
#include <string.h>

#include "serve/apis/anthropic/messages.h"
#include "serve/apis/llama/text_tools.h"
#include "serve/apis/openai/openai_json.h"
#include "serve/apis/responses/responses.h"
#include "serve/json_out.h"
#include "serve/refuse.h"
#include "serve/request/request_chat.h"

enum { MAX_TOKENIZED = 8 << 20 }; // bytes of a text

typedef struct utility {
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone
    const kin_preparer *preparer;
    const kin_request_defaults *defaults;
    kin_utility_fn fn;
    const kin_api_format *format;
    int *n_open;
    kin_lane_work work;
    char *body;
    size_t n_body;
    kin_http_hold hold;
    int rc;
    kin_text_buffer answer;
    kin_api_error error;
} utility;

static void work(kin_lane_work *work) {
    utility *e = work->user;
    json_t *answer = NULL, *body = kin_request_parse((kin_str){e->body, e->n_body}, &e->error);
    e->rc = body ? e->fn(e->preparer, e->defaults, body, &answer, &e->error) : KIN_FAIL;
    if (e->rc == 0) kin_json_put(answer, &e->answer);
    if (e->rc == 0 && e->answer.failed) e->rc = kin_api_error_set(&e->error, 500, NULL, "out of memory");
    free(e->body);
    e->body = NULL;
    kin_request_trim(e->hold.bytes);
}

static void done(kin_lane_work *work, int status) {
    utility *e = work->user;
    if (status != 0) e->rc = kin_api_error_set(&e->error, 503, NULL, "the server is shutting down");
    if (e->x && e->rc == 0)
        kin_http_reply(e->x, 200, "application/json; charset=utf-8", e->answer.at, e->answer.len);
    else if (e->x)
        kin_refuse(e->x, e->format, &e->error);
    --*e->n_open;
    kin_text_fini(&e->answer);
    free(e->body); // if the pool has not run
    kin_http_release(&e->hold);
    free(e);
}

static void on_utility_gone(void *self) {
    ((utility *)self)->x = NULL;
}

void kin_utility_begin(kin_lane *huge, const kin_preparer *preparer, const kin_request_defaults *defaults, kin_utility_fn fn,
                       const kin_api_format *format, int *n_open, kin_http_exchange *x) {
    utility *e = calloc(1, sizeof *e);
    if (!e) {
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    *e = (utility){.x = x, .preparer = preparer, .defaults = defaults, .fn = fn, .format = format, .n_open = n_open};
    ++*n_open;
    e->data = (kin_exchange_data){on_utility_gone, e};
    kin_http_set_data(x, &e->data);
    e->body = kin_http_detach_body(x, &e->n_body, &e->hold);
    e->work = (kin_lane_work){.run = work, .done = done, .user = e};
    kin_lane_run(huge, &e->work, e->n_body > KIN_HUGE_BODY);
}

// ---- the requests

static int answered(json_t *json, json_t **answer, kin_api_error *err) {
    *answer = json;
    return json ? 0 : kin_api_error_set(err, 500, NULL, "out of memory");
}

int kin_utility_tokenize(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                         kin_api_error *err) {
    kin_tokenize_request r;
    int32_t *ids = NULL;
    int n = 0;
    (void)defaults;
    if (kin_tokenize_parse(&r, body, err) != 0) return KIN_FAIL;
    if (r.content.len > MAX_TOKENIZED) { // an id takes 56 bytes as JSON, plus its digits
        kin_tokenize_fini(&r);
        return kin_api_error_set(err, 413, "content", "the text is larger than 8 MiB: send it in pieces");
    }
    json_t *text = json_stringn(r.content.at, r.content.len);
    int rc = text ? kin_prompter_encode_json(p->prompter, text, r.add_special, r.parse_special, &ids, &n, err)
                  : answered(NULL, answer, err);
    kin_str *pieces = rc == 0 && r.with_pieces ? calloc((size_t)n + 1, sizeof *pieces) : NULL;
    for (int i = 0; i < n && pieces; i++) pieces[i] = kin_vocab_piece(p->session->vocab, ids[i]);
    if (rc == 0) rc = answered(kin_tokenize_answer(ids, pieces, n), answer, err);
    free(pieces);
    free(ids);
    json_decref(text);
    kin_tokenize_fini(&r);
    return rc;
}

static int check_ids(const kin_preparer *p, const int32_t *ids, int n, kin_api_error *err) {
    int n_tokens = kin_vocab_n_tokens(p->session->vocab);
    for (int i = 0; i < n; i++) {
        if (ids[i] >= n_tokens)
            return kin_api_error_set(err, 400, "tokens", "token %d: ids are from 0 to %d", (int)ids[i], n_tokens - 1);
    }
    return 0;
}

int kin_utility_detokenize(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                           kin_api_error *err) {
    int32_t *ids;
    int n;
    kin_text_buffer text = {0};
    kin_err why;
    (void)defaults;
    if (kin_detokenize_parse(&ids, &n, body, err) != 0) return KIN_FAIL;
    int rc = check_ids(p, ids, n, err);
    if (rc == 0 && kin_prompter_text(p->prompter, ids, n, true, &text, &why) != 0)
        rc = kin_api_error_set(err, 500, NULL, "%s", why.text);
    if (rc == 0) rc = answered(kin_detokenize_answer((kin_str){text.at ? text.at : "", text.len}), answer, err);
    kin_text_fini(&text);
    free(ids);
    return rc;
}

int kin_utility_apply_template(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                               kin_api_error *err) {
    kin_request r;
    kin_prompt prompt;
    if (kin_request_from_chat(&r, body, defaults, err) != 0) return KIN_FAIL;
    int rc = kin_prompter_render(p->prompter, &r, &prompt, err);
    if (rc == 0) {
        kin_str text = {prompt.text.at ? prompt.text.at : "", prompt.text.len};
        rc = answered(kin_apply_template_answer(text), answer, err);
        kin_prompt_fini(&prompt);
    }
    kin_request_fini(&r);
    return rc;
}

static int count(const kin_preparer *p, const kin_request_defaults *defaults, json_t *chat, int *n, kin_api_error *err) {
    kin_request r;
    if (kin_request_from_chat(&r, chat, defaults, err) != 0 || kin_request_check_roles(&r, err) != 0) return KIN_FAIL;
    int rc = kin_prepare_count(p, &r, n, err);
    kin_request_fini(&r);
    return rc;
}

static int translated(int (*translate)(json_t **, const json_t *, kin_api_error *), json_t *body, json_t **chat,
                      kin_api_error *err) {
    int rc = translate(chat, body, err);
    json_decref(body);
    return rc;
}

int kin_utility_count_messages(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                               kin_api_error *err) {
    json_t *chat;
    int n;
    if (translated(kin_messages_to_chat, body, &chat, err) != 0 || count(p, defaults, chat, &n, err) != 0) return KIN_FAIL;
    return answered(json_pack("{s:i}", "input_tokens", n), answer, err);
}

static int count_openai(const kin_preparer *p, const kin_request_defaults *defaults, json_t *chat, json_t **answer,
                        kin_api_error *err) {
    int n;
    if (count(p, defaults, chat, &n, err) != 0) return KIN_FAIL;
    return answered(json_pack("{s:s, s:i}", "object", "response.input_tokens", "input_tokens", n), answer, err);
}

int kin_utility_count_chat(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                           kin_api_error *err) {
    return count_openai(p, defaults, body, answer, err);
}

int kin_utility_count_responses(const kin_preparer *p, const kin_request_defaults *defaults, json_t *body, json_t **answer,
                                kin_api_error *err) {
    json_t *chat;
    if (translated(kin_responses_to_chat, body, &chat, err) != 0) return KIN_FAIL;
    return count_openai(p, defaults, chat, answer, err);
}
