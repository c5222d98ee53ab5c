// A socket of the HTTP server: a TCP or Unix connection of libuv, with or without TLS, and its kin_http_connection.
//
// It has no buffer of its own: all sockets share one read buffer, and bytes that the system does not accept at once are copied
// for libuv.
//
// Owner: the server (serve/http/http.c), until `closed` is called. Thread: the loop's.
#pragma once

#include <uv.h>

#include "serve/http/http_connection.h"
#include "sys/tls.h"

enum { KIN_HTTP_READ = 64 << 10, KIN_HTTP_PLAIN = 16 << 10 }; // bytes

typedef struct kin_http_socket {
    struct kin_http_socket *next, *prev; // the server's list
    kin_http_connection *connection;
} kin_http_socket;

// State shared by all sockets of a server.
typedef struct kin_http_sockets {
    kin_http_service service;
    kin_tls_ctx *tls;                                                          // NULL: no TLS
    void (*closed)(kin_http_socket *socket, struct kin_http_sockets *sockets); // the socket is invalid after the call
    char input[KIN_HTTP_READ], plain[KIN_HTTP_PLAIN];                          // buffers for one read
} kin_http_sockets;

// Accepts a connection from a listener. On failure no callback is called and the connection is dropped.
int kin_http_socket_accept(kin_http_socket **out, kin_http_sockets *sockets, uv_stream_t *listener, kin_err *err);
