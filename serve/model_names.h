// The names that requests may have for a model: the one that answers say, and further ones; any of them with ":latest" behind it,
// as Ollama's clients write it.
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "serve/api_error.h"

typedef struct kin_model_names {
    const char *own;           // what answers say
    const char *const *others; // [n_others] own may be among them
    int n_others;
    bool is_strict; // a request with another name is refused
} kin_model_names;

bool kin_model_names_have(const kin_model_names *names, kin_str name);

// asked: NULL, a request says none. 404 model_not_found.
int kin_model_names_check(const kin_model_names *names, const char *asked, kin_api_error *err);
