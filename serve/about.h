// What a server tells about itself and its model: /v1/models, /props, /slots, and Ollama's tags, ps, show and version.
//
// Thread: the loop's.
#pragma once

#include "node/model_files.h"
#include "serve/call.h"

typedef struct kin_about {
    const kin_model_card *cards; // [n_cards] of all models
    int n_cards;
    // The model that the request is for, if it is for one; /props and /slots: it is loaded.
    const kin_model_card *card;
    const kin_call_world *world;
    int n_parallel;
    bool has_metrics, has_slots, has_ui;
} kin_about;

// One model. file: of a server with several models, else NULL. Without a service in its world the model is not loaded.
kin_model_card kin_about_card(const kin_call_world *world, const kin_model_file *file, int64_t created_s);

void kin_about_models(const kin_about *about, kin_http_exchange *x); // /v1/models, and /v1/models/NAME
void kin_about_props(const kin_about *about, kin_http_exchange *x);
void kin_about_slots(const kin_about *about, kin_http_exchange *x); // ?fail_on_no_slot=1: 503 if all are taken

void kin_about_ollama_version(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_tags(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_ps(const kin_about *about, kin_http_exchange *x);
void kin_about_ollama_show(const kin_about *about, kin_http_exchange *x);
