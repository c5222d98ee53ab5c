// A mailbox of a loop's thread: other threads put {function, pointer} into it, and the loop calls the functions.
//
// Bounded: a full mailbox refuses, or blocks the sender. It allocates nothing after open. Calls of one thread run in the order
// in which it made them.
//
// Owner: the loop's thread, which opens and closes it. Thread: any for leaving calls, until it is freed; the others the loop's.
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/err.h"

typedef struct kin_mailbox kin_mailbox;
typedef void (*kin_mailbox_fn)(void *arg);

int kin_mailbox_open(kin_mailbox **out, uv_loop_t *loop, int n_max, kin_err *err);

// Runs what was left by then, before it returns. Calls are refused from then on. The loop must run once more.
void kin_mailbox_close(kin_mailbox *mailbox);

// After that, when no other thread uses it any more. NULL is allowed.
void kin_mailbox_free(kin_mailbox *mailbox);

// False: full or closed, and fn will not be called.
bool kin_mailbox_call(kin_mailbox *mailbox, kin_mailbox_fn fn, void *arg);

// Waits while it is full; not in the loop's thread. False: closed, and fn will not be called.
bool kin_mailbox_call_when_room(kin_mailbox *mailbox, kin_mailbox_fn fn, void *arg);
