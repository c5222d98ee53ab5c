// A call: one request that makes texts, from its body to its last byte.
//
//   body ─► libuv's pool: translate, parse, prepare ─► jobs ─► tokens ─► choices ─► format ─► response
//
// Owner: the server's loop. Thread: the loop's, but for the preparation.
#pragma once

#include <uv.h>

#include "serve/choice.h"
#include "serve/http_exchange.h"
#include "serve/infill.h"
#include "serve/model_names.h"
#include "serve/prepare.h"
#include "serve/server_json.h"

typedef struct kin_call kin_call;

// What a body is.
typedef enum kin_call_body {
    KIN_BODY_CHAT, // OpenAI's chat completions
    KIN_BODY_COMPLETIONS,
    KIN_BODY_NATIVE, // llama.cpp's
    KIN_BODY_INFILL,
    KIN_BODY_RESPONSES,
    KIN_BODY_MESSAGES, // Anthropic's
    KIN_BODY_OLLAMA_CHAT,
    KIN_BODY_OLLAMA_GENERATE,
} kin_call_body;

typedef struct kin_call_route {
    const kin_api_format *format;
    kin_call_body body;
} kin_call_route;

// What calls have in common; lives longer than they.
typedef struct kin_call_world {
    uv_loop_t *loop;
    kin_service *service;
    kin_preparer preparer;
    kin_fim_tokens fim;
    kin_request_defaults defaults;
    const char *model; // its alias
    kin_model_names names;
    const char *fingerprint;
    int ping_s;      // an idle stream gets a sign of life that often; -1: never
    kin_call *calls; // all that there are
    struct kin_call_counters {
        uint64_t n_requests, n_failed, n_cancelled;
        uint64_t ttft_buckets[16], gap_buckets[16]; // see kin_call_bucket_s; the last one has the rest
        double ttft_s, gap_s;
        uint64_t n_prompt, n_cached, n_generated;
        uint64_t n_after_first; // of n_generated, those behind the first one of their text, which comes with the prompt
        uint64_t n_longest;     // tokens of a text that were computed, with its prompt: the last one is not
        double prompt_s, generated_s;
    } counters;
} kin_call_world;

// Upper bounds of the histograms' buckets, in seconds, ascending; the last is infinite.
extern const double kin_call_bucket_s[16];

// Answers the exchange; it has the call as its data.
void kin_call_begin(kin_call_world *world, const kin_call_route *route, kin_http_exchange *x);
void kin_call_take(kin_call_world *world, kin_job_event *event);
// The texts that are written, or wait: views [n_max]. Returns how many there are.
int kin_call_views(const kin_call_world *world, kin_slot_view *views, int n_max);
void kin_call_tick(kin_call_world *world, kin_time now); // some times a second
