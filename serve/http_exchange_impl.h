// Inside of an exchange: what its connection (serve/http_connection.c) sees of it.
#pragma once

#include "pure/text/text_buffer.h"
#include "serve/http_exchange.h"
#include "serve/http_request.h"

enum { KIN_HTTP_ID = 33 }; // bytes with the NUL

typedef enum kin_http_answer { KIN_HTTP_UNANSWERED, KIN_HTTP_STREAMING, KIN_HTTP_ANSWERED } kin_http_answer;

struct kin_http_exchange {
    kin_http_request *request; // owned; NULL: no byte of one has come
    kin_http_answer answer;
    bool closes; // the response is the connection's last
    bool is_chunked;
    kin_text_buffer header; // lines that were added
    char id[KIN_HTTP_ID];   // of the response header x-request-id
    void *data;
    // The connection's: bytes of the response, borrowed; and that it has ended, which may free the request.
    void (*send)(kin_http_exchange *x, const kin_text_buffer *bytes);
    void (*ended)(kin_http_exchange *x);
    void (*upgraded)(kin_http_exchange *x); // what follows is the tunnel's
    size_t (*pending)(const kin_http_exchange *x);
    size_t (*unsent)(const kin_http_exchange *x);
    void (*close)(kin_http_exchange *x);
    kin_http_tunnel tunnel;
    void (*refusal)(kin_str path, const kin_api_error *error, kin_text_buffer *body); // of kin_http_callbacks
};

// Ready for the next request.
void kin_http_exchange_reset(kin_http_exchange *x);
