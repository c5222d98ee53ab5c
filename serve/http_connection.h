// A connection of the HTTP server, without its socket: bytes in, exchanges to their owner, bytes out through a table of
// functions. Time is an argument of tick.
//
// Requests are served one after the other: what comes while one is answered is kept (at most 64 KiB and what one read brings),
// and is looked at when the response is out; of a client that sends more than that meanwhile nothing is read, not even its end.
// The end of the client's bytes within a request counts as its going away. Behind a request it may be that the client only says
// that it sends nothing more: it is answered, and then the connection ends, unless its stream has begun by then, in which no byte
// may come that asks for it. Whether it is still there is asked by "100 Continue", which every client of HTTP/1.1 skips: where
// nobody is, the socket fails at the next one.
//
// Owner: its socket (serve/http_socket.c). Thread: the loop's.
#pragma once

#include <stdbool.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "serve/http_exchange.h"
#include "serve/limits.h"

typedef struct kin_http_connection kin_http_connection;

// What all connections of a server share.
typedef struct kin_http_service {
    kin_http_limits limits;
    kin_http_memory memory;
    const char *prefix; // of every path; NULL: none
    kin_http_callbacks callbacks;
    void *user;
    kin_rng rng;      // for ids of requests
    bool is_draining; // responses are the last of their connections
    size_t n_unsent;  // bytes of whole responses, of all connections, when the last one of each had ended
} kin_http_service;

// What a connection asks of its socket. None of them calls the connection back before it returns.
typedef struct kin_http_socket_ops {
    void (*send)(void *socket, const void *bytes, size_t n); // copied
    size_t (*pending)(const void *socket, uint64_t *n_out);  // bytes that are not out yet; n_out: those that are, of all
    void (*read)(void *socket, bool on);
    void (*finish)(void *socket); // nothing is sent any more: tell the client when all is out
    void (*close)(void *socket);  // at once. The connection is to be freed later
} kin_http_socket_ops;

int kin_http_connection_open(kin_http_connection **out, kin_http_service *service, const kin_http_socket_ops *ops, void *socket,
                             kin_err *err);
void kin_http_connection_free(kin_http_connection *c); // calls `gone` for an exchange that is open. NULL is allowed

void kin_http_connection_feed(kin_http_connection *c, const char *bytes, size_t n); // from the client
void kin_http_connection_eof(kin_http_connection *c);                               // nothing more comes from it
void kin_http_connection_sent(kin_http_connection *c);                              // nothing is pending any more
void kin_http_connection_tick(kin_http_connection *c, kin_time now);                // several times in the shortest limit

// Says so to a client that cannot be understood.
void kin_http_connection_refuse(kin_http_connection *c, int status, const char *message);
void kin_http_connection_drain(kin_http_connection *c); // the service has begun to; it ends now if it is idle
void kin_http_connection_end(kin_http_connection *c);   // at once; calls `gone`

bool kin_http_connection_is_idle(const kin_http_connection *c, kin_time *since); // no byte of a request is here
bool kin_http_connection_is_busy(const kin_http_connection *c);                  // an exchange is open, or its response not out
