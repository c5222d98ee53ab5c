// An HTTP/1.1 client, for one request at a time: HTTP or HTTPS, the body of the answer as it comes.
//
// Every request has a connection of its own. A function that waits asks `goes_on` ten times a second, so that Ctrl-C is heard at
// every moment: while a name is looked up, while connecting, and in the middle of an answer.
//
// Owner: who opened it. Thread: one at a time.
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
    char path[256]; // before every path that is asked for: "" or "/kin"
} kin_http_url;

// "https://desk.local:8080/kin", "desk:8080": http, and port 80 or 443, unless they are said. A path of "/v1" is dropped: clients
// of OpenAI's API are told such addresses, and paths here begin with it.
int kin_http_url_parse(const char *text, kin_http_url *url, kin_err *err);

typedef struct kin_http_client_options {
    const char *url;
    const char *api_key; // sent as "Authorization: Bearer KEY"; NULL: none
    const char *ca_file; // PEM: whose certificates are trusted, besides those that the system trusts; NULL: none
    int silent_ms;       // a GET or a handshake fails after so long without a byte; 0: 30 s. What is posted may take any time
    bool (*goes_on)(void *user); // false: what is being done ends, as KIN_HTTP_CLIENT_STOPPED
    void *user;
} kin_http_client_options;

typedef enum kin_http_client_end {
    KIN_HTTP_CLIENT_DONE,    // the answer is whole
    KIN_HTTP_CLIENT_STOPPED, // by `take` or `goes_on`
    KIN_HTTP_CLIENT_FAILED,  // no connection, or it ended early; the error says why
} kin_http_client_end;

int kin_http_client_open(kin_http_client **out, const kin_http_client_options *options, kin_err *err);
void kin_http_client_close(kin_http_client *c); // NULL is allowed

// body: JSON; at NULL: none, and the method is GET. take: pieces of the answer's body, with its status; false: enough.
// *status: the answer's, 0 before there is one.
kin_http_client_end kin_http_client_ask(kin_http_client *c, const char *path, kin_str body,
                                        bool (*take)(void *user, int status, kin_str piece), void *user, int *status,
                                        kin_err *err);
