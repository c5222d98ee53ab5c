// A worker: a device's side of the steps. A frame comes from the previous member, the device's layers are computed, a frame goes
// to the next member.
//
// Owner: the device's driver. Thread: the computing one, which is the shard's.
#pragma once

#include "pipeline/stage_executor.h"
#include "pipeline/steps.h"

typedef struct kin_worker kin_worker;

// The executor and the pool are borrowed until close.
int kin_worker_open(kin_worker **out, kin_stage_executor *executor, const kin_steps *steps, kin_message_pool *pool, kin_err *err);
void kin_worker_close(kin_worker *worker);

// The member is one of a group that share each layer, and not its last one: `pass` takes each step to the next member as it came,
// before it is computed here. What comes of it is the same for all of the group, and its last member passes that on.
void kin_worker_pass_early(kin_worker *worker, void (*pass)(void *user, kin_message_buffer *buffer), void *user);

// The frames that follow wait in this queue, borrowed. A step is not computed but goes on as it came where a later one is there
// already that forgets its tokens: a drafted token that was wrong. Pages of such tokens are not kept. Not for a member of a
// group, which others wait for.
void kin_worker_look_ahead(kin_worker *worker, kin_message_queue *in);

// Takes a STEP or PAGES, which is *buffer; afterwards that is for the next member, or NULL where it was passed on early. On
// failure it is NULL, too, and back in the pool if it was not passed on.
int kin_worker_take(kin_worker *worker, kin_message_buffer **buffer, kin_err *err);

// Whether the last failure was of what came, not of computing it: the member before this one sent what cannot be.
bool kin_worker_got_wrong(const kin_worker *worker);

// What it has done since open.
typedef struct kin_worker_stats {
    uint64_t n_steps, n_tokens; // steps count once per round
    uint64_t n_dropped;         // of these steps: not computed, for their tokens were forgotten
    uint64_t compute_ns;
} kin_worker_stats;

kin_worker_stats kin_worker_get_stats(const kin_worker *worker);
