// A call: one request that generates text, from its body to the last byte of its response.
//
//   body ─► libuv's pool: translate, parse, prepare ─► jobs ─► tokens ─► choices ─► format ─► response
//                           └─► a grammar that takes long: a lane of the pool ─┘
//
// Owner: the server's loop. Thread: the loop's, except for the preparation.
#pragma once

#include <uv.h>

#include "serve/apis/llama/infill.h"
#include "serve/choice.h"
#include "serve/http/http_exchange.h"
#include "serve/lane.h"
#include "serve/model_names.h"
#include "serve/prepare.h"
#include "serve/server_json.h"

typedef struct kin_call kin_call;

// The API that a body belongs to.
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

// State shared by all calls of a model; outlives them.
typedef struct kin_call_shared {
    uv_loop_t *loop;
    kin_lane *compiling; // grammars that take long
    kin_lane *huge;      // bodies of more than KIN_HUGE_BODY
    kin_service *service;
    kin_preparer preparer;
    kin_fim_tokens fim;
    kin_request_defaults defaults;
    const char *model; // the name that clients see
    kin_model_names names;
    const char *fingerprint;
    int ping_s;      // interval of pings on an idle stream; -1: never
    kin_call *calls; // list of all calls
    struct kin_call_counters {
        uint64_t n_requests, n_failed, n_cancelled;
        uint64_t ttft_buckets[16], gap_buckets[16]; // bounds: kin_call_bucket_s; the last bucket is unbounded
        double ttft_s, gap_s;
        uint64_t n_prompt, n_cached, n_generated;
        uint64_t n_after_first; // tokens of n_generated after the first of each choice, which comes out of the prompt
        uint64_t n_longest;     // most tokens computed for one choice, with its prompt; the last token is not computed
        double prompt_s, generated_s;
    } counters;
} kin_call_shared;

// Upper bounds of the histograms' buckets in seconds, ascending; the last is infinite.
extern const double kin_call_bucket_s[16];

// Answers the exchange; sets the call as its data.
void kin_call_begin(kin_call_shared *shared, const kin_call_route *route, kin_http_exchange *x);
void kin_call_handle(kin_call_shared *shared, kin_job_event *event);
// Lists choices that are running or waiting -> views [n_max]. Returns their number.
int kin_call_views(const kin_call_shared *shared, kin_slot_view *views, int n_max);
void kin_call_tick(kin_call_shared *shared, kin_time now); // call several times per second
