#include "serve/apis/openai/openai_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "serve/json_out.h"
#include "serve/request/settings.h"

// ---- errors

static json_t *text_or_null(const char *text) {
    return text && text[0] ? kin_json_text((kin_str){text, strlen(text)}) : json_null();
}

json_t *kin_openai_error(const kin_api_error *e) {
    json_t *error = json_object();
    json_object_set_new(error, "code", e->code ? json_string(e->code) : json_integer(e->status));
    json_object_set_new(error, "message", kin_json_text((kin_str){e->message, strlen(e->message)}));
    json_object_set_new(error, "type", json_string(e->type));
    json_object_set_new(error, "param", text_or_null(e->param));
    if (strcmp(e->type, "exceed_context_size_error") == 0) {
        json_object_set_new(error, "n_prompt_tokens", json_integer(e->n_prompt));
        json_object_set_new(error, "n_ctx", json_integer(e->n_ctx));
    }
    return json_pack("{s:o}", "error", error);
}

void kin_openai_put_error(const kin_api_error *error, kin_text_buffer *out) {
    kin_json_put(kin_openai_error(error), out);
}

void kin_openai_fail(kin_writer *w, const kin_api_error *error, kin_text_buffer *out) {
    (void)w;
    kin_json_put_event(NULL, kin_openai_error(error), out);
}

json_t *kin_openai_object(const kin_writer_context *context, const char *prefix, const char *object, json_t *choices) {
    json_t *o = json_object();
    char id[64];
    snprintf(id, sizeof id, "%s%s", prefix, context->id);
    json_object_set_new(o, "id", json_string(id));
    json_object_set_new(o, "object", json_string(object));
    json_object_set_new(o, "created", json_integer(context->created_s));
    json_object_set_new(o, "model", json_string(context->model));
    json_object_set_new(o, "system_fingerprint", json_string(context->fingerprint));
    json_object_set_new(o, "choices", choices);
    return o;
}

// ---- usage and timings

void kin_usage_add(kin_usage *usage, const kin_finish *finish, bool is_first_of_prompt) {
    kin_timings *t = &usage->timings;
    if (is_first_of_prompt) {
        t->n_prompt += finish->n_prompt;
        t->n_cached += finish->n_cached;
    }
    t->prompt_ms += finish->prompt_ms;
    t->n_generated += finish->n_generated;
    t->generated_ms += finish->generated_ms;
    kin_draft_counts_add(&t->drafts, &finish->drafts);
    usage->n_reasoning += finish->n_reasoning;
    usage->n_choices++;
}

json_t *kin_usage_json(const kin_usage *usage) {
    const kin_timings *t = &usage->timings;
    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "prompt_tokens", t->n_prompt, "completion_tokens", t->n_generated,
                     "total_tokens", t->n_prompt + t->n_generated, "prompt_tokens_details", "cached_tokens", t->n_cached,
                     "completion_tokens_details", "reasoning_tokens", usage->n_reasoning);
}

kin_timings kin_finish_timings(const kin_finish *finish) {
    return (kin_timings){finish->n_prompt,  finish->n_cached,     finish->n_generated,
                         finish->prompt_ms, finish->generated_ms, finish->drafts};
}

// Rounds to microseconds.
static double rounded(double ms) {
    return round(ms * 1e3) / 1e3;
}

static void set_rates(json_t *o, const char *per_token, const char *per_second, double ms, int n) {
    json_object_set_new(o, per_token, json_real(n > 0 ? rounded(ms / n) : 0));
    json_object_set_new(o, per_second, json_real(ms > 0 && n > 0 ? rounded(1e3 * n / ms) : 0));
}

// Adds draft counts under llama-server's names if tokens were drafted; passes and sources are kin's own fields.
static void set_drafts(json_t *o, const kin_draft_counts *c) {
    if (kin_draft_counts_drafted(c) == 0) return;
    json_t *sources = json_object();
    json_object_set_new(o, "draft_n", json_integer((json_int_t)kin_draft_counts_drafted(c)));
    json_object_set_new(o, "draft_n_accepted", json_integer((json_int_t)kin_draft_counts_accepted(c)));
    json_object_set_new(o, "pass_n", json_integer((json_int_t)c->n_passes));
    json_object_set_new(o, "tokens_per_pass", json_real(rounded((double)c->n_written / (double)c->n_passes)));
    for (int i = 0; i < KIN_DRAFT_N_SOURCES; i++) {
        if (c->drafted[i] == 0) continue;
        json_object_set_new(
            sources, kin_draft_source_name(i),
            json_pack("{s:I, s:I}", "draft_n", (json_int_t)c->drafted[i], "draft_n_accepted", (json_int_t)c->accepted[i]));
    }
    json_object_set_new(o, "draft_sources", sources);
}

json_t *kin_timings_json(const kin_timings *t, int n_choices) {
    int n_computed = t->n_prompt - t->n_cached;
    json_t *o = json_object();
    json_object_set_new(o, "cache_n", json_integer(t->n_cached));
    json_object_set_new(o, "prompt_n", json_integer(n_computed));
    json_object_set_new(o, "prompt_ms", json_real(rounded(t->prompt_ms)));
    set_rates(o, "prompt_per_token_ms", "prompt_per_second", t->prompt_ms, n_computed);
    json_object_set_new(o, "predicted_n", json_integer(t->n_generated));
    json_object_set_new(o, "predicted_ms", json_real(rounded(t->generated_ms)));
    set_rates(o, "predicted_per_token_ms", "predicted_per_second", t->generated_ms, t->n_generated - n_choices);
    set_drafts(o, &t->drafts);
    return o;
}

void kin_openai_set_verbose(json_t *object, const kin_writer_context *context, const kin_finish *finish) {
    const kin_request *r = context->request;
    kin_timings timings = kin_finish_timings(finish);
    if (!r->verbose) return;
    json_t *o = json_object();
    json_object_set_new(o, "index", json_integer(finish->choice));
    json_object_set_new(o, "id_slot", json_integer(finish->slot));
    json_object_set_new(o, "model", json_string(context->model));
    json_object_set_new(o, "tokens_predicted", json_integer(finish->n_generated));
    json_object_set_new(o, "tokens_evaluated", json_integer(finish->n_prompt));
    json_object_set_new(o, "generation_settings", kin_settings_json(r, finish->seed));
    if (context->prompts) json_object_set_new(o, "prompt", kin_json_text(context->prompts[finish->choice / r->n_choices]));
    json_object_set_new(o, "truncated", json_boolean(finish->truncated));
    json_object_set_new(o, "timings", kin_timings_json(&timings, 1));
    json_object_set_new(object, "__verbose", o);
}

void kin_openai_set_usage(json_t *object, const kin_usage *usage) {
    json_object_set_new(object, "usage", kin_usage_json(usage));
    json_object_set_new(object, "timings", kin_timings_json(&usage->timings, usage->n_choices));
}

json_t *kin_progress_json(int n_done, int n_cached, int n_prompt, double ms) {
    return json_pack("{s:i, s:i, s:i, s:I}", "total", n_prompt, "cache", n_cached, "processed", n_done, "time_ms",
                     (json_int_t)ms);
}

// ---- probabilities

double kin_probs_number(float logprob) {
    return logprob > -9999.0f ? (double)logprob : -9999.0; // OpenAI's value for "none"; also for NaN
}

static json_t *prob_json(const kin_token_prob *p, bool is_prob) {
    json_t *o = json_object(), *bytes = json_array();
    for (size_t i = 0; i < p->piece.len; i++) json_array_append_new(bytes, json_integer((unsigned char)p->piece.at[i]));
    json_object_set_new(o, "id", json_integer(p->id));
    json_object_set_new(o, "token", kin_json_text(p->piece));
    json_object_set_new(o, "bytes", bytes);
    if (is_prob)
        json_object_set_new(o, "prob", json_real(isnan(p->logprob) ? 0 : exp((double)p->logprob)));
    else
        json_object_set_new(o, "logprob", json_real(kin_probs_number(p->logprob)));
    return o;
}

static json_t *probs_json(const kin_token_probs *probs, bool is_prob) {
    json_t *o = prob_json(&probs->chosen, is_prob), *top = json_array();
    for (int i = 0; i < probs->n_top; i++) json_array_append_new(top, prob_json(&probs->top[i], is_prob));
    json_object_set_new(o, is_prob ? "top_probs" : "top_logprobs", top);
    return o;
}

void kin_openai_add_probs(json_t *array, const kin_delta *delta, bool is_prob) {
    for (int i = 0; delta->probs && i < delta->n_tokens; i++) json_array_append_new(array, probs_json(&delta->probs[i], is_prob));
}

// ---- ids

static bool is_call_id(kin_str id) {
    for (size_t i = 0; i < id.len; i++) {
        char c = id.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
    }
    return id.len > 0 && id.len < KIN_CALL_ID;
}

void kin_call_id(const kin_writer_context *context, int choice, int tool, kin_str own, char id[KIN_CALL_ID]) {
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { LENGTH = 9 };
    uint8_t which[8];
    if (is_call_id(own)) {
        memcpy(id, own.at, own.len);
        id[own.len] = '\0';
        return;
    }
    kin_put_u32(which, (uint32_t)choice);
    kin_put_u32(which + 4, (uint32_t)tool);
    uint64_t hash = kin_hash64(which, sizeof which, kin_hash64(context->id, strlen(context->id), 0));
    for (int i = 0; i < LENGTH; i++, hash /= 62) id[i] = alphabet[hash % 62];
    id[LENGTH] = '\0';
}
