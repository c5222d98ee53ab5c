// A tab: a browser's page that computes layers (web/page). To the head it is a device like any other: a kin_join of this
// process, whose engine is remote. Plans and steps go to the tab over its WebSocket, and what it computes comes back.
//
//   head ◄── control, ring links ──► kin_join (a thread) ── kin_remote_engine ──► loop's thread ◄── WebSocket ──► tab
//
// Messages are kin's frames, each whole in one message: PLAN, STEP, PAGES and END to the tab; READY, FAILED, STEP and PAGES from
// it; before it joins some ECHO with filler of a step's size, each of which it sends back, and says when it has rested. What is
// not a member's work is JSON, in texts with a "type":
//
//   from the tab   hello {code, name, cpu, gpu, threads, memory, rates}   rested   progress {done, total}   ahead {ticket, here}
//                  pong   leave
//   to the tab     ping   welcome {head, model}   refused {reason, again}   status {line}   weights, ahead {files, chunks,
//   windows, ...}
//
// Owner: serve/tabs.c. Thread: the loop's for all functions.
#pragma once

#include "base/clock.h"
#include "node/session.h"
#include "serve/http_exchange.h"

typedef struct kin_tab kin_tab;

enum { KIN_TAB_HELLO_MS = 5000, KIN_TAB_SILENCE_MS = 4000 }; // for the code; of a tab that has gone

typedef enum kin_tab_code { KIN_TAB_RIGHT, KIN_TAB_WRONG, KIN_TAB_LATER } kin_tab_code;

// What all tabs of a server have in common. It outlives them.
typedef struct kin_tab_world {
    const kin_session *session; // with others
    kin_key key;                // of the ring
    const char *token;          // for chunks
    kin_tab_code (*check)(void *user, const char *typed);
    void (*wake)(void *user); // any thread: kin_tab_step is to be called
    void *user;
} kin_tab_world;

// Answers the exchange: it becomes the tab's WebSocket, which wakes the loop (kin_tab_step) when there is something to be said.
int kin_tab_open(kin_tab **out, const kin_tab_world *world, kin_http_exchange *x, kin_err *err);

// What the tab's other threads want said, and the end of those. False: the tab is over, to be freed.
bool kin_tab_step(kin_tab *tab);
void kin_tab_free(kin_tab *tab); // waits for its thread
// What takes too long. Several times a second.
void kin_tab_tick(kin_tab *tab, kin_time now);
void kin_tab_end(kin_tab *tab, const char *reason); // it may come again

bool kin_tab_is_admitted(const kin_tab *tab); // it knew the code
