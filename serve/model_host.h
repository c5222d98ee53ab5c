// The computing side of a server with several models: loads them, takes them out of memory, and computes their texts in turns.
//
//   loop's thread       kin_model_host_order ─► order ─┐
//   computing thread    kin_model_host_run: open, close, a step of each model that has texts ◄─┘ ─► answer, wake()
//   loop's thread       kin_model_host_take ◄───────────────────────────────────────────────────────┘
//
// All models are computed by one thread, because ggml's pool belongs to it, and two pools would take each other's cores. So while
// a model is being loaded, the texts of others stand still.
//
// Owner: who opened it. Threads: as each function says.
#pragma once

#include "node/model_files.h"
#include "serve/loaded_model.h"

typedef struct kin_model_host kin_model_host;

typedef struct kin_model_host_options {
    kin_model_file *files;            // [n_max], borrowed; those behind the first n become models when the router adds them
    int n, n_max;                     // n_max 0: as n
    kin_loaded_model_options loading; // of each: with its file, and without `service.called`
    bool has_first;                   // files[0] is loaded at first, and only it has loading.chat_template_file
} kin_model_host_options;

int kin_model_host_open(kin_model_host **out, const kin_model_host_options *options, kin_err *err);
void kin_model_host_close(kin_model_host *host); // after run, and when the loop has ended; NULL is allowed

// The computing thread: loads the first model; then all its work, until loading.service.stop is set.
int kin_model_host_begin(kin_model_host *host, kin_err *err);
void kin_model_host_run(kin_model_host *host);

// ---- the loop's thread

// Of a model that was unloaded because its files have changed: whether they are whole again.
bool kin_model_host_is_whole(kin_model_host *host, int model);

const kin_model_host_options *kin_model_host_get_options(const kin_model_host *host);
bool kin_model_host_is_up(kin_model_host *host); // it takes orders; any thread

// One at a time: an answer follows. Before a model is unloaded, all its jobs have ended, and nothing of it is used any more.
void kin_model_host_order(kin_model_host *host, int model, bool load);

typedef struct kin_model_answer {
    int model;
    kin_loaded_model *loaded; // NULL: it is not in memory
    bool failed;              // it was to be loaded, but `why`
    kin_err why;
} kin_model_answer;

// False: there is none. The first model's comes without an order.
bool kin_model_host_take(kin_model_host *host, kin_model_answer *answer);
