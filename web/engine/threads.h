// The computing threads: the one that runs the graph, and helpers, which are Web Workers with the same memory that run
// kin_web_thread (web/engine_thread.js). A barrier follows each node.
#pragma once

// Computes thread ith's share of step i of a job; each of nth threads calls it.
typedef void (*kin_threads_step)(void *user, int i, int ith, int nth);

// Sets the number of computing threads, including the caller: helpers 1 .. n - 1 must be running. Initially 1.
void kin_threads_set(int n);
int kin_threads_n(void);

void kin_threads_run(kin_threads_step step, void *user, int n_steps);
