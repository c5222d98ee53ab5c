// Answers the endpoints that describe the server and its models: /v1/models, /props, /slots, and Ollama's tags, ps, show and
// version.
//
// Thread: the loop's.
#pragma once

#include "cluster/model_files.h"
#include "serve/call.h"

typedef struct kin_about {
    const kin_model_card *cards; // [n_cards] all models
    int n_cards;
    // The model that the request names; NULL if it names none. For /props and /slots the model is loaded.
    const kin_model_card *card;
    const kin_call_shared *shared;
    int n_parallel;
    bool has_metrics, has_slots, has_ui;
} kin_about;

// Describes one model. file: the model's file if the server has several models, else NULL. If its shared state has no service,
// the model is not loaded.
kin_model_card kin_about_card(const kin_call_shared *shared, const kin_model_file *file, int64_t created_s);

void kin_about_models(const kin_about *about, kin_http_exchange *x); // /v1/models and /v1/models/NAME
void kin_about_props(const kin_about *about, kin_http_exchange *x);
void kin_about_slots(const kin_about *about, kin_http_exchange *x); // with ?fail_on_no_slot=1: 503 if all slots are taken

void kin_about_ollama_version(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_tags(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_ps(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_show(const kin_about *about, kin_http_exchange *x);
