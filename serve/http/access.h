// Access rules of the HTTP server: API keys, origins of web pages (CORS), names in Host (DNS rebinding).
//
// A web page that a user of this machine visits can send requests to servers on it. The browser sends the page's origin, and lets
// the page read the answer only if the answer's headers allow it. If the page's own host name resolves to this machine, the
// browser takes the page for the server's own; the foreign name then stands in Host.
//
// Owner: the caller of open; immutable afterwards. Thread: any, except for functions that take an exchange.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/http/http_exchange.h"

typedef struct kin_access kin_access;

typedef enum kin_cors {
    KIN_CORS_LOCALHOST, // pages of this machine may read answers
    KIN_CORS_NONE,
    KIN_CORS_ALL,
    KIN_CORS_LIST // the pages in cors_origins may
} kin_cors;

typedef struct kin_access_options {
    const char *host;         // the address that the server listens on, see kin_access_allows_host
    const char *allow_hosts;  // further names that Host may have, "desk.example,kin.example"; NULL: none
    const char *api_keys;     // "KEY,KEY"; NULL: none. Without any key all clients are admitted
    const char *api_key_file; // one key per line; NULL: none
    kin_cors cors;
    const char *cors_origins; // for KIN_CORS_LIST: "https://chat.example,localhost"
} kin_access_options;

int kin_access_open(kin_access **out, const kin_access_options *options, kin_err *err);
void kin_access_close(kin_access *a); // NULL is allowed

// Call from the callback `head`: adds the headers for browsers and refuses clients without access. Returns false if it has
// answered.
// Without keys, requests caused by foreign web pages are refused, except when the user follows a link to the server.
bool kin_access_admit(const kin_access *a, kin_http_exchange *x);
// True if an admitted request may cause a model to be loaded. False if a foreign page may have caused the request: by a link, or
// by an image on an address (http, not loopback) where browsers do not send the origin.
bool kin_access_may_load(const kin_access *a, const kin_http_exchange *x);
// Call from the callback `request`: answers OPTIONS. Returns true if it has answered.
bool kin_access_preflight(kin_http_exchange *x);

// ---- the rules. Absent headers have .at NULL

// Takes the same time for wrong and right keys, whatever their length and wherever they differ.
bool kin_access_has_key(const kin_access *a, kin_str authorization, kin_str x_api_key);
bool kin_access_is_public(kin_str path); // true if no key is needed
// On a loopback address: names of this machine. On other addresses without keys: also IP addresses and names that exist only in
// the home network ("desk", "desk.local"). Otherwise: any name.
bool kin_access_allows_host(const kin_access *a, kin_str host);
bool kin_access_allows_origin(const kin_access *a, kin_str origin); // true if pages of this origin may read answers
