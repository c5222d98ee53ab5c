#include "serve/request/api_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/sentence.h"

static const char *type_of(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

int kin_api_error_set(kin_api_error *e, int status, const char *param, const char *format, ...) {
    *e = (kin_api_error){.status = status, .type = type_of(status)};
    if (param) snprintf(e->param, sizeof e->param, "%s", param);
    va_list args;
    va_start(args, format);
    kin_sentence_vprint(e->message, sizeof e->message, format, args);
    va_end(args);
    return KIN_FAIL;
}

int kin_api_error_memory(kin_api_error *e) {
    return kin_api_error_set(e, 500, NULL, "Out of memory for this request");
}
