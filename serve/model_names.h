// The names under which requests may address a model: the name in answers and further names, each also with ":latest" appended,
// as Ollama's clients write it.
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "serve/request/api_error.h"

typedef struct kin_model_names {
    const char *own;           // the name in answers
    const char *const *others; // [n_others] may include own
    int n_others;
    bool is_strict; // a request with another name is refused
} kin_model_names;

bool kin_model_names_have(const kin_model_names *names, kin_str name);

// asked NULL: the request names none. 404 model_not_found.
int kin_model_names_check(const kin_model_names *names, const char *asked, kin_api_error *err);
