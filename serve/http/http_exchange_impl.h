// Internals of an exchange, for its connection (serve/http/http_connection.c).
#pragma once

#include "pure/text/text_buffer.h"
#include "serve/http/http_exchange.h"
#include "serve/http/http_request.h"

enum { KIN_HTTP_ID = 33 }; // bytes with the NUL

typedef enum kin_http_answer { KIN_HTTP_UNANSWERED, KIN_HTTP_STREAMING, KIN_HTTP_ANSWERED } kin_http_answer;

struct kin_http_exchange {
    kin_http_request *request; // owned; NULL: no byte of a request has arrived
    kin_http_answer answer;
    bool closes; // the response is the connection's last
    bool is_chunked;
    kin_text_buffer header; // added lines
    char id[KIN_HTTP_ID];   // value of the response header x-request-id
    void *data;
    // Implemented by the connection. send: bytes of the response, borrowed. ended: the response has ended; may free the request.
    void (*send)(kin_http_exchange *x, const kin_text_buffer *bytes);
    void (*ended)(kin_http_exchange *x);
    void (*upgraded)(kin_http_exchange *x); // the bytes that follow belong to the tunnel
    size_t (*pending)(const kin_http_exchange *x);
    size_t (*unsent)(const kin_http_exchange *x);
    void (*close)(kin_http_exchange *x);
    kin_http_tunnel tunnel;
    void (*refusal)(kin_str path, const kin_api_error *error, kin_text_buffer *body); // from kin_http_callbacks
};

// Resets the exchange for the next request.
void kin_http_exchange_reset(kin_http_exchange *x);
