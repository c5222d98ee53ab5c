// The head: the user's machine. It has the model's two ends (embedding, output layer), and sends what is between them round the
// ring: hidden states, never tokens or text.
//
//   tokens ─► embedding ─► round 0: transport ─► own window ─► round 1: ... ─► own window ─► output ─► logits
//
// A step is tokens of any sequences, and changes of the KV cache before them. Several steps may be in flight at once. A machine
// on its own is a ring of one: the same code over a loopback transport (pipeline/loopback.h). The head keeps no text and makes no
// choice of tokens: that is the caller's, the scheduler (pipeline/scheduler.h).
//
// Owner: the caller. Thread: one, the same as the shard's.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "observe/trace.h"
#include "pipeline/ring_transport.h"
#include "pipeline/stage_executor.h"
#include "pipeline/step_timing.h"

typedef struct kin_head kin_head;

// What a head has done so far; any thread may look.
typedef struct kin_head_counts {
    atomic_uint_fast64_t n_prompt, n_generated; // tokens, fed many at a time or one by one
    atomic_uint_fast64_t n_steps;               // once per round, as a worker counts
    atomic_uint_fast64_t compute_ns, wait_ns;
    // Medians of the last tokens, as in kin_token_times; since the ring was set.
    atomic_uint_fast64_t token_compute_ns, token_stall_ns, token_disk_ns, token_disk_bytes, token_total_ns;
    atomic_uint_fast64_t token_pos;          // of the last one
    atomic_uint_fast64_t n_texts, n_running; // texts that were begun so far, and those that are computed now
} kin_head_counts;

// Who the others are and what the head does itself. It can change between two requests.
typedef struct kin_head_ring {
    kin_ring_transport transport;
    kin_stage_executor *executor; // the head's own, borrowed
    kin_shard *shard;             // with the output layer, borrowed
    int n_rounds;
    int n_members;           // that compute: a prompt is cut so that all have something to do
    kin_border_set borders;  // none: the head is alone
    bool exact;              // as far as is known a row's logits do not depend on the rows beside it
    kin_head_counts *counts; // borrowed, NULL: none
} kin_head_ring;

// n_batch: most tokens per step. n_steps: most steps in flight at once, of the executor and the transport.
int kin_head_open(kin_head **out, const kin_model *model, const kin_head_ring *ring, int n_batch, int n_steps, kin_err *err);
void kin_head_close(kin_head *head);

// For the head's counts: how many texts were begun so far, and how many are computed now.
void kin_head_count_texts(kin_head *head, uint64_t n_begun, int n_running);

// Another ring from now on; no step may be in flight. What sequences held is lost.
void kin_head_set_ring(kin_head *head, const kin_head_ring *ring);

// Of the ring that is set, from 1 on: another one with each kin_head_set_ring. What sequences held is in the caches of one ring.
uint64_t kin_head_ring_number(const kin_head *head);

// Tokens in a chunk of a prompt; 0 (as after open): what suits the ring, at most n_batch.
void kin_head_set_chunk(kin_head *head, int n_tokens);

// Of the ring that is set: what kin_prompt_chunk_worth (pure/plan/prompt.h) says of its plan; 0: it is not known.
void kin_head_set_chunk_worth(kin_head *head, int worth);
int kin_head_chunk_worth(const kin_head *head);

// Where computing and waiting are recorded from now on; borrowed, NULL: nowhere.
void kin_head_record(kin_head *head, kin_trace *trace);

// ---- steps

// Changes the KV cache, on all members, before the next step. Operations are kept until a step takes them along. KIN_FAIL: out of
// memory.
int kin_head_change(kin_head *head, kin_kv_op op, kin_err *err);

// Tokens of one step, each the next of its sequence. Arrays are borrowed for the call, `logits` until the step has come back.
typedef struct kin_head_step {
    int n;                             // tokens, at most kin_head_n_batch
    const int32_t *tokens, *seq, *pos; // [n]
    const int32_t *out;                // [n_out] rows after which logits are wanted, ascending
    int n_out;
    float *logits; // f32 [n_out, n_vocab], or with `hidden` the hidden states // f32 [n_out, n_embd]
    bool hidden;
    int n_prompt; // tokens that belong to prompts; the others are the last ones of texts, and drafted ones
    bool more;    // another chunk of the same prompt follows
} kin_head_step;

int kin_head_n_batch(const kin_head *head);
int kin_head_n_chunk(const kin_head *head, int n);     // tokens of each chunk of a prompt of n
int kin_head_n_vocab(const kin_head *head);            // floats in a row of logits
int kin_head_n_members(const kin_head *head);          // of the ring that compute
kin_border_set kin_head_borders(const kin_head *head); // of the ring
bool kin_head_is_exact(const kin_head *head);          // of the ring: see kin_head_ring
// Whether requests for pages stay behind the steps that were sent before them; else they overtake those of several rounds.
bool kin_head_pages_stay_behind(const kin_head *head);
int kin_head_n_in_flight(const kin_head *head);
bool kin_head_has_room(const kin_head *head); // for one more in flight

// Sends a step round the ring; its number is in *number. On failure, here and below, all steps in flight are given up: what their
// sequences hold is not known, until they are forgotten.
int kin_head_send(kin_head *head, const kin_head_step *step, uint64_t *number, kin_err *err);

// Sends a request for pages of the KV cache round the ring, in order with the steps, among which it counts; its keys are copied.
// tokens // i32 [n * 64] of the pages; only if it recomputes. kin_head_receive gives its number back when all members have done
// it. Failure is as above.
int kin_head_send_pages(kin_head *head, const kin_page_request *request, const int32_t *tokens, uint64_t *number, kin_err *err);

// Of a request that kin_head_receive gave back just now: how many of its first pages all members have kept, or found.
int kin_head_n_good(const kin_head *head, uint64_t number);

// What this thread may do while the ring computes and nothing has come back. free_s: as long as that presumably goes on, by the
// shortest of the last waits for a step of as many tokens. It is called again until it returns false, which is that there is
// nothing that fits.
typedef struct kin_head_meanwhile {
    bool (*work)(void *user, double free_s);
    void *user;
} kin_head_meanwhile;

// Works on what comes back until a step is done: its number is in *number, its logits are where they were wanted. Steps are done
// in the order in which they were sent. A step whose tokens a later one forgets is done when it comes back, without logits.
// *number 0 (steps have numbers from 1 on): none is done yet, but somebody woke this thread (kin_message_queue_wake).
// meanwhile: borrowed for the call, NULL: nothing.
int kin_head_receive(kin_head *head, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err);

// What a token takes, of those that were fed one by one since the ring was set: the head's own computing (embedding, its windows,
// output), its disk, and total_ns, from sending it to its logits. Any thread.
kin_token_times kin_head_token_times(const kin_head_counts *counts);

// The ring's, or its own.
const kin_head_counts *kin_head_get_counts(const kin_head *head);

// Of the sequence remain the first n positions; or nothing of any sequence. With the next step.
void kin_head_truncate(kin_head *head, int32_t seq, int32_t n);
void kin_head_clear(kin_head *head);
