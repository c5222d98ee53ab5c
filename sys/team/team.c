#include "sys/team/team.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "sys/team/system.h"
#include "sys/team/team_impl.h"

enum {
    SPIN_NS = 50000, // how long a thread spins before it sleeps: a step takes 5 to 100 us
    LOOKS = 32,      // at the value that a thread waits for, between two looks at the clock
    LATE_NS = 15000, // a chunk of another thread that takes longer, and longer than two of this thread's, is computed again;
                     // and a helper that leaves a job later after its end loses its computation
    BEHIND = 2,      // the last chunks of a step, so many for each thread, are not taken ahead: a slow thread would hold them
};

enum { TAKEN, PUBLISHING, DONE }; // progress of a chunk, in its mark

// A thread of the team, while it computes.
typedef struct member {
    int i;
    uint8_t *result;   // [KIN_TEAM_RESULT]
    uint64_t chunk_ns; // that its last chunk took, of a step that repeats
    kin_interruptible *own;
} member;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// ---- signals

// A thread that goes to sleep counts itself before it looks at the value again, and set_signal looks at the count after it has
// changed the value: no thread sleeps on.
static void set_signal(kin_team_signal *s, int value) {
    atomic_store(&s->value, value);
    if (atomic_load(&s->n_asleep) > 0) kin_futex_wake(&s->value);
}

static void sleep_while(kin_team_signal *s, int old) {
    atomic_fetch_add(&s->n_asleep, 1);
    while (atomic_load(&s->value) == old) kin_futex_wait(&s->value, old);
    atomic_fetch_sub(&s->n_asleep, 1);
}

static bool spin_while(kin_team_signal *s, int old, kin_time until) {
    do {
        for (int i = 0; i < LOOKS; i++, relax())
            if (atomic_load_explicit(&s->value, memory_order_acquire) != old) return true;
    } while (kin_clock_now() < until);
    return false;
}

static int wait_change(kin_team_signal *s, int old) {
    if (!spin_while(s, old, kin_clock_now() + SPIN_NS)) sleep_while(s, old);
    return atomic_load_explicit(&s->value, memory_order_acquire);
}

// The same for a helper in a job. The end of the job does not wait until the system lets this thread run and see it.
static bool spin_in_job(kin_team *t, int step, uint64_t ns, const member *m) {
    kin_interruptible_begin(m->own, KIN_COMPUTES);
    const bool changed = spin_while(&t->current, step, kin_clock_now() + ns);
    kin_interruptible_end(m->own);
    return changed;
}

static void sleep_in_job(kin_team *t, int step, const member *m) {
    atomic_fetch_add(&t->current.n_asleep, 1);
    kin_interruptible_begin(m->own, KIN_SLEEPS);
    while (atomic_load(&t->current.value) == step) kin_futex_wait(&t->current.value, step);
    kin_interruptible_end(m->own); // the thread that ends this thread's sleep counts it as awake
    atomic_fetch_sub(&t->current.n_asleep, 1);
}

// ---- steps

static void mark_chunks(kin_team *t, kin_team_state *s) {
    s->tag = ++t->tag;
    for (int i = 0; i < s->n_chunks; i++) atomic_store_explicit(&t->marks[i], s->tag << 2 | TAKEN, memory_order_relaxed);
}

// Computes a step that other threads would not shorten: they need half a microsecond to notice it.
static void compute_alone(const kin_team *t, int step, const kin_team_step *plan) {
    _Alignas(16) uint8_t state[KIN_TEAM_STATE];
    kin_team_chunk c = {.step = step, .state = state, .is_new = true};
    for (; c.i < plan->n_chunks; c.i++, c.is_new = false) {
        c.next = plan->claims_ahead && c.i + 1 < plan->n_chunks ? c.i + 1 : -1;
        t->job.compute(t->job.user, &c);
    }
}

// Begins the first step from `step` on that is for all threads, after it has computed those before it, or ends the job.
static void begin_step(kin_team *t, int step) {
    for (; step < t->job.n_steps; step++) {
        if (t->job.stops && t->job.stops(t->job.user)) {
            atomic_store(&t->stopped, true);
            step = t->job.n_steps;
            break;
        }
        kin_team_step plan = t->job.plan(t->job.user, step);
        const bool repeats =
            plan.n_chunks > 0 && plan.n_chunks <= KIN_TEAM_MARKS && plan.result_bytes > 0 && plan.result_bytes <= KIN_TEAM_RESULT;
        if (t->job.n_threads == 1 || (plan.n_chunks <= 1 && !repeats)) {
            compute_alone(t, step, &plan);
            continue;
        }
        kin_team_state *s = &t->steps[step];
        s->n_chunks = plan.n_chunks;
        s->claims_ahead = plan.claims_ahead;
        s->repeats = repeats;
        if (s->repeats) mark_chunks(t, s);
        atomic_store_explicit(&s->n_done, 0, memory_order_relaxed);
        atomic_store_explicit(&s->next, 0, memory_order_relaxed);
        break;
    }
    set_signal(&t->current, step);
}

static void finish_chunk(kin_team *t, int step) {
    kin_team_state *s = &t->steps[step];
    int n_chunks = s->n_chunks; // the last chunk's end is that of *s
    if (atomic_fetch_add(&s->n_done, 1) + 1 == n_chunks) begin_step(t, step + 1);
}

// The first thread that ends a chunk publishes its result.
static void publish(kin_team *t, const kin_team_state *s, const kin_team_chunk *c) {
    unsigned taken = s->tag << 2 | TAKEN;
    if (!atomic_compare_exchange_strong(&t->marks[c->i], &taken, s->tag << 2 | PUBLISHING)) return;
    t->job.publish(t->job.user, c);
    atomic_store(&t->marks[c->i], s->tag << 2 | DONE);
    finish_chunk(t, c->step);
}

static int claim_chunk(kin_team_state *s) {
    return atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
}

// Computes a chunk of a step that repeats. Returns false if the step is over.
static bool compute_result(kin_team *t, const kin_team_chunk *c, const member *m) {
    kin_interruptible_begin(m->own, KIN_COMPUTES);
    const bool goes_on = atomic_load(&t->current.value) == c->step;
    if (goes_on) t->job.compute(t->job.user, c);
    kin_interruptible_end(m->own);
    return goes_on;
}

// Computes chunks of a step until all are taken.
static void compute_chunks(kin_team *t, kin_team_chunk *c, member *m) {
    kin_team_state *s = &t->steps[c->step];
    c->is_new = true;
    c->result = s->repeats ? m->result : NULL;
    for (int i = claim_chunk(s), next; i < s->n_chunks; i = next < 0 ? claim_chunk(s) : next) {
        next = s->claims_ahead && i + BEHIND * t->job.n_threads < s->n_chunks ? claim_chunk(s) : -1;
        c->i = i;
        c->next = next < s->n_chunks ? next : -1;
        if (s->repeats) {
            const kin_time begun = kin_clock_now();
            if (!compute_result(t, c, m)) return;
            m->chunk_ns = kin_clock_now() - begun;
            publish(t, s, c);
        } else {
            t->job.compute(t->job.user, c);
            finish_chunk(t, c->step);
        }
        c->is_new = false;
    }
}

// Computes the chunks that other threads have taken and not finished, beginning with different ones in each thread.
static void compute_again(kin_team *t, kin_team_chunk *c, const member *m) {
    const kin_team_state *s = &t->steps[c->step];
    c->next = -1;
    for (int k = 0; k < s->n_chunks; k++) {
        c->i = (k + m->i) % s->n_chunks;
        if (atomic_load(&t->marks[c->i]) != (s->tag << 2 | TAKEN)) continue;
        if (!compute_result(t, c, m)) return;
        c->is_new = false;
        publish(t, s, c);
    }
}

// Waits until a step is over. Returns the next one.
static int wait_step(kin_team *t, kin_team_chunk *c, const member *m) {
    const kin_team_state *s = &t->steps[c->step];
    const uint64_t usual = 2 * m->chunk_ns;
    if (s->repeats && !spin_in_job(t, c->step, usual > LATE_NS ? usual : LATE_NS, m)) compute_again(t, c, m);
    if (!spin_in_job(t, c->step, SPIN_NS, m)) sleep_in_job(t, c->step, m);
    return atomic_load_explicit(&t->current.value, memory_order_acquire);
}

// Two threads of a team that share a processor gain nothing from being two, but the system leaves them there as long as each
// processor has work.
static void leave_shared_cpu(kin_team *t, const member *m) {
    const int cpu = kin_thread_cpu();
    bool shares = false;
    if (m->i >= KIN_TEAM_PLACED) return;
    for (int i = 0; i < m->i && cpu >= 0; i++) shares |= atomic_load_explicit(&t->cpus[i], memory_order_relaxed) == cpu;
    if (shares) kin_thread_avoid_cpus(t->cpus, m->i);
    atomic_store_explicit(&t->cpus[m->i], kin_thread_cpu(), memory_order_relaxed);
}

static void work(kin_team *t, member *m) {
    m->result = t->results + (size_t)m->i * KIN_TEAM_RESULT;
    _Alignas(16) uint8_t state[KIN_TEAM_STATE];
    kin_team_chunk c = {.state = state};
    c.step = atomic_load_explicit(&t->current.value, memory_order_acquire);
    while (c.step < t->job.n_steps) {
        compute_chunks(t, &c, m);
        c.step = wait_step(t, &c, m);
    }
}

// ---- jobs

// Returns false if the job ended without this thread, which then is not inside any more.
static bool join_job(kin_team *t, member *m) {
    if (KIN_INTERRUPTIBLE_POINT(m->own) != 0) {
        kin_interruptible_recover(m->own);
        return false;
    }
    if (m->i < t->job.n_threads) work(t, m);
    return true;
}

void kin_team_help(kin_team *t, int i) {
    member m = {.i = i, .own = t->members ? &t->members[i] : NULL};
    kin_interruptible_open(m.own);
    for (int seen = 0;;) {
        for (int width; (width = atomic_load(&t->width.value)) <= i;) sleep_while(&t->width, width);
        seen = wait_change(&t->generation, seen);
        if (seen == KIN_TEAM_CLOSES) return;
        leave_shared_cpu(t, &m);
        atomic_fetch_add(&t->inside.value, 1);
        if (atomic_load(&t->is_open) && !join_job(t, &m)) continue;
        if (atomic_fetch_sub(&t->inside.value, 1) == 1 && atomic_load(&t->inside.n_asleep) > 0) kin_futex_wake(&t->inside.value);
    }
}

// Calls the helpers; release_helpers() waits until the last one has left the job.
static void call_helpers(kin_team *t) {
    atomic_store(&t->is_open, true);
    if (atomic_load(&t->width.value) != t->job.n_threads) set_signal(&t->width, t->job.n_threads);
    set_signal(&t->generation, (atomic_load(&t->generation.value) + 1) & INT_MAX);
}

// Takes their computations from helpers that do not leave the job: the system may not let them run for long (a CPU quota, a
// busier program).
static void interrupt_helpers(kin_team *t) {
    int n = 0;
    for (int i = 1; i < t->job.n_threads && t->members; i++) {
        const kin_computation what = kin_interrupt_stop(&t->members[i]);
        n += what != KIN_COMPUTES_NOTHING;
        if (what == KIN_SLEEPS) atomic_fetch_sub(&t->current.n_asleep, 1);
    }
    if (n == 0) return;
    kin_interrupt_settle();
    atomic_fetch_sub(&t->inside.value, n);
}

static bool all_left(kin_team *t) {
    const kin_time until = kin_clock_now() + LATE_NS;
    for (int n; (n = atomic_load(&t->inside.value)) > 0;)
        if (!spin_while(&t->inside, n, until)) return false;
    return true;
}

static void release_helpers(kin_team *t) {
    atomic_store(&t->is_open, false);
    if (all_left(t)) return;
    interrupt_helpers(t);
    for (int n; (n = atomic_load(&t->inside.value)) > 0;) wait_change(&t->inside, n);
}

bool kin_team_run(kin_team *t, const kin_team_job *job) {
    kin_assert(job->n_steps <= t->cap_steps && job->n_threads >= 0 && job->n_threads <= t->most_threads);
    member m = {.own = t->members};
    t->job = *job;
    if (t->job.n_threads == 0) t->job.n_threads = t->most_threads;
    atomic_store(&t->stopped, false);
    begin_step(t, 0);
    const bool has_helpers = t->job.n_threads > 1 && atomic_load(&t->current.value) < t->job.n_steps;
    leave_shared_cpu(t, &m);
    if (has_helpers) call_helpers(t);
    work(t, &m);
    if (has_helpers) release_helpers(t);
    return !atomic_load(&t->stopped);
}

void kin_team_rest(kin_team *t) {
    for (int i = 1; i < t->most_threads && t->members; i++)
        while (kin_interruptible_is_stopped(&t->members[i])) kin_thread_yield();
}

int kin_team_reserve(kin_team *t, int n_steps, kin_err *err) {
    if (n_steps <= t->cap_steps) return 0;
    kin_team_state *steps = aligned_alloc(_Alignof(kin_team_state), (size_t)n_steps * sizeof *steps);
    if (!steps) return kin_err_set(err, "out of memory");
    free(t->steps);
    t->steps = steps;
    t->cap_steps = n_steps;
    return 0;
}

int kin_team_size(const kin_team *t) {
    return t->most_threads;
}
