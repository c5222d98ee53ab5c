// The computing side of a server: jobs come in from the loop's thread, tokens go back to it.
//
// A job is one text: its tokens, its sampler, what it may be. The computing thread schedules all of them together
// (pipeline/scheduler.h), and chooses their tokens. What is made of the tokens (text, tool calls, JSON) is the loop's.
//
//   loop's thread       kin_service_submit, kin_service_cancel ─► inbox ─┐
//   computing thread    kin_service_run: scheduler, sampler  ◄───────────┘ ─► outbox, wake()
//   loop's thread       kin_service_take ◄────────────────────────────────────┘
//
// Owner: who opened it. Threads: as each function says.
#pragma once

#include <stdatomic.h>

#include "node/session.h"
#include "pipeline/scheduler.h"
#include "pure/text/constraint.h"
#include "pure/text/sampler.h"
#include "pure/text/thinking_budget.h"

typedef struct kin_service kin_service;
typedef struct kin_job kin_job;

// How the hidden states of a text's tokens become one vector.
typedef enum kin_pooling {
    KIN_POOLING_NONE,
    KIN_POOLING_MEAN,
    KIN_POOLING_LAST,
    KIN_POOLING_CLS, // the first
} kin_pooling;

// All of it is the job's from the call on, and freed with it.
typedef struct kin_job_options {
    int32_t *prompt; // [n_prompt]
    int n_prompt;
    int n_predict; // -1: until the context is full; 0: the prompt only
    int n_probs;   // likeliest tokens that are reported with each one; -1: no probabilities at all
    bool ignore_eos, no_cache;
    bool has_drawn_probs; // they are those of what the sampler draws from, not the model's
    bool echoes;          // with n_probs: those of the prompt's tokens, too
    int tag;              // of kin_service_erase and kin_service_read_text
    bool restores;        // of a slot (serve/slots.h): the prompt only, without a sampler
    kin_pooling pooling;  // not NONE: nothing is written, the text becomes a vector
    kin_sampler *sampler; // NULL: pooling
    kin_grammar *grammar; // NULL, as the next three: none
    kin_matcher *matcher;
    kin_constraint *constraint;
    kin_thinking_budget *budget; // of reasoning
    uint64_t t_max_predict_ns;   // from the first token on; 0: no limit
    void *user;                  // the loop's
} kin_job_options;

typedef enum kin_job_end {
    KIN_JOB_EOS,       // a token that ends texts, or a grammar that is complete
    KIN_JOB_LENGTH,    // n_predict, or the deadline
    KIN_JOB_FULL,      // the context
    KIN_JOB_CANCELLED, // by kin_service_cancel
    KIN_JOB_FAILED,
    KIN_JOB_REFUSED, // the request's own fields, together, leave no token to write
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
    KIN_TEXTS_ERASED, // as the next one without a job
    KIN_TEXT_READ
} kin_job_event_kind;

enum { KIN_JOB_MAX_PROBS = 100, KIN_SERVICE_MAX_JOBS = 4096 };

typedef struct kin_job_event {
    kin_job_event_kind kind;
    kin_job *job; // after ENDED it is the loop's to free
    void *user;
    kin_pooling pooling; // the job's
    bool restores;       // likewise
    kin_time at;
    int n_done, n_cached;    // PROGRESS; n_done: tokens of ERASED and READ
    int32_t *tokens;         // [n_done] of READ: the event's own, free it. NULL: there are none
    kin_draft_counts drafts; // TOKEN, ENDED: so far
    int32_t id;              // TOKEN, ECHO: one of the prompt's, in order
    float logprob;           // NAN: of the prompt's first one
    kin_job_prob *top;       // [n_top] the event's own: free it
    int n_top;
    kin_job_end how;     // ENDED
    const float *vector; // of EOS with pooling: f32 [n_embd], the job's
    kin_err why;         // of FAILED and REFUSED
} kin_job_event;

typedef struct kin_service_options {
    kin_session *session; // opened (kin_session_open); borrowed
    int n_parallel;       // texts at once
    int max_waiting;      // texts that may wait; one more is refused
    bool keeps;           // texts that have ended stay in the KV cache as prefixes
    atomic_bool *stop;
    void (*wake)(void *user); // there is something to take, or the state has changed; any thread
    void *wake_user;
    void (*begun)(void *user); // it can compute: head and ring are up. The computing thread; NULL: not asked for
    void *begun_user;
    // Of a service that shares the computing thread with others (kin_service_turn): there is something to do. Any thread.
    void (*called)(void *user); // NULL: it has the thread for itself (kin_service_run)
    void *called_user;
} kin_service_options;

int kin_service_open(kin_service **out, const kin_service_options *options, kin_err *err);
void kin_service_close(kin_service *service); // after run; NULL is allowed

// The computing thread's work, until stop is set or kin_service_stop was called. Fails when the ring cannot be brought up, and
// when the model's files change, which is looked at before and after each step, and several times a second.
int kin_service_run(kin_service *service, kin_err *err);

// The same in turns, of a session without other devices: begin, then a turn (one step) as long as it is busy and whenever it was
// called, then finish. Texts that are left fail, with `why`. A turn after the model's files have changed finishes by itself.
int kin_service_begin(kin_service *service, kin_err *err);
bool kin_service_turn(kin_service *service); // whether it is busy
void kin_service_finish(kin_service *service, const kin_err *why);

// ---- the loop's thread

void kin_job_options_fini(kin_job_options *options); // of what never became a job

// A new job, which owns what the options hold, also when it fails.
int kin_job_new(kin_job **out, const kin_job_options *options, kin_err *err);
void kin_job_free(kin_job *job); // before submit, or after ENDED. NULL is allowed

// The most jobs at once; and whether n more may be submitted now.
int kin_service_max_jobs(const kin_service *service);
bool kin_service_has_room(kin_service *service, int n);

// There is room for it. ENDED follows in any case.
void kin_service_submit(kin_service *service, kin_job *job);
void kin_service_cancel(kin_service *service, kin_job *job); // ENDED follows, or is there already
// The next event; false: there is none.
bool kin_service_take(kin_service *service, kin_job_event *event);
// Forgets the texts with this tag that have ended and stay as prefixes of others. ERASED follows, with `user`; KIN_FAIL: no
// memory.
int kin_service_erase(kin_service *service, int tag, void *user);
// The tokens of the last text with this tag that has ended and stays as a prefix. READ follows, likewise.
int kin_service_read_text(kin_service *service, int tag, void *user);
void kin_service_stop(kin_service *service); // any thread

// ---- any thread

typedef struct kin_service_status {
    bool is_up; // texts are computed
    int n_running, n_waiting;
    double expected_rate;          // tokens per second of the running texts together, by the plan; 0: not known
    kin_scheduler_stats scheduler; // of the last step
    kin_shard_stats shard;         // of a machine on its own, at most a second old
} kin_service_status;

kin_service_status kin_service_get_status(kin_service *service);

// Whether it has ended because the model's files have changed: the sentence says which. The model is to be loaded anew.
bool kin_service_has_changed(kin_service *service, kin_err *why);
