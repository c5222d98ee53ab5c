// Who may ask the HTTP server: API keys, origins of web pages (CORS), names in Host (DNS rebinding).
//
// A web page that a user of this machine visits can send requests to servers on it. The browser names the page's origin, and says
// whether the page may read the answer: as these headers do. A page whose own name was pointed at this machine looks like the
// server's own to the browser; its name is in Host.
//
// Owner: who opened it; it does not change. Thread: any, but for what takes an exchange.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/http_exchange.h"

typedef struct kin_access kin_access;

typedef enum kin_cors {
    KIN_CORS_LOCALHOST, // pages of this machine may read answers
    KIN_CORS_NONE,
    KIN_CORS_ALL,
    KIN_CORS_LIST // pages of cors_origins
} kin_cors;

typedef struct kin_access_options {
    const char *host;         // that the server listens on, see kin_access_takes_host
    const char *allow_hosts;  // "desk.example,kin.example": names that Host may have, too; NULL: none
    const char *api_keys;     // "KEY,KEY"; NULL: none. Without any key everybody may ask
    const char *api_key_file; // one key a line; NULL: none
    kin_cors cors;
    const char *cors_origins; // "https://chat.example,localhost": of KIN_CORS_LIST
} kin_access_options;

int kin_access_open(kin_access **out, const kin_access_options *options, kin_err *err);
void kin_access_close(kin_access *a); // NULL is allowed

// For the callback `head`: adds the headers for browsers, and answers who may not ask; false: it did.
// Without keys, what comes from a page elsewhere is refused, unless it is a link to the server that a user follows.
bool kin_access_admit(const kin_access *a, kin_http_exchange *x);
// Whether an admitted request may have a model loaded. Not if a page elsewhere may have caused it: by a link, or by an image at
// an address (http, not loopback) where browsers do not say from where they ask.
bool kin_access_may_load(const kin_access *a, const kin_http_exchange *x);
// For the callback `request`: answers OPTIONS; true: it did.
bool kin_access_preflight(kin_http_exchange *x);

// ---- its rules. Headers that are absent have .at NULL

// Takes as long for a wrong key as for a right one, however long it is and wherever it differs.
bool kin_access_has_key(const kin_access *a, kin_str authorization, kin_str x_api_key);
bool kin_access_is_public(kin_str path); // no key is needed
// On a loopback address names of this machine; on others, where no key is needed, also numbers and names that only a home's
// network knows ("desk", "desk.local"); else any.
bool kin_access_takes_host(const kin_access *a, kin_str host);
bool kin_access_takes_origin(const kin_access *a, kin_str origin); // its pages may read answers
