#include "sys/team/interrupt.h"

#ifdef KIN_INTERRUPTS

#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIGNAL = SIGURG }; // by default it is ignored, and nothing else here uses it

static _Thread_local kin_interruptible *own;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool works;

static void leave_if_stopped(int signal) {
    (void)signal;
    if (own && atomic_load(&own->doing) == KIN_STOPPED) siglongjmp(own->point, 1);
}

// SA_NODEFER: the handler does not return, so the signal must not stay blocked.
static void prepare(void) {
    const struct sigaction action = {.sa_handler = leave_if_stopped, .sa_flags = SA_NODEFER | SA_RESTART};
    works =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 && sigaction(SIGNAL, &action, NULL) == 0;
}

void kin_interrupt_prepare(void) {
    pthread_once(&once, prepare);
}

void kin_interruptible_open(kin_interruptible *x) {
    own = x;
    x->thread = (int)syscall(SYS_gettid);
    sigset_t set; // threads inherit a mask, for example that of kin chat's server
    sigemptyset(&set);
    sigaddset(&set, SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void kin_interruptible_end(kin_interruptible *x) {
    int what = atomic_load_explicit(&x->doing, memory_order_relaxed);
    if (what != KIN_STOPPED && atomic_compare_exchange_strong(&x->doing, &what, KIN_COMPUTES_NOTHING)) return;
    siglongjmp(x->point, 1);
}

void kin_interruptible_recover(kin_interruptible *x) {
    atomic_store(&x->doing, KIN_COMPUTES_NOTHING);
}

kin_computation kin_interrupt_stop(kin_interruptible *x) {
    int what = atomic_load(&x->doing);
    if (!works || (what != KIN_COMPUTES && what != KIN_SLEEPS)) return KIN_COMPUTES_NOTHING;
    if (!atomic_compare_exchange_strong(&x->doing, &what, KIN_STOPPED)) return KIN_COMPUTES_NOTHING;
    syscall(SYS_tgkill, getpid(), x->thread, SIGNAL);
    return (kin_computation)what;
}

void kin_interrupt_settle(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

#endif
