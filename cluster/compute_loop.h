// The computing loop: runs the scheduler's sequences through a session's ring, and continues when the ring is lost in between.
//
// A device that leaves, or hangs, ends the ring's epoch. The loop then waits for the next one and continues the sequences in it:
// the scheduler loads what it can of their keys and values from the members' disks and recomputes the rest, and each sampler
// keeps its state. So callers see a pause, and the same tokens as without it (where the kernels compute a row alike in every
// batch, kernels/kernels.h).
//
//   kin_compute_loop_enter ─► kin_compute_loop_step, while busy ─► kin_compute_loop_leave      in between the ring is held
//
// Owner: a command, or the service. Thread: the computing one.
#pragma once

#include "cluster/session.h"
#include "pipeline/drafter.h"
#include "pipeline/scheduler.h"

typedef struct kin_compute_loop kin_compute_loop;

// Opens a loop over `session`, which must be open (kin_session_open), and is borrowed. keeps: ended sequences stay as prefixes
// for others, also on the members' disks.
int kin_compute_loop_open(kin_compute_loop **out, kin_session *session, int n_parallel, bool keeps, kin_err *err);
void kin_compute_loop_close(kin_compute_loop *loop); // NULL is allowed

// Returns the loop's scheduler, for submitting and cancelling sequences, and for its statistics.
kin_scheduler *kin_compute_loop_scheduler(kin_compute_loop *loop);

// Opens a sequence's drafter, as the session's options say; NULL: no drafts. no_cache: does not draft from earlier sequences.
int kin_compute_loop_open_drafter(kin_compute_loop *loop, bool no_cache, kin_drafter **out, kin_err *err);

// Returns the expected rate of n_sequences sequences together, in tokens per second, in the last ring entered; 0: not known.
double kin_compute_loop_rate(const kin_compute_loop *loop, int n_sequences);

// Waits until the ring is up. If it is the same ring as before, the contents of the KV cache are still valid.
int kin_compute_loop_enter(kin_compute_loop *loop, kin_err *err);

// Runs one step of the scheduler. If a better plan waits, first leaves and reenters the ring. Reenters a lost ring, however long
// that takes. Fails if the ring cannot be brought up, if the session was stopped, if the ring is lost repeatedly without progress
// (cluster/losses.h), or if the model's files have changed; then the ring is left but the sequences remain: enter again, or end
// them with kin_scheduler_fail.
int kin_compute_loop_step(kin_compute_loop *loop, bool *busy, kin_err *err);

// Runs steps until no sequence is left. If the session is stopped (its console's `stop`; not a failure of this call), or a step
// fails, the remaining sequences end as failed.
int kin_compute_loop_finish(kin_compute_loop *loop, kin_err *err);

// Receives the steps in flight, and releases the ring: plans may change then. No effect if it was left already.
void kin_compute_loop_leave(kin_compute_loop *loop);
