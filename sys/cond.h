// Waiting on a condition variable with a time limit, by the monotonic clock.
//
// Plain functions; the condition variable is the caller's, as is the mutex.
#pragma once

#include <pthread.h>
#include <stdint.h>

// In place of pthread_cond_init. 0, or an error number.
int kin_cond_init(pthread_cond_t *cond);

// May wake early. `cond` was made by kin_cond_init; the mutex is held.
void kin_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns);
