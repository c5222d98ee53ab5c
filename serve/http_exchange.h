// An exchange: one request to the HTTP server (serve/http.h) and its response, for whoever answers it.
//
// It is answered at once or later, as a whole (reply) or in pieces (begin, write, end). What the client does not take is kept for
// it, within kin_http_limits.max_pending.
//
// Owner: the server. An exchange lives until reply or end was called, or `gone`. Thread: the loop's, for every function and
// callback.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "pure/text/text_buffer.h"
#include "serve/limits.h"
#include "serve/request.h" // kin_api_error

typedef struct kin_http_exchange kin_http_exchange;

typedef struct kin_http_callbacks {
    // The header of a request is here; its body is not. A reply now refuses it, and ends the connection. NULL: all are taken.
    void (*head)(void *user, kin_http_exchange *x);
    // The whole request is here: answer now or later.
    void (*request)(void *user, kin_http_exchange *x);
    // The client went away, or was cut off, before the response had ended. The exchange is gone after the call. Never from inside
    // a function on exchanges, and not after reply or end.
    void (*gone)(void *user, kin_http_exchange *x);
    // Appends the body of a refusal. path: "" if none was read. NULL: in the shape of OpenAI's and llama.cpp's APIs.
    void (*refusal)(kin_str path, const kin_api_error *error, kin_text_buffer *body);
} kin_http_callbacks;

// ---- the request. Strings live as long as the exchange

kin_str kin_http_method(const kin_http_exchange *x); // "GET" for HEAD, too: its response is the same, and is sent without a body
kin_str kin_http_path(const kin_http_exchange *x);   // decoded, without prefix and query
kin_str kin_http_query(const kin_http_exchange *x, const char *name);  // decoded; at NULL: not there
kin_str kin_http_header(const kin_http_exchange *x, const char *name); // any case; at NULL: not there
kin_str kin_http_body(const kin_http_exchange *x);                     // a NUL follows; at NULL: empty
// The same for whoever needs it longer, for example in another thread; the caller frees it. NULL: empty. It is counted in the
// server's memory until `hold` is released: when the body is freed, and all that was parsed of it.
char *kin_http_take_body(kin_http_exchange *x, size_t *n, kin_http_hold *hold);
void kin_http_give_body(kin_http_exchange *x, char *body, size_t n, kin_http_hold *hold); // back, to be taken once more
void kin_http_release(kin_http_hold *hold); // it is zero then; one that is zero is allowed

void kin_http_set_data(kin_http_exchange *x, void *data); // the owner's
void *kin_http_data(const kin_http_exchange *x);

// ---- another protocol in place of a response

// Bytes in both directions, after an upgrade.
typedef struct kin_http_tunnel {
    void (*bytes)(void *user, const uint8_t *bytes, size_t n); // from the client
    void (*closed)(void *user); // it is gone after the call, whoever ended it; never from inside a function on tunnels
    void *user;
} kin_http_tunnel;

// 101, with the headers that were added, and `Upgrade: protocol`. Only in `request`. The exchange then is the tunnel, until
// `closed`.
void kin_http_upgrade(kin_http_exchange *x, const char *protocol, const kin_http_tunnel *tunnel);
void kin_http_tunnel_send(kin_http_exchange *x, const void *bytes, size_t n); // copied
size_t kin_http_tunnel_pending(const kin_http_exchange *x);                   // bytes that are not out yet
void kin_http_tunnel_close(kin_http_exchange *x);                             // `closed` follows

// ---- the response. `type` is its Content-Type; NULL: none

void kin_http_add_header(kin_http_exchange *x, const char *name, const char *value); // copied; before reply or begin
void kin_http_reply(kin_http_exchange *x, int status, const char *type, const void *body, size_t n); // copied
// A refusal as JSON (kin_http_callbacks.refusal). The message is a sentence that says what to do.
void kin_http_reply_error(kin_http_exchange *x, int status, const char *message);
// Bytes of such responses, of all the server's clients, that these have not taken yet: who gives large ones asks before.
size_t kin_http_unsent(const kin_http_exchange *x);
void kin_http_begin(kin_http_exchange *x, int status, const char *type);
bool kin_http_has_begun(const kin_http_exchange *x);                    // its header is out
void kin_http_write(kin_http_exchange *x, const void *bytes, size_t n); // copied, on its way at once
void kin_http_end(kin_http_exchange *x);
