// A socket of the HTTP server: a TCP or Unix connection of libuv, with TLS or without, and its kin_http_connection.
//
// It has no buffer of its own: reads of all sockets share one, and what the system does not take at once is copied for libuv.
//
// Owner: the server (serve/http.c), until `closed` is called. Thread: the loop's.
#pragma once

#include <uv.h>

#include "serve/http_connection.h"
#include "sys/tls.h"

enum { KIN_HTTP_READ = 64 << 10, KIN_HTTP_PLAIN = 16 << 10 }; // bytes

typedef struct kin_http_socket {
    struct kin_http_socket *next, *prev; // the server's
    kin_http_connection *connection;
} kin_http_socket;

// What all sockets of a server share.
typedef struct kin_http_sockets {
    kin_http_service service;
    kin_tls_ctx *tls;                                                          // NULL: none
    void (*closed)(kin_http_socket *socket, struct kin_http_sockets *sockets); // it is gone after the call
    char input[KIN_HTTP_READ], plain[KIN_HTTP_PLAIN];                          // of one read
} kin_http_sockets;

// Takes a connection from a listener. If it fails, nothing is called, and the connection is dropped.
int kin_http_socket_accept(kin_http_socket **out, kin_http_sockets *sockets, uv_stream_t *listener, kin_err *err);
