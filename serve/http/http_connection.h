// A connection of the HTTP server, without its socket: bytes in, exchanges to their owner, bytes out through a table of
// functions. Time is an argument of tick.
//
// Requests are served one after the other. Bytes that arrive while one is answered are kept (at most 64 KiB plus one read) and
// parsed when the response is out; beyond that nothing is read from the client, not even its end.
//
// If the client's bytes end within a request, the client counts as gone. If they end after a request, the client may only have
// closed its sending side: it is answered, then the connection ends. If its stream has already begun, the connection ends at
// once, because no byte that tests the client may be inserted into a stream. Until then the client is tested with "100 Continue",
// which every HTTP/1.1 client skips: if the client is gone, the next send fails.
//
// Owner: its socket (serve/http/http_socket.c). Thread: the loop's.
#pragma once

#include <stdbool.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "serve/http/http_exchange.h"
#include "serve/http/limits.h"

typedef struct kin_http_connection kin_http_connection;

// State shared by all connections of a server.
typedef struct kin_http_service {
    kin_http_limits limits;
    kin_http_memory memory;
    const char *prefix; // of every path; NULL: none
    kin_http_callbacks callbacks;
    void *user;
    kin_rng rng;      // for request ids
    bool is_draining; // every response is the last of its connection
    size_t n_unsent;  // bytes of complete responses not yet sent, over all connections, each counted when its last response ended
} kin_http_service;

// Operations that a connection needs from its socket. None of them calls back into the connection before it returns.
typedef struct kin_http_socket_ops {
    void (*send)(void *socket, const void *bytes, size_t n); // copied
    size_t (*pending)(const void *socket, uint64_t *n_out);  // returns bytes not sent yet; n_out: all bytes sent so far
    void (*read)(void *socket, bool on);
    void (*finish)(void *socket); // half-close: shut down sending once everything is out
    void (*close)(void *socket);  // at once; the connection is freed later
} kin_http_socket_ops;

int kin_http_connection_open(kin_http_connection **out, kin_http_service *service, const kin_http_socket_ops *ops, void *socket,
                             kin_err *err);
void kin_http_connection_free(kin_http_connection *c); // calls `gone` for an open exchange. NULL is allowed

void kin_http_connection_feed(kin_http_connection *c, const char *bytes, size_t n); // from the client
void kin_http_connection_eof(kin_http_connection *c);                               // the client sends nothing more
void kin_http_connection_sent(kin_http_connection *c);                              // nothing is pending any more
void kin_http_connection_tick(kin_http_connection *c, kin_time now); // call several times within the shortest limit

// Answers a client that cannot be understood.
void kin_http_connection_refuse(kin_http_connection *c, int status, const char *message);
void kin_http_connection_drain(kin_http_connection *c); // the service drains: ends now if idle
void kin_http_connection_end(kin_http_connection *c);   // at once; calls `gone`

bool kin_http_connection_is_idle(const kin_http_connection *c, kin_time *since); // true if no byte of a request has arrived
bool kin_http_connection_is_busy(const kin_http_connection *c); // true if an exchange is open or its response is not fully sent
