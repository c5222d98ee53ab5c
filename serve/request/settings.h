// The settings of a generation in llama-server's form: generation_settings of its completion, params of /slots and /props.
#pragma once

#include <jansson.h>

#include "serve/request/request.h"

// Returns a new reference; NULL: out of memory. seed: the one that was drawn, if the request has none.
json_t *kin_settings_json(const kin_request *request, uint64_t seed);
