// The tabs of a server (serve/tabs/tab.h): browsers that join its ring over a WebSocket, with the same code as other devices, and
// fetch their layers by hash. Limits how many there are at once and how often a code may be tried.
//
// Owner: the server. Thread: the loop's for all functions except open and close.
#pragma once

#include <uv.h>

#include "cluster/session.h"
#include "serve/http/http_exchange.h"

typedef struct kin_tabs kin_tabs;

enum {
    KIN_TABS_MAX = 16,               // tabs that compute
    KIN_TABS_MAX_ASKING = 8,         // tabs that have not sent the code yet
    KIN_TABS_MAX_UNSENT = 256 << 20, // bytes of responses not yet sent to clients; beyond, tabs wait for their weights
    KIN_TABS_TRY_MS = 1000,          // after a wrong code, none is checked for this time
};

// The session is clustered (--cluster), borrowed, and must outlive the tabs.
int kin_tabs_open(kin_tabs **out, uv_loop_t *loop, const kin_session *session, kin_err *err);
void kin_tabs_stop(kin_tabs *tabs);             // after the loop has run once more, nothing uses it any more; NULL is allowed
bool kin_tabs_have_ended(const kin_tabs *tabs); // after stop, while the loop ticks: true if nothing uses the session any more
void kin_tabs_close(kin_tabs *tabs);            // after they or the loop have ended; NULL is allowed

void kin_tabs_tick(kin_tabs *tabs, kin_time now); // call several times per second

// Handles a request for a WebSocket; accepts only pages of this server.
void kin_tabs_connect(kin_tabs *tabs, kin_http_exchange *x);
// Answers GET .../HASH: a chunk of the model, for tabs that know the token.
void kin_tabs_reply_chunk(kin_tabs *tabs, kin_http_exchange *x);
