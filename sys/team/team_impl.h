// The internals of kin_team. Its threads come from the system (sys/team/team_open.c) or from a web page (web/engine/threads.c).
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "sys/team/interrupt.h"
#include "sys/team/team.h"

// A step. The thread that begins it writes it before it becomes the team's current step.
typedef struct kin_team_state {
    _Alignas(64) atomic_int next; // the next chunk to take
    atomic_int n_done;
    int n_chunks;
    bool claims_ahead, repeats;
    unsigned tag; // distinguishes its chunks' marks from those of other steps
} kin_team_state;

// A number whose change threads wait for.
typedef struct kin_team_signal {
    _Alignas(64) atomic_int value;
    atomic_int n_asleep; // threads that sleep, or are about to
} kin_team_signal;

enum {
    KIN_TEAM_CLOSES = -1, // the generation that ends the helpers
    KIN_TEAM_PLACED = 64, // threads that move away from a shared processor
};

struct kin_team {
    int most_threads; // that compute; helpers with higher numbers take no part
    kin_team_job job;
    kin_team_state *steps; // [cap_steps]
    int cap_steps;
    unsigned tag;                      // of the last step that repeats
    atomic_bool stopped;               // by job.stops
    kin_team_signal width;             // the job's threads; helpers with higher numbers sleep until it changes
    kin_team_signal generation;        // changes when a job begins, and when the team closes
    kin_team_signal current;           // step of the job; job.n_steps: it is over
    kin_team_signal inside;            // helpers that compute, or look whether there is a job
    atomic_bool is_open;               // helpers may begin
    atomic_uint marks[KIN_TEAM_MARKS]; // of the chunks of the last step that repeats: tag << 2 | progress
    atomic_int cpus[KIN_TEAM_PLACED];  // that threads ran on when they began with the last job
    uint8_t *results;                  // [most_threads][KIN_TEAM_RESULT]
    kin_interruptible *members;        // [most_threads]; NULL: no computation can be taken from a thread
};

// Runs as helper i (1 .. most_threads - 1) until the team closes.
void kin_team_help(kin_team *team, int i);
