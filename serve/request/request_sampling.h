// Fields of all APIs: sampling, ending, constraints on the text, streaming. Thread: any; see request.h.
#pragma once

#include "serve/request/request_table.h"

// A table for kin_request_fields_read.
extern const kin_request_field kin_request_common_fields[];

// Sets the request's JSON schema, as text. 400 if it is neither an object nor a boolean; `name` is the field's.
int kin_request_set_schema(kin_request *r, const char *name, const json_t *schema, kin_api_error *err);
