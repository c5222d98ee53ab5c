// An error in a request, as reported to the client. Each API writes it in its own form (kin_api_format.error).
//
// Plain functions.
#pragma once

#include "base/err.h"

typedef struct kin_api_error {
    int status;       // HTTP status
    const char *type; // "invalid_request_error", "not_found_error", "exceed_context_size_error", ...
    const char *code; // OpenAI's code, for example "model_not_found"; NULL: none
    char param[64];   // the field; "": none
    char message[1536];
    int n_prompt, n_ctx; // for exceed_context_size_error
} kin_api_error;

// Sets the error and returns KIN_FAIL, like kin_err_set. The type follows from the status: 400 invalid_request_error, 401
// authentication_error, ...
int kin_api_error_set(kin_api_error *e, int status, const char *param, const char *format, ...) KIN_PRINTF(4, 5);
// Sets a 500: there is no memory for the request.
int kin_api_error_memory(kin_api_error *e);
