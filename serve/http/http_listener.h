// A listening socket of the HTTP server: TCP or Unix.
//
// Owner: the caller of open. Thread: the loop's.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"

typedef struct kin_http_listener kin_http_listener;

typedef void (*kin_http_listener_connected)(void *user, uv_stream_t *listener); // accept the connection within this call

// address: an IP address, or a path that ends in ".sock". A socket file without a listening process is replaced; any other file
// is left alone.
int kin_http_listener_open(kin_http_listener **out, uv_loop_t *loop, const char *address, uint16_t port,
                           kin_http_listener_connected connected, void *user, kin_err *err);
void kin_http_listener_close(kin_http_listener *listener); // frees its memory when the loop runs next. NULL is allowed
uint16_t kin_http_listener_port(const kin_http_listener *listener);
