// Ends what another thread computes, even while the system does not let that thread run.
//
// A thread computes something whose result may be dropped between kin_interruptible_begin and kin_interruptible_end. Another
// thread may take that computation from it: then it executes no further instruction of it, so the memory that it reads may
// change at once. As soon as it runs again, it continues at its KIN_INTERRUPTIBLE_POINT. Memory may be unmapped only when it has
// done so (kin_interruptible_is_stopped), because it may stand within a page fault, which the kernel goes on with.
//
// The computation must hold nothing: no lock, no memory of its own.
//
// How it works: the other thread sends a signal and then has all processors that run this process interrupted (membarrier(2)). A
// thread handles a pending signal before it executes anything else: after that interrupt, or when the system lets it run again.
// The handler jumps to the point. Only Linux has this call; elsewhere, and under ThreadSanitizer, which delays signals, nothing
// is taken.
//
// Owner: a team (team.h). Thread: begin, end and the point belong to the computing thread; one other thread takes and settles.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KIN_DELAYS_SIGNALS
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define KIN_DELAYS_SIGNALS
#endif

#if defined(__linux__) && !defined(KIN_DELAYS_SIGNALS)
#define KIN_INTERRUPTS
#include <setjmp.h>
#endif

typedef enum kin_computation {
    KIN_COMPUTES_NOTHING, // that could be taken
    KIN_COMPUTES,
    KIN_SLEEPS,
    KIN_STOPPED,
} kin_computation;

#ifdef KIN_INTERRUPTS

typedef struct kin_interruptible {
    _Alignas(64) atomic_int doing; // kin_computation
    int thread;                    // the system's number of the thread
    sigjmp_buf point;
} kin_interruptible;

// 0: go on; otherwise the computation that followed was taken. A macro, because the function that calls it must not return before
// the computation has ended.
#define KIN_INTERRUPTIBLE_POINT(x) sigsetjmp((x)->point, 0)

// Prepares the process. Call before the other functions.
void kin_interrupt_prepare(void);

// Makes x the calling thread's. Call once in the thread.
void kin_interruptible_open(kin_interruptible *x);

// Between these two calls the thread's computation can be taken. _end does not return if it was. What the thread looks at after
// _begin is newer than what the other thread had written before a kin_interrupt_stop that found nothing to take.
static inline void kin_interruptible_begin(kin_interruptible *x, kin_computation what) {
    atomic_store(&x->doing, what);
}
void kin_interruptible_end(kin_interruptible *x);

// After KIN_INTERRUPTIBLE_POINT has returned another number than 0: x can begin again.
void kin_interruptible_recover(kin_interruptible *x);

// True from when x's computation was taken until the thread has noticed it. Any thread.
static inline bool kin_interruptible_is_stopped(const kin_interruptible *x) {
    return atomic_load(&x->doing) == KIN_STOPPED;
}

// Takes x's computation. Returns what it was; KIN_COMPUTES_NOTHING: there was none to take. It has ended only when
// kin_interrupt_settle has returned.
kin_computation kin_interrupt_stop(kin_interruptible *x);
void kin_interrupt_settle(void);

#else

typedef struct kin_interruptible {
    char unused;
} kin_interruptible;

#define KIN_INTERRUPTIBLE_POINT(x) ((void)(x), 0)
static inline void kin_interrupt_prepare(void) {}
static inline void kin_interruptible_open(kin_interruptible *x) {
    (void)x;
}
static inline void kin_interruptible_begin(kin_interruptible *x, kin_computation what) {
    (void)x, (void)what;
}
static inline void kin_interruptible_end(kin_interruptible *x) {
    (void)x;
}
static inline void kin_interruptible_recover(kin_interruptible *x) {
    (void)x;
}
static inline kin_computation kin_interrupt_stop(kin_interruptible *x) {
    (void)x;
    return KIN_COMPUTES_NOTHING;
}
static inline void kin_interrupt_settle(void) {}
static inline bool kin_interruptible_is_stopped(const kin_interruptible *x) {
    (void)x;
    return false;
}

#endif
