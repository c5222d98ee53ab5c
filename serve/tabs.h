// The tabs of a server (serve/tab.h): browsers that join its ring over a WebSocket, with the same code as other devices, and
// fetch their layers by hash. How many there are at once, and how often a code may be tried, is limited.
//
// Owner: the server. Thread: the loop's for all functions but open and close.
#pragma once

#include <uv.h>

#include "node/session.h"
#include "serve/http_exchange.h"

typedef struct kin_tabs kin_tabs;

enum {
    KIN_TABS_MAX = 16,               // that compute
    KIN_TABS_MAX_ASKING = 8,         // that have not said the code yet
    KIN_TABS_MAX_UNSENT = 256 << 20, // bytes of responses that clients do not take; then tabs wait for their weights
    KIN_TABS_TRY_MS = 1000,          // after a wrong code none is looked at for so long
};

// The session has others (--cluster), is borrowed, and outlives them.
int kin_tabs_open(kin_tabs **out, uv_loop_t *loop, const kin_session *session, kin_err *err);
void kin_tabs_stop(kin_tabs *tabs);             // no more of the loop is used, once it has run; NULL is allowed
bool kin_tabs_have_ended(const kin_tabs *tabs); // after stop, while the loop goes on and ticks: nothing uses the session any more
void kin_tabs_close(kin_tabs *tabs);            // when they or the loop have ended; NULL is allowed

void kin_tabs_tick(kin_tabs *tabs, kin_time now); // several times a second

// A request for a WebSocket, from a page of this server only.
void kin_tabs_connect(kin_tabs *tabs, kin_http_exchange *x);
// GET .../HASH: a chunk of the model, for tabs that have been told the token.
void kin_tabs_reply_chunk(kin_tabs *tabs, kin_http_exchange *x);
