// The settings of a generation as llama-server shows them: generation_settings of its completion, params of /slots and /props.
#pragma once

#include <jansson.h>

#include "serve/request.h"

// A new reference; NULL: no memory. seed: the one that was drawn, if the request has none.
json_t *kin_settings_json(const kin_request *request, uint64_t seed);
