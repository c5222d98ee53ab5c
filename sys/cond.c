#include "sys/cond.h"

#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

#ifdef __APPLE__

int kin_cond_init(pthread_cond_t *cond) {
    return pthread_cond_init(cond, NULL);
}

void kin_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns) {
    const struct timespec wait = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    pthread_cond_timedwait_relative_np(cond, mutex, &wait);
}

#else

int kin_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0) return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0) rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
}

void kin_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / NS_PER_S);
    until.tv_nsec = (long)(ns % NS_PER_S);
    pthread_cond_timedwait(cond, mutex, &until);
}

#endif
