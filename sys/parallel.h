// Runs a list of independent jobs on several threads, and returns when all are done.
#pragma once

#include <stddef.h>

// Calls job(user, i) for every i < n_jobs, on at most n_threads threads (including the caller's), in no defined order. Uses fewer
// threads if the system cannot start more.
void kin_parallel(int n_threads, size_t n_jobs, void (*job)(void *user, size_t i), void *user);
