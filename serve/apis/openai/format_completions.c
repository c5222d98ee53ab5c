// OpenAI's completions: text for prompts, with probabilities in a form that only this API has.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "serve/apis/openai/openai_json.h"
#include "serve/json_out.h"

static const char type_of_object[] = "text_completion";

typedef struct choice {
    kin_text_buffer text; // of a document
    json_t *logprobs;     // in a stream: those not sent yet. NULL: none
    int n_chars;          // of the tokens so far
    size_t n_prompt;      // bytes of the prompt covered by its tokens so far
    bool is_echoed;
    kin_finish_reason reason;
    double logprob; // sum over its tokens
    int n_tokens;
} choice;

struct kin_writer {
    const kin_writer_context *context;
    bool is_stream;
    int n_finished;
    kin_usage usage;
    kin_finish first; // of the first choice
    choice choices[]; // [context->n_choices]
};

static int open_completions_writer(kin_writer **out, const kin_writer_context *context, kin_err *err) {
    kin_writer *w = *out = calloc(1, sizeof *w + (size_t)context->n_choices * sizeof w->choices[0]);
    if (!w) return kin_err_set(err, "out of memory");
    w->context = context;
    w->is_stream = context->request->stream;
    return 0;
}

static void close_completions_writer(kin_writer *w) {
    if (!w) return;
    for (int i = 0; i < w->context->n_choices; i++) {
        kin_text_fini(&w->choices[i].text);
        json_decref(w->choices[i].logprobs);
    }
    free(w);
}

// ---- probabilities: {tokens, token_logprobs, top_logprobs, text_offset}

// A token that is not valid text by itself is written "bytes:\xe2\x82", as OpenAI does: replacement characters could not be told
// apart.
static void put_token(kin_text_buffer *out, kin_str piece) {
    bool is_text = !memchr(piece.at, '\0', piece.len);
    for (size_t i = 0; is_text && i < piece.len;) {
        int n = kin_utf8_len(piece.at + i, piece.len - i);
        is_text = n > 0;
        i += (size_t)(n > 0 ? n : 1);
    }
    if (is_text) {
        kin_text_put(out, piece.at, piece.len);
        return;
    }
    kin_text_put(out, "bytes:", 6);
    for (size_t i = 0; i < piece.len; i++) kin_text_print(out, "\\x%02x", (unsigned char)piece.at[i]);
}

static json_t *token_json(kin_str piece) {
    kin_text_buffer name = {0};
    put_token(&name, piece);
    json_t *json = name.failed ? NULL : json_stringn(name.at ? name.at : "", name.len);
    kin_text_fini(&name);
    return json;
}

static void set_top(json_t *top, const kin_token_prob *p) {
    kin_text_buffer name = {0};
    put_token(&name, p->piece);
    if (!name.failed) json_object_set_new(top, name.at ? name.at : "", json_real(kin_probs_number(p->logprob)));
    kin_text_fini(&name);
}

// Returns the likeliest tokens, and the chosen one.
static json_t *top_json(const kin_token_probs *probs) {
    json_t *top = json_object();
    for (int i = 0; i < probs->n_top; i++) set_top(top, &probs->top[i]);
    set_top(top, &probs->chosen);
    return top;
}

// Counts the characters that begin in the piece.
static int count_chars(kin_str piece) {
    int n = 0;
    for (size_t i = 0; i < piece.len; i++) n += ((unsigned char)piece.at[i] & 0xc0) != 0x80;
    return n;
}

static void append(json_t *logprobs, const char *key, json_t *value) {
    json_array_append_new(json_object_get(logprobs, key), value);
}

// Returns the part of the prompt that belongs to the token: nothing for the token that begins every text, and without the space
// that the tokenizer puts before a text.
static kin_str cut_from_prompt(const kin_writer_context *context, choice *c, int i, kin_str piece) {
    if (!context->prompts) return piece;
    kin_str prompt = context->prompts[i / context->request->n_choices];
    kin_str rest = {prompt.at + c->n_prompt, prompt.len - c->n_prompt};
    if (piece.len > 0 && piece.at[0] == ' ' && (rest.len == 0 || rest.at[0] != ' '))
        piece = (kin_str){piece.at + 1, piece.len - 1};
    if (piece.len > rest.len || memcmp(piece.at, rest.at, piece.len) != 0) return (kin_str){"", 0};
    c->n_prompt += piece.len;
    return piece;
}

static void add_probs(const kin_writer_context *context, choice *c, const kin_delta *delta) {
    for (int i = 0; delta->probs && !delta->is_prompt && i < delta->n_tokens; i++, c->n_tokens++)
        c->logprob += delta->probs[i].chosen.logprob;
    if (!delta->probs || delta->n_tokens == 0 || context->request->hides_probs) return;
    if (!c->logprobs)
        c->logprobs = json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
    for (int i = 0; i < delta->n_tokens; i++) {
        const kin_token_probs *p = &delta->probs[i];
        bool has_none = delta->is_prompt && isnan(p->chosen.logprob);
        append(c->logprobs, "tokens", token_json(p->chosen.piece));
        append(c->logprobs, "token_logprobs", has_none ? json_null() : json_real(kin_probs_number(p->chosen.logprob)));
        append(c->logprobs, "top_logprobs", has_none ? json_null() : top_json(p));
        append(c->logprobs, "text_offset", json_integer(c->n_chars));
        kin_str piece = p->chosen.piece;
        c->n_chars += count_chars(delta->is_prompt ? cut_from_prompt(context, c, delta->choice, piece) : piece);
    }
}

// ---- choices and chunks

// Appends the prompt once, if requested.
static void echo(kin_writer *w, int i, kin_text_buffer *text) {
    const kin_writer_context *context = w->context;
    if (!context->request->echo || !context->prompts || w->choices[i].is_echoed) return;
    kin_str prompt = context->prompts[i / context->request->n_choices];
    kin_text_put(text, prompt.at, prompt.len);
    w->choices[i].is_echoed = true;
}

// Returns a choice with its pending probabilities.
static json_t *choice_json(kin_writer *w, int i, kin_str text, bool is_finished) {
    choice *c = &w->choices[i];
    json_t *one = json_object();
    const char *reason = c->reason == KIN_FINISH_LENGTH ? "length" : "stop";
    json_object_set_new(one, "text", kin_json_text(text));
    json_object_set_new(one, "index", json_integer(i));
    json_object_set_new(one, "logprobs", c->logprobs ? c->logprobs : json_null());
    json_object_set_new(one, "finish_reason", is_finished ? json_string(reason) : json_null());
    c->logprobs = NULL;
    return one;
}

static json_t *chunk_of(kin_writer *w, int i, kin_str text, bool is_finished) {
    kin_text_buffer whole = {0};
    echo(w, i, &whole);
    kin_text_put(&whole, text.at, text.len);
    json_t *choices = json_array();
    json_array_append_new(choices, choice_json(w, i, kin_text_str(&whole), is_finished));
    kin_text_fini(&whole);
    return kin_openai_object(w->context, "cmpl-", type_of_object, choices);
}

static void start(kin_writer *w, kin_text_buffer *out) {
    (void)w;
    (void)out;
}

static void progress(kin_writer *w, int choice, int n_done, int n_cached, int n_prompt, double ms, kin_text_buffer *out) {
    if (!w->is_stream || !w->context->request->return_progress) return;
    json_t *choices = json_array();
    json_array_append_new(choices, choice_json(w, choice, (kin_str){"", 0}, false));
    json_t *chunk = kin_openai_object(w->context, "cmpl-", type_of_object, choices);
    json_object_set_new(chunk, "prompt_progress", kin_progress_json(n_done, n_cached, n_prompt, ms));
    kin_json_put_event(NULL, chunk, out);
}

static void put_text(kin_writer *w, const kin_delta *delta, kin_str text, kin_text_buffer *out) {
    if (text.len == 0) return;
    json_t *chunk = chunk_of(w, delta->choice, text, false);
    if (w->context->request->timings_per_token) json_object_set_new(chunk, "timings", kin_timings_json(&delta->so_far, 1));
    kin_json_put_event(NULL, chunk, out);
}

static void delta(kin_writer *w, const kin_delta *delta, kin_text_buffer *out) {
    choice *c = &w->choices[delta->choice];
    add_probs(w->context, c, delta);
    for (int i = 0; i < delta->n_events; i++) {
        kin_str text = delta->events[i].text;
        if (w->is_stream) {
            put_text(w, delta, text, out);
            continue;
        }
        echo(w, delta->choice, &c->text);
        kin_text_put(&c->text, text.at, text.len);
    }
}

static void finish(kin_writer *w, const kin_finish *finish, kin_text_buffer *out) {
    const kin_request *r = w->context->request;
    choice *c = &w->choices[finish->choice];
    c->reason = finish->reason;
    w->n_finished++;
    kin_usage_add(&w->usage, finish, finish->choice % r->n_choices == 0);
    if (finish->choice == 0) w->first = *finish;
    if (!w->is_stream) {
        echo(w, finish->choice, &c->text);
        return;
    }
    kin_timings timings = kin_finish_timings(finish);
    json_t *chunk = chunk_of(w, finish->choice, (kin_str){"", 0}, true);
    kin_openai_set_verbose(chunk, w->context, finish);
    // The last chunk has the usage even without include_usage, like llama-server's.
    if (!r->include_usage && w->n_finished == w->context->n_choices)
        kin_openai_set_usage(chunk, &w->usage);
    else if (!r->include_usage)
        json_object_set_new(chunk, "timings", kin_timings_json(&timings, 1));
    kin_json_put_event(NULL, chunk, out);
}

// "The one with the highest log probability per token" (OpenAI).
static double goodness(const choice *c) {
    return c->n_tokens > 0 ? c->logprob / c->n_tokens : -HUGE_VAL;
}

// Returns the choice's rank among those of its prompt; 0: the best.
static int rank_of(const kin_writer *w, int i) {
    int n = w->context->request->n_choices, begin = i / n * n, rank = 0;
    for (int k = begin; k < begin + n; k++) {
        double a = goodness(&w->choices[k]), b = goodness(&w->choices[i]);
        rank += a > b || (a == b && k < i);
    }
    return rank;
}

// Appends, for each prompt, the n_best best of its n_choices, best first.
static void put_best(kin_writer *w, json_t *choices) {
    int n = w->context->request->n_choices, n_best = w->context->request->n_best;
    for (int i = 0; i < w->context->n_choices / n * n_best; i++) {
        for (int k = i / n_best * n; k < (i / n_best + 1) * n; k++) {
            if (rank_of(w, k) != i % n_best) continue;
            json_t *one = choice_json(w, k, kin_text_str(&w->choices[k].text), true);
            json_object_set_new(one, "index", json_integer(i));
            json_array_append_new(choices, one);
        }
    }
}

static void end(kin_writer *w, kin_text_buffer *out) {
    json_t *choices = json_array(), *object;
    bool is_all = w->context->request->n_best == 0;
    if (!is_all) put_best(w, choices);
    for (int i = 0; !w->is_stream && is_all && i < w->context->n_choices; i++)
        json_array_append_new(choices, choice_json(w, i, kin_text_str(&w->choices[i].text), true));
    object = kin_openai_object(w->context, "cmpl-", type_of_object, choices);
    kin_openai_set_usage(object, &w->usage);
    if (!w->is_stream) kin_openai_set_verbose(object, w->context, &w->first);
    if (!w->is_stream)
        kin_json_put(object, out);
    else if (w->context->request->include_usage)
        kin_json_put_event(NULL, object, out);
    else
        json_decref(object);
    if (w->is_stream) kin_text_print(out, "%s", KIN_OPENAI_DONE);
}

const kin_api_format kin_format_completions = {.name = "completions",
                                               .stream_type = "text/event-stream",
                                               .open = open_completions_writer,
                                               .close = close_completions_writer,
                                               .start = start,
                                               .progress = progress,
                                               .delta = delta,
                                               .finish = finish,
                                               .end = end,
                                               .ping = KIN_OPENAI_PING,
                                               .fail = kin_openai_fail,
                                               .error = kin_openai_put_error};
