// A team: the threads that compute a graph, including the thread that calls.
//
// A job is a sequence of steps, and a step is cut into chunks. A step begins when all chunks of the step before it are done.
// Threads take chunks from a counter. A step ends when its chunks are done, not when all threads have arrived, so a thread that
// the system has preempted between two chunks delays nothing. A thread that is preempted within a chunk delays the step only
// until another thread has computed that chunk again, if the step allows that. The thread that completes a step begins the next
// one, so progress depends on no particular thread. At the end of a job, a helper that does not leave at once loses what it
// computes (interrupt.h), so the job does not wait for it either.
//
// A chunk that may be computed twice writes its result to memory of its thread. The first thread to finish publishes the result;
// the other result is dropped.
//
// A step of a single chunk that cannot be computed twice is computed by the thread that begins it.
//
// Waiting threads spin for 50 us and then sleep, so an idle team leaves the processors to other programs.
//
// Owner: a set of devices (engine/device.c), or a browser's module (web/). Thread: one thread at a time runs jobs.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
    KIN_TEAM_THREADS = 1024,
#ifdef __wasm__
    KIN_TEAM_RESULT = 1 << 17, // maximum bytes of a result; chunks with larger ones are computed once
#else
    KIN_TEAM_RESULT = 1 << 19,
#endif
    KIN_TEAM_MARKS = 512, // most chunks of a step whose chunks may be computed twice
    KIN_TEAM_STATE = 512, // bytes that a thread keeps from chunk to chunk of a step
};

typedef struct kin_team kin_team;

// The division of a step into chunks.
typedef struct kin_team_step {
    int n_chunks;        // 0: the step has no work
    bool claims_ahead;   // a thread takes its next chunk before it computes one, so that it can prefetch
    size_t result_bytes; // maximum size of a chunk's result; 0: chunks must not be computed twice
} kin_team_step;

// A chunk of a step, for the thread that computes it.
typedef struct kin_team_chunk {
    int step, i;
    int next;     // the chunk that this thread computes next; -1 if unknown
    void *result; // [result_bytes] receives the result; NULL: write it to its final place
    void *state;  // [KIN_TEAM_STATE] belongs to the thread
    bool is_new;  // this is the thread's first chunk of this step, so `state` is not set yet
} kin_team_chunk;

typedef struct kin_team_job {
    int n_steps;
    int n_threads; // that compute it; 0: all
    // Called once per step, in order, when the steps before it are done; by any thread.
    kin_team_step (*plan)(void *user, int step);
    void (*compute)(void *user, const kin_team_chunk *chunk);
    // Copies a chunk's result to its final place. NULL: no step has results.
    void (*publish)(void *user, const kin_team_chunk *chunk);
    // Called before each step; true ends the job. NULL: nothing ends it early.
    bool (*stops)(void *user);
    void *user;
} kin_team_job;

// Starts n_threads - 1 threads; the caller of kin_team_run is the last one of the team.
int kin_team_open(kin_team **out, int n_threads, kin_err *err);
void kin_team_close(kin_team *team);

// Returns the number of threads, including the caller.
int kin_team_size(const kin_team *team);

// Makes room for jobs of n_steps steps. Call between jobs.
int kin_team_reserve(kin_team *team, int n_steps, kin_err *err);

// Computes all steps; their number must have been reserved. Returns false if job->stops ended the job.
bool kin_team_run(kin_team *team, const kin_team_job *job);

// Returns when no helper stands within a chunk that was taken from it. Call before memory is unmapped that chunks read.
void kin_team_rest(kin_team *team);
