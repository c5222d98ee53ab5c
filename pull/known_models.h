// Short names of models: a built-in list of good ones, which a file of the user extends.
//
// The file has lines "NAME SOURCE [DESCRIPTION]", for example "mine hf:me/my-model-GGUF:Q5_K_M"; '#' begins a comment. Its names
// win. Stateless; any thread.
#pragma once

#include <stddef.h>

#include "base/err.h"

typedef struct kin_known_model {
    char name[64], source[512], about[160];
} kin_known_model;

enum { KIN_KNOWN_MODELS_MAX = 256 };

// Lists them, the user's first; file NULL or absent: none of the user's. The caller frees *models [n].
int kin_known_models_list(const char *file, kin_known_model **models, int *n, kin_err *err);

// Returns 0; KIN_ABSENT if no model has that name; KIN_FAIL if the file is damaged.
int kin_known_models_find(const char *file, const char *name, kin_known_model *model, kin_err *err);
