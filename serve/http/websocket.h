// The server's side of a WebSocket (RFC 6455), without its socket: bytes from the client in, whole messages out, and the other
// way round. wslay handles the protocol's own frames: it answers pings, and ends the connection on frames that a client must not
// send.
//
// Owner: the caller of open. Thread: the owner's.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_websocket kin_websocket;

typedef struct kin_websocket_callbacks {
    void (*send)(void *user, const uint8_t *bytes, size_t n); // to the client; borrowed
    // A message from the client, borrowed: UTF-8 text or bytes. The callback must not close the WebSocket.
    void (*message)(void *user, bool is_text, const uint8_t *bytes, size_t n);
} kin_websocket_callbacks;

enum {
    KIN_WEBSOCKET_KEY = 24,    // characters of the header Sec-WebSocket-Key
    KIN_WEBSOCKET_ACCEPT = 29, // bytes of the answer's Sec-WebSocket-Accept, with its NUL
    // Reasons for the end, as numbered by RFC 6455.
    KIN_WEBSOCKET_NORMAL = 1000,
    KIN_WEBSOCKET_AWAY = 1001,
    KIN_WEBSOCKET_REFUSED = 1008,
};

// Computes the answer to a client's key. Returns false for an invalid key.
bool kin_websocket_accept(char accept[KIN_WEBSOCKET_ACCEPT], kin_str key);

// max: bytes of a message from the client; a longer one ends the connection.
int kin_websocket_open(kin_websocket **out, size_t max, const kin_websocket_callbacks *callbacks, void *user, kin_err *err);
void kin_websocket_close(kin_websocket *ws); // NULL is allowed
void kin_websocket_set_max(kin_websocket *ws, size_t max);

// Handles bytes from the client. Returns false if the connection is over: close the socket.
bool kin_websocket_feed(kin_websocket *ws, const uint8_t *bytes, size_t n);

// Returns false if nothing can be sent any more.
bool kin_websocket_send(kin_websocket *ws, bool is_text, const void *bytes, size_t n);
// Sends the last message: the reason of the end, as a number and as text.
void kin_websocket_end(kin_websocket *ws, int status, const char *reason);
