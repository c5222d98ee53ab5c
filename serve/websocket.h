// A WebSocket (RFC 6455), the server's side, without its socket: bytes of the client in, whole messages out, and the other way
// round. The protocol's own frames are wslay's work: pings are answered, what a client must not send ends the connection.
//
// Owner: whoever opened it. Thread: the owner's.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_websocket kin_websocket;

typedef struct kin_websocket_callbacks {
    void (*send)(void *user, const uint8_t *bytes, size_t n); // to the client; borrowed
    // A message of the client, borrowed: text in UTF-8, or bytes. Not to close the WebSocket in.
    void (*message)(void *user, bool is_text, const uint8_t *bytes, size_t n);
} kin_websocket_callbacks;

enum {
    KIN_WEBSOCKET_KEY = 24,    // characters of the header Sec-WebSocket-Key
    KIN_WEBSOCKET_ACCEPT = 29, // bytes of the answer's Sec-WebSocket-Accept, with its NUL
    // Why it ends, as RFC 6455 numbers it.
    KIN_WEBSOCKET_NORMAL = 1000,
    KIN_WEBSOCKET_AWAY = 1001,
    KIN_WEBSOCKET_REFUSED = 1008,
};

// The answer to a client's key. False: that is no key.
bool kin_websocket_accept(char accept[KIN_WEBSOCKET_ACCEPT], kin_str key);

// max: bytes of a message of the client; one that is longer ends the connection.
int kin_websocket_open(kin_websocket **out, size_t max, const kin_websocket_callbacks *callbacks, void *user, kin_err *err);
void kin_websocket_close(kin_websocket *ws); // NULL is allowed
void kin_websocket_set_max(kin_websocket *ws, size_t max);

// Bytes of the client. False: it is over, the socket is to be closed.
bool kin_websocket_feed(kin_websocket *ws, const uint8_t *bytes, size_t n);

// False: it cannot be sent any more.
bool kin_websocket_send(kin_websocket *ws, bool is_text, const void *bytes, size_t n);
// The last that is sent: why it ends, for programs and for people.
void kin_websocket_end(kin_websocket *ws, int status, const char *reason);
