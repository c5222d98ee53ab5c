// An exchange: one request to the HTTP server (serve/http/http.h) and its response, for the code that answers it.
//
// It is answered at once or later, as a whole (reply) or in pieces (begin, write, end). Bytes that the client does not accept yet
// are buffered, within kin_http_limits.max_pending.
//
// Owner: the server. An exchange lives until reply, end or `gone`. Thread: the loop's, for every function and callback.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "pure/text/text_buffer.h"
#include "serve/http/limits.h"
#include "serve/request/request.h" // kin_api_error

typedef struct kin_http_exchange kin_http_exchange;

typedef struct kin_http_callbacks {
    // The header of a request is here, its body is not. A reply at this point refuses the request and ends the connection. NULL:
    // all requests are accepted.
    void (*head)(void *user, kin_http_exchange *x);
    // The whole request is here: answer now or later.
    void (*request)(void *user, kin_http_exchange *x);
    // The client disconnected or was cut off before the response ended. The exchange is invalid after the call. Never called from
    // inside a function on exchanges, nor after reply or end.
    void (*gone)(void *user, kin_http_exchange *x);
    // Appends the body of a refusal. path: "" if none was read. NULL: the form of OpenAI's and llama.cpp's APIs.
    void (*refusal)(kin_str path, const kin_api_error *error, kin_text_buffer *body);
} kin_http_callbacks;

// ---- the request. Strings live as long as the exchange

kin_str kin_http_method(const kin_http_exchange *x); // "GET" for HEAD too: the response is the same, sent without its body
kin_str kin_http_path(const kin_http_exchange *x);   // decoded, without prefix and query
kin_str kin_http_query(const kin_http_exchange *x, const char *name);  // decoded; .at NULL: absent
kin_str kin_http_header(const kin_http_exchange *x, const char *name); // case-insensitive; .at NULL: absent
kin_str kin_http_body(const kin_http_exchange *x);                     // NUL-terminated; .at NULL: empty
// Takes the body out of the exchange, for use beyond its life or in another thread; free it. NULL: empty. It counts towards the
// server's memory until `hold` is released: release it after freeing the body and everything parsed from it.
char *kin_http_detach_body(kin_http_exchange *x, size_t *n, kin_http_hold *hold);
void kin_http_give_body(kin_http_exchange *x, char *body, size_t n, kin_http_hold *hold); // puts it back
void kin_http_release(kin_http_hold *hold); // sets it to zero; a zero hold is allowed

void kin_http_set_data(kin_http_exchange *x, void *data); // the owner's
void *kin_http_data(const kin_http_exchange *x);

// ---- another protocol in place of a response

// A stream of bytes in both directions, after an upgrade.
typedef struct kin_http_tunnel {
    void (*bytes)(void *user, const uint8_t *bytes, size_t n); // from the client
    void (*closed)(void *user); // the tunnel is invalid after the call, whichever side ended it; never called from inside a
                                // function on tunnels
    void *user;
} kin_http_tunnel;

// Sends 101 with the added headers and `Upgrade: protocol`. Only valid in `request`. The exchange then is the tunnel, until
// `closed`.
void kin_http_upgrade(kin_http_exchange *x, const char *protocol, const kin_http_tunnel *tunnel);
void kin_http_tunnel_send(kin_http_exchange *x, const void *bytes, size_t n); // copied
size_t kin_http_tunnel_pending(const kin_http_exchange *x);                   // bytes not sent yet
void kin_http_tunnel_close(kin_http_exchange *x);                             // `closed` follows

// ---- the response. `type` is its Content-Type; NULL: none

void kin_http_add_header(kin_http_exchange *x, const char *name, const char *value); // copied; before reply or begin
void kin_http_reply(kin_http_exchange *x, int status, const char *type, const void *body, size_t n); // copied
// Sends a refusal as JSON (kin_http_callbacks.refusal). The message is a sentence that says what to do.
void kin_http_reply_error(kin_http_exchange *x, int status, const char *message);
// Returns the bytes of complete responses that are not sent yet, over all of the server's clients. Check it before sending large
// responses.
size_t kin_http_unsent(const kin_http_exchange *x);
void kin_http_begin(kin_http_exchange *x, int status, const char *type);
bool kin_http_has_begun(const kin_http_exchange *x);                    // its header is sent
void kin_http_write(kin_http_exchange *x, const void *bytes, size_t n); // copied and sent at once
void kin_http_end(kin_http_exchange *x);
