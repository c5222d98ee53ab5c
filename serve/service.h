// The computing side of a server: jobs arrive from the loop's thread, tokens go back to it.
//
// A job is one sequence: its tokens, its sampler, its constraints. The computing thread schedules all jobs together
// (pipeline/scheduler.h) and samples their tokens. The loop turns tokens into text, tool calls and JSON.
//
//   loop's thread       kin_service_submit, kin_service_cancel ─► inbox ─┐
//   computing thread    kin_service_run: scheduler, sampler  ◄───────────┘ ─► outbox, wake()
//   loop's thread       kin_service_pop ◄────────────────────────────────────┘
//
// Owner: the caller of open. Threads: as stated at each function.
#pragma once

#include <stdatomic.h>

#include "cluster/session.h"
#include "pipeline/scheduler.h"
#include "pure/chat/thinking_budget.h"
#include "pure/sampling/constraint.h"
#include "pure/sampling/sampler.h"
#include "serve/shared_grammar.h"

typedef struct kin_service kin_service;
typedef struct kin_job kin_job;

// How the hidden states of a sequence's tokens become one vector.
typedef enum kin_pooling {
    KIN_POOLING_NONE,
    KIN_POOLING_MEAN,
    KIN_POOLING_LAST,
    KIN_POOLING_CLS, // the first
} kin_pooling;

// kin_job_new takes over everything in it; freed with the job.
typedef struct kin_job_options {
    int32_t *prompt; // [n_prompt]
    int n_prompt;
    int n_predict; // -1: until the context is full; 0: the prompt only
    int n_probs;   // number of likeliest tokens to report with each token; -1: no probabilities
    bool ignore_eos, no_cache;
    bool has_drawn_probs;        // report the probabilities that the sampler draws from, not the model's
    bool echoes;                 // with n_probs: report those of the prompt's tokens, too
    int tag;                     // for kin_service_erase and kin_service_read_sequence
    bool restores;               // restores a slot (serve/apis/llama/slots.h): the prompt only, without a sampler
    kin_pooling pooling;         // not NONE: generates nothing and returns a vector
    kin_sampler *sampler;        // NULL with pooling
    kin_shared_grammar *grammar; // NULL: none, also for the next three
    kin_matcher *matcher;
    kin_constraint *constraint;
    kin_thinking_budget *budget; // of reasoning
    uint64_t t_max_predict_ns;   // counted from the first token; 0: no limit
    void *user;                  // for the loop
} kin_job_options;

typedef enum kin_job_end {
    KIN_JOB_EOS,       // a token that ends sequences, or a complete grammar
    KIN_JOB_LENGTH,    // n_predict or the deadline was reached
    KIN_JOB_FULL,      // the context is full
    KIN_JOB_CANCELLED, // by kin_service_cancel
    KIN_JOB_FAILED,
    KIN_JOB_REFUSED, // the request's own fields together leave no token to generate
} kin_job_end;

typedef struct kin_job_prob {
    int32_t id;
    float logprob;
} kin_job_prob;

typedef enum kin_job_event_kind {
    KIN_JOB_PROGRESS,
    KIN_JOB_ECHO,
    KIN_JOB_TOKEN,
    KIN_JOB_ENDED,
    KIN_SEQUENCES_ERASED, // without a job, like the next one
    KIN_SEQUENCE_READ
} kin_job_event_kind;

enum { KIN_JOB_MAX_PROBS = 100, KIN_SERVICE_MAX_JOBS = 4096 };

typedef struct kin_job_event {
    kin_job_event_kind kind;
    kin_job *job; // after ENDED the loop frees it
    void *user;
    kin_pooling pooling; // the job's
    bool restores;       // likewise
    kin_time at;
    int n_done, n_cached;    // PROGRESS; n_done: also the tokens of ERASED and READ
    int32_t *tokens;         // READ: [n_done], owned by the event, free it. NULL: none
    kin_draft_counts drafts; // TOKEN, ENDED: so far
    int32_t id;              // TOKEN, ECHO: the prompt's tokens in order
    float logprob;           // NAN for the prompt's first token
    kin_job_prob *top;       // [n_top] owned by the event: free it
    int n_top;
    kin_job_end how;     // ENDED
    const float *vector; // EOS with pooling: f32 [n_embd], owned by the job
    kin_err why;         // FAILED and REFUSED
} kin_job_event;

typedef struct kin_service_options {
    kin_session *session; // opened (kin_session_open); borrowed
    int n_parallel;       // jobs that run at once
    int max_waiting;      // jobs that may wait; one more is refused
    bool keeps;           // ended sequences stay in the KV cache as prefixes
    atomic_bool *stop;
    void (*wake)(void *user); // there is something to take, or the status has changed; called on any thread
    void *wake_user;
    void (*begun)(void *user); // head and ring are up, computing can start. Called on the computing thread; NULL: not needed
    void *begun_user;
    // For a service that shares the computing thread with others (kin_service_turn): there is work. Called on any thread.
    void (*called)(void *user); // NULL: it has the thread for itself (kin_service_run)
    void *called_user;
} kin_service_options;

int kin_service_open(kin_service **out, const kin_service_options *options, kin_err *err);
void kin_service_close(kin_service *service); // after run; NULL is allowed

// Does the computing thread's work until stop is set or kin_service_stop is called. Fails if the ring cannot be brought up, or if
// the model's files change, which is checked before and after each step and several times per second.
int kin_service_run(kin_service *service, kin_err *err);

// The same in turns, for a session without other devices: call begin, then turn (one step) while it returns true and after each
// `called`, then finish. Remaining jobs fail with `why`. A turn after the model's files have changed finishes by itself.
int kin_service_begin(kin_service *service, kin_err *err);
bool kin_service_turn(kin_service *service); // true if there is more work
void kin_service_finish(kin_service *service, const kin_err *why);

// ---- the loop's thread

void kin_job_options_fini(kin_job_options *options); // for options that never became a job

// Creates a job, which takes over what the options hold, even on failure.
int kin_job_new(kin_job **out, const kin_job_options *options, kin_err *err);
void kin_job_free(kin_job *job); // before submit, or after ENDED. NULL is allowed

// max_jobs: the maximum number of jobs at once. has_room: true if n more may be submitted now.
int kin_service_max_jobs(const kin_service *service);
bool kin_service_has_room(kin_service *service, int n);

// Requires room for the job. ENDED follows in any case.
void kin_service_submit(kin_service *service, kin_job *job);
void kin_service_cancel(kin_service *service, kin_job *job); // ENDED follows, or is there already
// Takes the next event; false: none.
bool kin_service_pop(kin_service *service, kin_job_event *event);
// Removes from the prefix cache the ended sequences with this tag. ERASED follows, with `user`. KIN_FAIL: out of memory.
int kin_service_erase(kin_service *service, int tag, void *user);
// Reads the tokens of the last ended sequence with this tag that the cache still holds. READ follows, likewise.
int kin_service_read_sequence(kin_service *service, int tag, void *user);
void kin_service_stop(kin_service *service); // any thread

// ---- any thread

typedef struct kin_service_status {
    bool is_up; // jobs are computed
    int n_running, n_waiting;
    double expected_rate;          // planned tokens per second of all running jobs together; 0: not known
    kin_scheduler_stats scheduler; // of the last step
    kin_shard_stats shard;         // of a standalone machine, at most one second old
} kin_service_status;

kin_service_status kin_service_get_status(kin_service *service);

// True if it has finished because the model's files changed; *why says which. The model must be loaded anew.
bool kin_service_has_changed(kin_service *service, kin_err *why);
