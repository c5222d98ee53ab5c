// A tab: a browser's page that computes layers (web/page). For the head it is a device like any other: a kin_join in this process
// whose engine is remote. Plans and steps go to the tab over its WebSocket, and its results come back.
//
//   head ◄── control, ring links ──► kin_join (a thread) ── kin_remote_engine ──► loop's thread ◄── WebSocket ──► tab
//
// Messages are kin's frames, one frame per message: PLAN, STEP, PAGES and END to the tab; READY, FAILED, STEP and PAGES from it.
// Before it joins it gets several ECHO frames of a step's size; it sends each back, and reports when it has rested. Everything
// that is not a member's work is JSON text with a "type":
//
//   from the tab   hello {code, name, cpu, gpu, threads, memory, rates}   rested   progress {done, total}   ahead {ticket, here}
//                  pong   leave
//   to the tab     ping   welcome {head, model}   refused {reason, again}   status {line}   weights, ahead {files, chunks,
//                  windows, ...}
//
// Owner: serve/tabs/tabs.c. Thread: the loop's for all functions.
#pragma once

#include "base/clock.h"
#include "cluster/session.h"
#include "serve/http/http_exchange.h"

typedef struct kin_tab kin_tab;

enum { KIN_TAB_HELLO_MS = 5000, KIN_TAB_SILENCE_MS = 4000 }; // limits: for the code to arrive; for the silence of a joined tab

typedef enum kin_tab_code { KIN_TAB_RIGHT, KIN_TAB_WRONG, KIN_TAB_LATER, KIN_TAB_MANY } kin_tab_code;

// State shared by all tabs of a server. Outlives them.
typedef struct kin_tab_shared {
    const kin_session *session; // clustered
    kin_key key;                // of the ring
    const char *token;          // for chunks
    kin_tab_code (*check)(void *user, const char *typed);
    void (*wake)(void *user); // kin_tab_step must be called; called on any thread
    void *user;
} kin_tab_shared;

// Answers the exchange, which becomes the tab's WebSocket. Calls `wake` when kin_tab_step has something to send.
int kin_tab_open(kin_tab **out, const kin_tab_shared *shared, kin_http_exchange *x, kin_err *err);

// Sends what the tab's other threads have queued, and handles their end. Returns false if the tab is over: free it.
bool kin_tab_step(kin_tab *tab);
void kin_tab_free(kin_tab *tab); // waits for its thread
// Ends the tab if something takes too long. Call several times per second.
void kin_tab_tick(kin_tab *tab, kin_time now);
void kin_tab_end(kin_tab *tab, const char *reason); // it may join again

bool kin_tab_is_admitted(const kin_tab *tab); // it has sent the right code
