// The head: the user's machine. It computes the model's two ends (embedding, output layer), and sends what is between them round
// the ring: hidden states, never tokens or text.
//
//   tokens ─► embedding ─► round 0: transport ─► own window ─► round 1: ... ─► own window ─► output ─► logits
//
// A step is tokens of any sequences, preceded by changes of the KV cache. Several steps may be in flight at once. A single
// machine is a ring of one: the same code over a loopback transport (pipeline/loopback.h). The head stores no text and samples no
// tokens; its caller does that, the scheduler (pipeline/scheduler.h).
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

// Counters of a head; readable from any thread.
typedef struct kin_head_counts {
    atomic_uint_fast64_t n_prompt, n_generated; // tokens of prompts; all others, drafted ones included
    atomic_uint_fast64_t n_steps;               // counted once per round, as a worker does
    atomic_uint_fast64_t compute_ns, wait_ns;
    // Medians over the last tokens since the ring was set, as in kin_token_times.
    atomic_uint_fast64_t token_compute_ns, token_stall_ns, token_disk_ns, token_disk_bytes, token_total_ns;
    atomic_uint_fast64_t token_pos;              // position of the last one
    atomic_uint_fast64_t n_sequences, n_running; // sequences started so far; sequences running now
} kin_head_counts;

// The other members, and the head's own share of the work. It can change between two requests.
typedef struct kin_head_ring {
    kin_ring_transport transport;
    kin_stage_executor *executor; // the head's own, borrowed
    kin_shard *shard;             // holds the output layer; borrowed
    int n_rounds;
    int n_members;           // members that compute: a prompt is cut into enough chunks to keep all of them busy
    kin_border_set borders;  // no borders: the head is the only member
    bool exact;              // as far as is known, a row's logits do not depend on the rows beside it
    kin_head_counts *counts; // borrowed; NULL: the head's own
} kin_head_ring;

// n_batch: most tokens per step. n_steps: most steps in flight at once; also the limit of the executor and the transport.
int kin_head_open(kin_head **out, const kin_model *model, const kin_head_ring *ring, int n_batch, int n_steps, kin_err *err);
void kin_head_close(kin_head *head);

// Updates the head's counters of sequences: started so far, and running now.
void kin_head_count_sequences(kin_head *head, uint64_t n_begun, int n_running);

// Switches to another ring; no step may be in flight. The contents of the KV cache are lost.
void kin_head_set_ring(kin_head *head, const kin_head_ring *ring);

// Returns the number of the current ring, from 1 on; each kin_head_set_ring increments it. Sequences are cached in one ring only.
uint64_t kin_head_ring_number(const kin_head *head);

// Sets the number of tokens in a chunk of a prompt; 0 (the default): what suits the ring, at most n_batch.
void kin_head_set_chunk(kin_head *head, int n_tokens);

// Stores the result of kin_prompt_chunk_worth (pure/plan/prompt.h) for the plan of the current ring; 0: not known.
void kin_head_set_chunk_worth(kin_head *head, int worth);
int kin_head_chunk_worth(const kin_head *head);

// Records computing and waiting in this trace from now on; borrowed, NULL: does not record.
void kin_head_record(kin_head *head, kin_trace *trace);

// ---- steps

// Changes the KV cache of all members before the next step. The operation is queued until a step carries it. Fails if out of
// memory, or if KIN_PROTO_MAX_OPS operations are queued.
int kin_head_change(kin_head *head, kin_kv_op op, kin_err *err);

// Tokens of one step, each the next of its sequence. The arrays are borrowed for the call, `logits` until the step has come back.
typedef struct kin_head_step {
    int n;                             // tokens, at most kin_head_n_batch
    const int32_t *tokens, *seq, *pos; // [n]
    const int32_t *out;                // [n_out] rows whose logits are wanted, ascending
    int n_out;
    float *logits; // f32 [n_out, n_vocab]; with `hidden` the hidden states // f32 [n_out, n_embd]
    bool hidden;
    bool states;  // kin_head_states will be asked for
    int n_prompt; // tokens that belong to prompts; the others are sequences' last ones, and drafted ones
    bool more;    // another chunk of the same prompt follows
} kin_head_step;

int kin_head_n_batch(const kin_head *head);
int kin_head_n_chunk(const kin_head *head, int n);     // tokens in each chunk of a prompt of n tokens
int kin_head_n_vocab(const kin_head *head);            // floats in a row of logits
int kin_head_n_members(const kin_head *head);          // members of the ring that compute
kin_border_set kin_head_borders(const kin_head *head); // borders between members of the ring
bool kin_head_is_exact(const kin_head *head);          // see kin_head_ring
// True if requests for pages stay behind the steps sent before them; with several rounds they overtake these steps.
bool kin_head_pages_stay_behind(const kin_head *head);
int kin_head_n_in_flight(const kin_head *head);
bool kin_head_has_room(const kin_head *head); // for one more step in flight

// Sends a step round the ring; *number: its number. On failure, here and below, all steps in flight are dropped, and the contents
// of their sequences are undefined until these are cleared.
int kin_head_send(kin_head *head, const kin_head_step *step, uint64_t *number, kin_err *err);

// Sends a request for pages of the KV cache round the ring, in order with the steps; it counts as one of them. Its keys are
// copied. tokens // i32 [n * 64] of the pages, used only if it loads. kin_head_receive returns its number when all members
// have processed it. Failure is as above.
int kin_head_send_pages(kin_head *head, const kin_page_request *request, const int32_t *tokens, uint64_t *number, kin_err *err);

// Returns how many of the first pages all members have stored, or found, for the request that kin_head_receive has just returned.
int kin_head_n_good(const kin_head *head, uint64_t number);

// Work for this thread while the ring computes and nothing has come back. free_s: the time for which that presumably lasts, by
// the shortest of the last waits for a step of as many tokens. It is called again until it returns false: nothing fits into the
// time.
typedef struct kin_head_meanwhile {
    bool (*work)(void *user, double free_s);
    void *user;
} kin_head_meanwhile;

// Works on what comes back until a step is done: *number is its number, and its logits are in place. Steps finish in the order of
// sending. A step whose tokens a later one forgets finishes when it comes back, without logits. *number 0 (steps are numbered
// from 1): none is done yet, but another thread woke this one (kin_message_queue_wake). meanwhile: borrowed for the call, NULL:
// none.
int kin_head_receive(kin_head *head, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err);

// For a step with `states` that kin_head_receive has just returned: the hidden states of all its tokens before the output norm //
// f32 [n, stream width], valid until the next call. NULL: it was forgotten, and has none.
const float *kin_head_states(const kin_head *head);

// Computes what the output matrix takes: ends the streams of the residual // f32 [n, stream width], if there are several, and
// normalises -> hidden // f32 [n, n_embd].
int kin_head_end(kin_head *head, int n, const float *x, float *hidden, kin_err *err);

// Computes hidden // f32 [n, n_embd], normalised -> logits // f32 [n, n_vocab] with the ring's output layer.
int kin_head_project(kin_head *head, int n, const float *hidden, float *logits, kin_err *err);

// Returns median times of tokens that were computed one by one since the ring was set: the head's own computing (embedding, its
// windows, output), its disk, and total_ns, from sending the token to its logits. Any thread.
kin_token_times kin_head_token_times(const kin_head_counts *counts);

// Returns the counters passed with the ring, or the head's own.
const kin_head_counts *kin_head_get_counts(const kin_head *head);

// Truncates the sequence to its first n positions; clear removes all sequences. Takes effect with the next step.
void kin_head_truncate(kin_head *head, int32_t seq, int32_t n);
void kin_head_clear(kin_head *head);
