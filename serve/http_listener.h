// What the HTTP server listens on: one TCP or Unix socket.
//
// Owner: who opened it. Thread: the loop's.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"

typedef struct kin_http_listener kin_http_listener;

typedef void (*kin_http_listener_connected)(void *user, uv_stream_t *listener); // accept it inside of this call

// address: numbers, or a path that ends in ".sock". A socket file on which nobody listens is replaced; any other file is left
// alone.
int kin_http_listener_open(kin_http_listener **out, uv_loop_t *loop, const char *address, uint16_t port,
                           kin_http_listener_connected connected, void *user, kin_err *err);
void kin_http_listener_close(kin_http_listener *listener); // the memory goes when the loop has run. NULL is allowed
uint16_t kin_http_listener_port(const kin_http_listener *listener);
