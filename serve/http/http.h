// The HTTP/1.1 server: listens, and hands requests over as exchanges (serve/http/http_exchange.h). It knows no API.
//
// Supports keep-alive, pipelining, chunked bodies in both directions, HEAD, Expect: 100-continue, TLS, Unix sockets.
// kin_http_limits bounds the cost of clients. It never blocks the loop.
//
// Owner: the caller of open. Thread: the loop's, for every function and callback.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "serve/http/http_exchange.h"
#include "serve/http/limits.h"
#include "sys/tls.h"

typedef struct kin_http kin_http;

typedef struct kin_http_options {
    const char *host;   // an IP address; "localhost": 127.0.0.1 and ::1; a path that ends in ".sock": a Unix socket
    uint16_t port;      // 0: any free port, see kin_http_port
    const char *prefix; // before every path, for example "/kin"; NULL: none
    kin_tls_ctx *tls;   // borrowed (kin_tls_ctx_open_server); NULL: no TLS
    kin_http_limits limits;
} kin_http_options;

kin_http_options kin_http_options_default(void); // localhost, any free port

// Raises the process's limit of open files as far as needed and permitted. Blocks SIGPIPE in the calling thread.
int kin_http_open(kin_http **out, uv_loop_t *loop, const kin_http_options *options, const kin_http_callbacks *callbacks,
                  void *user, kin_err *err);
// Stops accepting and ends idle connections. Open exchanges finish; each is the last of its connection.
void kin_http_drain(kin_http *http);
// Ends everything at once; calls `gone` for open exchanges. The loop must run once more before it is closed. NULL is allowed.
void kin_http_close(kin_http *http);

uint16_t kin_http_port(const kin_http *http); // 0: a Unix socket
int kin_http_n_connections(const kin_http *http);
int kin_http_n_exchanges(const kin_http *http);    // open exchanges, and connections whose response is not fully sent
size_t kin_http_memory_used(const kin_http *http); // bytes held by requests
