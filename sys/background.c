#include "sys/background.h"

#include <time.h>

enum { REST_PART = 19 }; // pauses per work: background work takes one twentieth of the time

void kin_background_rest(kin_time began, bool (*is_needed)(void), const atomic_bool *stop) {
    const struct timespec short_while = {.tv_nsec = 20 * 1000000};
    kin_time now = kin_clock_now(), end = now + (now - began) * REST_PART;
    for (; now < end && is_needed() && !(stop && atomic_load(stop)); now = kin_clock_now()) nanosleep(&short_while, NULL);
}

#ifdef __linux__

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

void kin_background_thread(void) {
    struct sched_param param = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &param);
    setpriority(PRIO_PROCESS, 0, 19); // on Linux this applies to this thread only
}

#elif defined(__APPLE__)

#include <pthread/qos.h>

void kin_background_thread(void) {
    pthread_set_qos_class_self_np(QOS_CLASS_BACKGROUND, 0);
}

#else

void kin_background_thread(void) {}

#endif
