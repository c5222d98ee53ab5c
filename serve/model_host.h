// The computing side of a server with several models: loads and unloads models, and computes their requests in turns.
//
//   loop's thread       kin_model_host_order ─► order ────────────────────────────────────────────┐
//   computing thread    kin_model_host_run: open, close, a step of each model that has requests ◄─┘ ─► answer, wake()
//   loop's thread       kin_model_host_pop ◄────────────────────────────────────────────────────────────┘
//
// One thread computes all models, because ggml's pool belongs to it, and two pools would compete for the cores. So requests of
// other models pause while a model is loaded.
//
// Owner: the caller of open. Threads: as stated at each function.
#pragma once

#include "cluster/model_files.h"
#include "serve/loaded_model.h"

typedef struct kin_model_host kin_model_host;

typedef struct kin_model_host_options {
    kin_model_file *files;            // [n_max], borrowed; entries after the first n become models when the router adds them
    int n, n_max;                     // n_max 0: same as n
    kin_loaded_model_options loading; // for each model: with its file, and without `service.called`
    bool has_first;                   // files[0] is loaded first, and only it uses loading.chat_template_file
} kin_model_host_options;

int kin_model_host_open(kin_model_host **out, const kin_model_host_options *options, kin_err *err);
void kin_model_host_close(kin_model_host *host); // after run, and after the loop has ended; NULL is allowed

// Computing thread: begin loads the first model; run works until loading.service.stop is set.
int kin_model_host_begin(kin_model_host *host, kin_err *err);
void kin_model_host_run(kin_model_host *host);

// ---- the loop's thread

// True if the files of a model that was unloaded because they changed are complete again.
bool kin_model_host_is_whole(kin_model_host *host, int model);

const kin_model_host_options *kin_model_host_get_options(const kin_model_host *host);
bool kin_model_host_is_up(kin_model_host *host); // true if it accepts orders; any thread

// Gives an order; one at a time, an answer follows. Before a model is unloaded, all its jobs must have ended and none of its
// objects may be in use.
void kin_model_host_order(kin_model_host *host, int model, bool load);

typedef struct kin_model_answer {
    int model;
    kin_loaded_model *loaded; // NULL: not in memory
    bool failed;              // loading failed; `why` is set
    kin_err why;
} kin_model_answer;

// Returns false if there is no answer. The first model's answer comes without an order.
bool kin_model_host_pop(kin_model_host *host, kin_model_answer *answer);
