// A door into a loop's thread: other threads leave {function, pointer} here, and the loop calls it.
//
// Bounded: who finds it full must wait or give up; it never allocates after it was opened. One poster's calls run in the order in
// which it left them.
//
// Owner: the loop's thread, which opens and closes it. Thread: any for leaving calls, until it is freed; the others the loop's.
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/err.h"

typedef struct kin_post kin_post;
typedef void (*kin_post_fn)(void *arg);

int kin_post_open(kin_post **out, uv_loop_t *loop, int n_max, kin_err *err);

// Runs what was left by then, before it returns. Calls are refused from then on. The loop must run once more.
void kin_post_close(kin_post *post);

// After that, when no other thread uses it any more. NULL is allowed.
void kin_post_free(kin_post *post);

// False: full or closed, and fn will not be called.
bool kin_post_call(kin_post *post, kin_post_fn fn, void *arg);

// Waits while it is full; not in the loop's thread. False: closed, and fn will not be called.
bool kin_post_call_when_room(kin_post *post, kin_post_fn fn, void *arg);
