#include "sys/background.h"

#ifdef __linux__

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

void kin_background_thread(void) {
    struct sched_param param = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &param);
    setpriority(PRIO_PROCESS, 0, 19); // on Linux: of this thread alone
}

#elif defined(__APPLE__)

#include <pthread/qos.h>

void kin_background_thread(void) {
    pthread_set_qos_class_self_np(QOS_CLASS_BACKGROUND, 0);
}

#else

void kin_background_thread(void) {}

#endif
