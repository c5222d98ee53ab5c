// An HTTP/1 request, parsed by llhttp while its bytes arrive, and refused as soon as it is malformed or too large.
//
// No socket, no clock. Strings live until free. Every stored byte is counted in a kin_http_memory, which many requests share.
// Owner and thread: the connection's.
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "serve/http/limits.h"

typedef struct kin_http_request kin_http_request;

typedef enum kin_http_progress {
    KIN_HTTP_MORE,    // all bytes were consumed, more are needed
    KIN_HTTP_HEAD,    // the header is complete; returned once. Continue with the bytes that were not consumed
    KIN_HTTP_WHOLE,   // complete; bytes that were not consumed belong to the next request
    KIN_HTTP_REFUSED, // see kin_http_request_refusal; the rest of the bytes cannot be parsed
} kin_http_progress;

typedef struct kin_http_refusal {
    int status;
    const char *message; // static
} kin_http_refusal;

// prefix: of every path, for example "/kin"; NULL: none. All three are borrowed. Returns NULL if out of memory.
kin_http_request *kin_http_request_new(const char *prefix, const kin_http_limits *limits, kin_http_memory *memory);
void kin_http_request_free(kin_http_request *r); // NULL is allowed

kin_http_progress kin_http_request_feed(kin_http_request *r, const char *bytes, size_t n, size_t *n_consumed);
kin_http_refusal kin_http_request_refusal(const kin_http_request *r);
uint64_t kin_http_request_n_received(const kin_http_request *r); // bytes

// ---- valid once the header is complete

kin_str kin_http_request_method(const kin_http_request *r);
kin_str kin_http_request_path(const kin_http_request *r);                     // decoded, without prefix and query
kin_str kin_http_request_query(const kin_http_request *r, const char *name);  // decoded; the first; .at NULL: absent
kin_str kin_http_request_header(const kin_http_request *r, const char *name); // case-insensitive; the first; .at NULL: absent
bool kin_http_request_is_head(const kin_http_request *r);
bool kin_http_request_is_1_0(const kin_http_request *r);
bool kin_http_request_expects_continue(const kin_http_request *r);
bool kin_http_request_keeps_alive(const kin_http_request *r);

// ---- valid once the request is complete

kin_str kin_http_request_body(const kin_http_request *r); // NUL-terminated; .at NULL: empty
// See kin_http_detach_body.
char *kin_http_request_detach_body(kin_http_request *r, size_t *n, kin_http_hold *hold);
void kin_http_request_give_body(kin_http_request *r, char *body, size_t n, kin_http_hold *hold);
