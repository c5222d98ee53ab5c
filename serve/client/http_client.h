// An HTTP/1.1 client for one request at a time: HTTP or HTTPS; the answer's body is passed on as it arrives.
//
// Every request has its own connection. Functions that wait call `goes_on` ten times per second, so that Ctrl-C works at any
// moment: during name lookup, while connecting, and in the middle of an answer.
//
// Owner: the caller of open. Thread: one at a time.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_http_client kin_http_client;

typedef struct kin_http_url {
    bool is_tls;
    char host[256]; // without the brackets of IPv6
    uint16_t port;
    char path[256]; // prefix of every requested path: "" or "/kin"
} kin_http_url;

// Parses "https://desk.local:8080/kin" or "desk:8080". Defaults: http, and port 80 or 443. Drops a trailing "/v1": addresses for
// clients of OpenAI's API end with it, and paths here begin with it.
int kin_http_url_parse(const char *text, kin_http_url *url, kin_err *err);

typedef struct kin_http_client_options {
    const char *url;
    const char *api_key;         // sent as "Authorization: Bearer KEY"; NULL: none
    const char *ca_file;         // PEM file of certificates that are trusted besides the system's; NULL: none
    int silent_ms;               // a GET or a handshake fails after this time without a byte; 0: 30 s. A POST has no limit
    bool (*goes_on)(void *user); // false: the current operation ends as KIN_HTTP_CLIENT_STOPPED
    void *user;
} kin_http_client_options;

typedef enum kin_http_client_end {
    KIN_HTTP_CLIENT_DONE,    // the answer is complete
    KIN_HTTP_CLIENT_STOPPED, // by `take` or `goes_on`
    KIN_HTTP_CLIENT_FAILED,  // not connected, or the connection ended early; the error says why
} kin_http_client_end;

int kin_http_client_open(kin_http_client **out, const kin_http_client_options *options, kin_err *err);
void kin_http_client_close(kin_http_client *c); // NULL is allowed

// Sends a request and reads the answer. body: JSON; .at NULL: none, and the method is GET. take: receives pieces of the answer's
// body with its status; returns false to stop. *status: the answer's status; 0 if none arrived.
kin_http_client_end kin_http_client_ask(kin_http_client *c, const char *path, kin_str body,
                                        bool (*on_piece)(void *user, int status, kin_str piece), void *user, int *status,
                                        kin_err *err);
