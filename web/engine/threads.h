// The threads that compute: the one that runs the graph, and helpers, Web Workers with the same memory that run
// kin_web_thread (web/engine_thread.js). They meet after each node.
#pragma once

// Step i of a job, or this thread's share of it: each of n threads calls it.
typedef void (*kin_threads_step)(void *user, int i, int ith, int nth);

// How many threads compute, with the caller: helpers 1 .. n - 1 must be running. 1 at first.
void kin_threads_set(int n);
int kin_threads_n(void);

void kin_threads_run(kin_threads_step step, void *user, int n_steps);
