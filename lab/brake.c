// brake: makes the processors of some cgroups slower than they are, in small steps. Four times per millisecond it checks how much
// each group computed on a processor, and then occupies that processor for as long as a slower one would have taken in addition.
// So a millisecond of work is slowed down like a minute of it. The kernel's quota does not do that: it is enforced at the timer
// tick, every 4 ms on many kernels, and the first work after a rest is not slowed down.
//
// No other program gets the occupied time: a group at half speed uses twice its work. It is for labs in which one device computes
// at a time.
//
// One thread per processor, at the lowest real-time priority. All of them check at the same moments, so threads of a group that
// wait for each other are held together. Work is counted by perf events of the group (cgroup v2).
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_NS = 250000, // a check costs about 10 us of the processor: 4 %
    GROUPS_MAX = 64,
    PROCESSORS_MAX = 256,
    USAGE = 2,
};

static const char usage[] =
    "usage: brake GROUP SPEED [GROUP SPEED...]\n"
    "\n"
    "Until SIGTERM, each processor has SPEED of its own speed (0.1 to 1) for what runs in the cgroup GROUP, a\n"
    "folder of cgroup v2.\n";

typedef struct group {
    int counter;      // perf event: ns that the group computed on this processor
    uint64_t seen_ns; // value of the counter at the last check
    double more;      // additional time that a slower processor would need per ns
} group;

typedef struct processor {
    pthread_t thread;
    int number;
    group groups[GROUPS_MAX];
    int n_group;
} processor;

static processor processors[PROCESSORS_MAX];

_Noreturn static void fail(const char *what, const char *of) {
    fprintf(stderr, "brake: %s %s: %s\n", what, of, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns) {
    const struct timespec t = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static int counter_open(const char *dir, int number) {
    struct perf_event_attr what = {
        .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_CLOCK, .size = sizeof what, .exclude_idle = 1};
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail("no group", dir);
    const int counter = (int)syscall(SYS_perf_event_open, &what, fd, number, -1, PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC);
    if (counter < 0) fail("cannot count what runs in", dir);
    close(fd);
    return counter;
}

// Returns the time that the groups owe on this processor since the last check.
static uint64_t owed_ns(processor *p) {
    double owed = 0;
    for (int i = 0; i < p->n_group; i++) {
        group *g = &p->groups[i];
        uint64_t ns = 0;
        if (read(g->counter, &ns, sizeof ns) != sizeof ns) continue;
        owed += (double)(ns - g->seen_ns) * g->more;
        g->seen_ns = ns;
    }
    return (uint64_t)owed;
}

static void *hold(void *arg) {
    processor *p = arg;
    for (;;) {
        sleep_until((now_ns() / LOOK_NS + 1) * LOOK_NS);
        const uint64_t begun = now_ns(), owed = owed_ns(p);
        while (now_ns() - begun < owed) {
        }
    }
    return NULL;
}

static void add_group(const char *dir, const char *speed_text, int n_processor) {
    char *end;
    const double speed = strtod(speed_text, &end);
    if (*end || end == speed_text || !(speed >= 0.1 && speed <= 1)) errno = EINVAL, fail("no speed:", speed_text);
    for (int i = 0; i < n_processor; i++) {
        processor *p = &processors[i];
        if (p->n_group == GROUPS_MAX) errno = E2BIG, fail("too many groups:", dir);
        p->groups[p->n_group++] = (group){.counter = counter_open(dir, p->number), .more = 1 / speed - 1};
    }
}

static void start(processor *p) {
    pthread_attr_t attr;
    const struct sched_param priority = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)p->number, &here);
    pthread_attr_init(&attr);
    pthread_attr_setaffinity_np(&attr, sizeof here, &here);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
    pthread_attr_setschedparam(&attr, &priority);
    if ((errno = pthread_create(&p->thread, &attr, hold, p))) fail("no real-time thread on", "a processor");
    pthread_attr_destroy(&attr);
}

int main(int argc, char **argv) {
    cpu_set_t allowed;
    int n_processor = 0, signal;
    sigset_t ends;
    if (argc < 3 || argc % 2 == 0) {
        fputs(usage, stderr);
        return USAGE;
    }
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) fail("no list of", "processors");
    for (int i = 0; i < CPU_SETSIZE && n_processor < PROCESSORS_MAX; i++)
        if (CPU_ISSET((size_t)i, &allowed)) processors[n_processor++].number = i;
    for (int i = 1; i < argc; i += 2) add_group(argv[i], argv[i + 1], n_processor);
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) fail("cannot lock", "memory");
    for (int i = 0; i < n_processor; i++) start(&processors[i]);
    printf("holding\n");
    fflush(stdout);
    sigwait(&ends, &signal);
    return 0;
}
