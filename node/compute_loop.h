// The computing loop: the scheduler's texts through a session's ring, also when the ring is lost in the middle of them.
//
// A device that leaves, or hangs, ends the ring's epoch. The loop then waits for the next one, and the texts go on in it: the
// scheduler takes what it can of their keys and values from the members' disks and computes the rest again, and each sampler goes
// on with the state it has. So callers see a pause, and the same tokens as without it (where the kernels compute a row alike in
// every batch, kernels/kernels.h).
//
//   kin_compute_loop_enter ─► kin_compute_loop_step, while busy ─► kin_compute_loop_leave      between them the ring is kept
//
// Owner: a command, or the service. Thread: the computing one.
#pragma once

#include "node/session.h"
#include "pipeline/drafter.h"
#include "pipeline/scheduler.h"

typedef struct kin_compute_loop kin_compute_loop;

// Of texts through `session`, which is opened (kin_session_open), and borrowed. keeps: what was computed of a text stays for
// others that begin alike, also on the members' disks.
int kin_compute_loop_open(kin_compute_loop **out, kin_session *session, int n_parallel, bool keeps, kin_err *err);
void kin_compute_loop_close(kin_compute_loop *loop); // NULL is allowed

// The loop's own, for submitting and cancelling texts, and for its statistics.
kin_scheduler *kin_compute_loop_scheduler(kin_compute_loop *loop);

// Drafts for a text, as the session's options say; NULL: none. no_cache: not from earlier texts.
int kin_compute_loop_open_drafter(kin_compute_loop *loop, bool no_cache, kin_drafter **out, kin_err *err);

// Tokens per second that n_texts texts together are expected to get with the ring that was entered last; 0: not known.
double kin_compute_loop_rate(const kin_compute_loop *loop, int n_texts);

// Waits until the ring is up. What the KV cache held is still there if it is the same ring as before.
int kin_compute_loop_enter(kin_compute_loop *loop, kin_err *err);

// One step of the scheduler. Where a better plan waits, the ring is left and entered again before. A ring that is lost is entered
// again: the call takes as long as that takes. Fails when the ring cannot be brought up, when it was stopped, and when it is lost
// again and again with nothing written or done in between (node/losses.h), and when the model's files have changed; then the ring
// is left, and the texts are still there: enter again, or end them with kin_scheduler_fail.
int kin_compute_loop_step(kin_compute_loop *loop, bool *busy, kin_err *err);

// Steps until no text is left. Those that are there when the session is stopped (its console's `stop`: no failure of this
// call), or when a step fails, end as failed.
int kin_compute_loop_finish(kin_compute_loop *loop, kin_err *err);

// Receives the steps in flight, and gives the ring back: plans may change then. Without effect when it was left already.
void kin_compute_loop_leave(kin_compute_loop *loop);
