// What a team asks of the system: sleeping until another thread changes a number, and which processor a thread runs on.
//
// Plain functions. Thread: any.
#pragma once

#include <stdatomic.h>

// Sleeps while *value is `old`. May return early: check the value again.
void kin_futex_wait(atomic_int *value, int old);

// Wakes all threads that sleep on it.
void kin_futex_wake(atomic_int *value);

// Lets other threads run.
void kin_thread_yield(void);

// The processor that the calling thread runs on; -1: not known.
int kin_thread_cpu(void);

// Moves the calling thread to another processor than these, of those that it may run on. Nothing holds it there afterwards. Does
// nothing if there is none.
void kin_thread_avoid_cpus(const atomic_int *cpus, int n);
