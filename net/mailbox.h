// A mailbox for a loop's thread: other threads put {function, pointer} pairs into it, and the loop calls the functions.
//
// Bounded: a full mailbox refuses, or blocks the sender. It allocates nothing after open. Calls from one thread run in order.
//
// Owner: the loop's thread, which opens and closes it. Thread: any for kin_mailbox_call and kin_mailbox_call_when_room, until it
// is freed; the loop's for the others.
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/err.h"

typedef struct kin_mailbox kin_mailbox;
typedef void (*kin_mailbox_fn)(void *arg);

int kin_mailbox_open(kin_mailbox **out, uv_loop_t *loop, int n_max, kin_err *err);

// Runs all pending calls before it returns, and refuses new ones from then on. The loop must run once more.
void kin_mailbox_close(kin_mailbox *mailbox);

// Call after close, once no other thread uses it. NULL is allowed.
void kin_mailbox_free(kin_mailbox *mailbox);

// Returns false if the mailbox is full or closed; fn will not be called.
bool kin_mailbox_call(kin_mailbox *mailbox, kin_mailbox_fn fn, void *arg);

// Blocks while it is full; do not call in the loop's thread. Returns false if it is closed; fn will not be called.
bool kin_mailbox_call_when_room(kin_mailbox *mailbox, kin_mailbox_fn fn, void *arg);
