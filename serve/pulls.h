// Ollama's /api/pull and /api/delete: clients fetch models into the folder of the server, and remove them from it.
//
// A pull has a thread of its own, which downloads; the loop's thread writes its progress as lines of JSON. If the client goes
// away, the download ends, and the next pull of the same model continues it. Only names of Hugging Face, of Ollama's registry and
// short names are fetched, so that a client cannot make the server ask any address.
//
// Owner: the server. Thread: the loop's, for every function and callback.
#pragma once

#include <uv.h>

#include "cluster/model_files.h"
#include "pull/pull.h"
#include "serve/http/http_exchange.h"

typedef struct kin_pulls kin_pulls;

typedef struct kin_pulls_options {
    uv_loop_t *loop;
    kin_pull_options pull; // models_dir is the server's folder; its strings must outlive the pulls
    void (*fetched)(void *user, const kin_model_file *file);
    // Returns the path of the model that /api/tags lists under a name; NULL if no client may remove such a model.
    const char *(*listed)(void *user, kin_str name);
    void *user;
} kin_pulls_options;

enum { KIN_PULLS_MAX = 4 }; // at once; one more is 503

kin_pulls *kin_pulls_open(const kin_pulls_options *options); // NULL: out of memory
void kin_pulls_begin(kin_pulls *pulls, kin_http_exchange *x);
void kin_pulls_delete(kin_pulls *pulls, kin_http_exchange *x);
void kin_pulls_stop(kin_pulls *pulls);  // ends all downloads, which answer with that reason. NULL is allowed
void kin_pulls_close(kin_pulls *pulls); // after the loop has ended; NULL is allowed
