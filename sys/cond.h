// Timed waits on a condition variable with the monotonic clock.
//
// Stateless functions; the caller owns the condition variable and the mutex.
#pragma once

#include <pthread.h>
#include <stdint.h>

// Replaces pthread_cond_init. Returns 0, or an error number.
int kin_cond_init(pthread_cond_t *cond);

// May wake early. `cond` must come from kin_cond_init; the caller holds the mutex.
void kin_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns);
