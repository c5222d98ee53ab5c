// Runs a list of independent jobs on several threads, and returns when all are done.
#pragma once

#include <stddef.h>

// job(user, i) for every i < n_jobs, on at most n_threads threads (the caller's is one of them). Order is not defined.
// Falls back to fewer threads when the system has none to give.
void kin_parallel(int n_threads, size_t n_jobs, void (*job)(void *user, size_t i), void *user);
