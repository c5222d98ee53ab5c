// hog: a program that competes with others for memory, processors, disks and links, as a background program on a home machine
// does. Memory goes in a cycle: it waits, allocates step by step, holds, releases, and starts again. All other loads have a
// constant rate and a thread each (two for a connection), which ends with the program.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"

#define EXIT_USAGE 2
#define PAGE_BYTES 4096
#define BUFFER_BYTES (1 << 20)          // a sweep of the processor load, and the most that a disk or a link gets at once
#define WRITTEN_BYTES_MAX (256LL << 20) // the file that is written begins again at this size
#define LOADS_MAX 8
#define PERIOD_NS 10000000ull      // a rate is kept over this time
#define BEHIND_NS_MAX 100000000ull // what was missed in more than this time is not made up for

static const char usage[] =
    "usage: hog [option...]\n"
    "\n"
    "Takes memory in steps, touching every page, holds it, gives it back in the same steps; and ends. Other loads last as\n"
    "long; without --bytes, until the program is killed.\n"
    "\n"
    "  --bytes SIZE      in all (default: no memory)\n"
    "  --step SIZE       at a time (default: 16M)\n"
    "  --every-ms N      between steps (default: 100)\n"
    "  --wait-ms N       before each cycle (default: 5000)\n"
    "  --hold-ms N       between taking and giving (default: 5000)\n"
    "  --cycles N        (default: 1)\n"
    "  --trace FILE      CSV: ms since the start, bytes held\n"
    "\n"
    "  --cpu PERCENT     computes for this share of a processor's time (100: without a rest); may be repeated\n"
    "  --period-ms N     of the shares that follow: one burst in each (default: 16)\n"
    "  --read FILE@RATE  reads it from its disk, again and again, this many bytes per second\n"
    "  --write FILE@RATE writes it\n"
    "  --call HOST:PORT@RATE\n"
    "                    connects to a hog that serves, sends, and takes everything that it sends\n"
    "  --serve PORT@RATE sends to each hog that calls, one after the other, and takes everything that it sends\n";

typedef struct load load;
struct load {
    void *(*run)(void *load);
    char target[256]; // a file, HOST:PORT or PORT
    uint64_t rate;    // bytes per second
    int percent, period_ms;
    int fd; // file or connection
};

typedef struct options {
    uint64_t bytes, step;
    int every_ms, wait_ms, hold_ms, n_cycles;
    const char *trace;
    load loads[LOADS_MAX];
    int n_loads, period_ms;
} options;

typedef struct hog {
    const options *o;
    uint8_t *base; // [o->bytes] address space
    uint64_t held; // the part of it in use, from the start
    FILE *trace;   // NULL: none
    kin_time begun;
} hog;

static void sleep_ms(int ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0) {
    }
}

// ---- loads with a rate

static void sleep_until(kin_time when) {
    const kin_time now = kin_clock_now(), ns = when > now ? when - now : 0;
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0) {
    }
}

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// The work of a period is done even if another program delays it, as that of a video's frame.
static void *compute(void *argument) {
    const load *l = argument;
    static _Thread_local uint64_t words[BUFFER_BYTES / sizeof(uint64_t)];
    const uint64_t period = (uint64_t)l->period_ms * 1000000, work = period * (uint64_t)l->percent / 100;
    size_t at = 0;
    for (kin_time next = kin_clock_now();; next += period) {
        for (const uint64_t begun = thread_ns(); thread_ns() - begun < work;)
            for (int i = 0; i < 2048; i++, at = (at + 1) % (sizeof words / sizeof words[0]))
                words[at] = words[at] * 0x9e3779b97f4a7c15u + at;
        if (l->percent == 100) continue;
        if (kin_clock_now() > next + period + BEHIND_NS_MAX) next = kin_clock_now() - period;
        sleep_until(next + period);
    }
    return NULL;
}

typedef ssize_t transfer(int fd, void *buffer, size_t bytes);

// Moves l->rate bytes per second, until a transfer fails.
static void move(const load *l, transfer *once) {
    uint8_t *buffer = calloc(1, BUFFER_BYTES);
    if (!buffer) return;
    kin_time next = kin_clock_now();
    for (uint64_t owed = 0;; next += PERIOD_NS) {
        for (owed += l->rate * (PERIOD_NS / 1000) / 1000000; owed > 0;) {
            const ssize_t n = once(l->fd, buffer, owed < BUFFER_BYTES ? owed : BUFFER_BYTES);
            if (n <= 0) {
                free(buffer);
                return;
            }
            owed -= (uint64_t)n;
        }
        if (kin_clock_now() > next + BEHIND_NS_MAX) next = kin_clock_now();
        sleep_until(next + PERIOD_NS);
    }
}

static ssize_t read_once(int fd, void *buffer, size_t bytes) {
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const ssize_t n = read(fd, buffer, bytes);
    if (n == 0) return lseek(fd, 0, SEEK_SET) == 0 ? read(fd, buffer, bytes) : -1;
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(fd, at, n, POSIX_FADV_DONTNEED); // so that the next time reads from the disk again
#else
    (void)at;
#endif
    return n;
}
static ssize_t write_once(int fd, void *buffer, size_t bytes) {
    if (lseek(fd, 0, SEEK_CUR) >= WRITTEN_BYTES_MAX) lseek(fd, 0, SEEK_SET);
    return write(fd, buffer, bytes);
}
static ssize_t write_socket(int fd, void *buffer, size_t bytes) {
    return write(fd, buffer, bytes);
}

static void *read_file(void *l) {
    move(l, read_once);
    return NULL;
}
static void *write_file(void *l) {
    move(l, write_once);
    return NULL;
}

static void *drain(void *l) {
    uint8_t *buffer = malloc(BUFFER_BYTES);
    while (buffer && recv(((load *)l)->fd, buffer, BUFFER_BYTES, 0) > 0) {
    }
    free(buffer);
    return NULL;
}

// Sends and takes until the other side ends; closes the connection.
static void converse(load *l) {
    pthread_t drainer;
    if (pthread_create(&drainer, NULL, drain, l) != 0) return;
    if (l->rate > 0) move(l, write_socket);
    pthread_join(drainer, NULL);
    close(l->fd);
}
static void *call(void *l) {
    converse(l);
    return NULL;
}
static void *serve(void *argument) {
    const load *l = argument;
    for (load one = *l; (one.fd = accept(l->fd, NULL, NULL)) >= 0;) converse(&one);
    return NULL;
}

// Returns 0, or -1. A hog that serves may start at the same time, so a refusal is final only after 3 s.
static int connect_to(load *l, const struct addrinfo *at) {
    static const struct timespec pause = {.tv_nsec = 50000000};
    for (int i = 0;; i++) {
        l->fd = socket(at->ai_family, at->ai_socktype, 0);
        if (l->fd < 0 || connect(l->fd, at->ai_addr, at->ai_addrlen) == 0) return l->fd < 0 ? -1 : 0;
        if (errno != ECONNREFUSED || i == 60) return -1;
        close(l->fd);
        nanosleep(&pause, NULL);
    }
}

static int listen_at(load *l, const struct addrinfo *at) {
    const int one = 1;
    l->fd = socket(at->ai_family, at->ai_socktype, 0);
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return l->fd < 0 || bind(l->fd, at->ai_addr, at->ai_addrlen) != 0 ? -1 : listen(l->fd, 1);
}

// Opens l->fd: a connection to HOST:PORT, or a socket that listens on PORT.
static int open_socket(load *l, kin_err *err) {
    char *port = strrchr(l->target, ':');
    const bool listens = l->run == serve;
    if (!listens && !port) return kin_err_set(err, "'%s' is not HOST:PORT", l->target);
    if (!listens) *port++ = 0;
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0};
    struct addrinfo *at;
    if (getaddrinfo(listens ? NULL : l->target, listens ? l->target : port, &hints, &at) != 0)
        return kin_err_set(err, "there is no address '%s'", l->target);
    const int bad = listens ? listen_at(l, at) : connect_to(l, at);
    freeaddrinfo(at);
    return bad ? kin_err_set(err, "%s: %s", l->target, strerror(errno)) : 0;
}
static int open_load(load *l, kin_err *err) {
    if (l->run == call || l->run == serve) return open_socket(l, err);
    if (l->run == compute) return 0;
    l->fd = l->run == read_file ? open(l->target, O_RDONLY | O_CLOEXEC) : open(l->target, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return l->fd >= 0 ? 0 : kin_err_set(err, "%s: %s", l->target, strerror(errno));
}

static int start_loads(options *o, kin_err *err) {
    signal(SIGPIPE, SIG_IGN); // a connection that the other side closes ends its load only
    for (int i = 0; i < o->n_loads; i++) {
        pthread_t thread;
        if (open_load(&o->loads[i], err) != 0) return KIN_FAIL;
        if (pthread_create(&thread, NULL, o->loads[i].run, &o->loads[i]) != 0) return kin_err_set(err, "no thread for a load");
        pthread_detach(thread);
    }
    return 0;
}

// ---- memory

static void note(const hog *h) {
    if (!h->trace) return;
    fprintf(h->trace, "%.0f,%llu\n", kin_clock_ms(h->begun, kin_clock_now()), (unsigned long long)h->held);
    fflush(h->trace);
}

// Writes different bytes to every page, so that none can be merged or compressed.
static void touch(uint8_t *at, uint64_t bytes, uint64_t seed) {
    for (uint64_t i = 0; i < bytes; i += PAGE_BYTES) {
        uint64_t value = (seed + i) * 0x9e3779b97f4a7c15u;
        memcpy(at + i, &value, sizeof value);
    }
}

static void allocate_step(hog *h) {
    while (h->held < h->o->bytes) {
        uint64_t left = h->o->bytes - h->held, n = left < h->o->step ? left : h->o->step;
        touch(h->base + h->held, n, h->held);
        h->held += n;
        note(h);
        sleep_ms(h->o->every_ms);
    }
}

static void give(hog *h) {
    while (h->held > 0) {
        uint64_t n = h->held < h->o->step ? h->held : h->o->step;
        h->held -= n;
        madvise(h->base + h->held, n, MADV_DONTNEED);
        note(h);
        sleep_ms(h->o->every_ms);
    }
}

static int cycle_memory(const options *o, kin_err *err) {
    hog h = {.o = o, .begun = kin_clock_now()};
    h.base = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h.base == MAP_FAILED) return kin_err_set(err, "no address space for %llu bytes", (unsigned long long)o->bytes);
    if (o->trace && !(h.trace = fopen(o->trace, "w"))) {
        munmap(h.base, o->bytes);
        return kin_err_set(err, "%s cannot be written", o->trace);
    }
    if (h.trace) fprintf(h.trace, "ms,bytes\n");
    note(&h);
    for (int i = 0; i < o->n_cycles; i++) {
        sleep_ms(o->wait_ms);
        allocate_step(&h);
        sleep_ms(o->hold_ms);
        give(&h);
    }
    if (h.trace) fclose(h.trace);
    munmap(h.base, o->bytes);
    return 0;
}

static int run(options *o, kin_err *err) {
    if (o->bytes == 0 && o->n_loads == 0) return kin_err_set(err, "there is nothing to do: see hog --help");
    if (start_loads(o, err) != 0) return KIN_FAIL;
    if (o->bytes > 0) return cycle_memory(o, err);
    for (;;) pause();
}

// ---- options

enum {
    OPT_BYTES = 256,
    OPT_STEP,
    OPT_EVERY,
    OPT_WAIT,
    OPT_HOLD,
    OPT_CYCLES,
    OPT_TRACE,
    OPT_CPU,
    OPT_PERIOD,
    OPT_READ,
    OPT_WRITE,
    OPT_CALL,
    OPT_SERVE
};

static const struct option all_options[] = {
    {"bytes", required_argument, NULL, OPT_BYTES},
    {"step", required_argument, NULL, OPT_STEP},
    {"every-ms", required_argument, NULL, OPT_EVERY},
    {"wait-ms", required_argument, NULL, OPT_WAIT},
    {"hold-ms", required_argument, NULL, OPT_HOLD},
    {"cycles", required_argument, NULL, OPT_CYCLES},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"cpu", required_argument, NULL, OPT_CPU},
    {"period-ms", required_argument, NULL, OPT_PERIOD},
    {"read", required_argument, NULL, OPT_READ},
    {"write", required_argument, NULL, OPT_WRITE},
    {"call", required_argument, NULL, OPT_CALL},
    {"serve", required_argument, NULL, OPT_SERVE},
    {"help", no_argument, NULL, 'h'},
    {0},
};

// Parses a size in whole pages, at least one.
static int parse_size(uint64_t *bytes, kin_err *err) {
    if (kin_size_parse(optarg, bytes, err) != 0) return KIN_FAIL;
    *bytes = (*bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return *bytes > 0 ? 0 : kin_err_set(err, "'%s' is no memory at all", optarg);
}

static int parse_count(int *value, kin_err *err) {
    char *end;
    long n = strtol(optarg, &end, 10);
    if (end == optarg || *end || n < 0 || n > 99999999) return kin_err_set(err, "'%s' is not a count", optarg);
    *value = (int)n;
    return 0;
}

// Adds a load of optarg, TARGET@RATE, or a share of a processor.
static int add_load(options *o, void *(*run)(void *), kin_err *err) {
    if (o->n_loads == LOADS_MAX) return kin_err_set(err, "more than %d loads", LOADS_MAX);
    load *l = &o->loads[o->n_loads++];
    *l = (load){.run = run, .period_ms = o->period_ms, .fd = -1};
    if (run == compute) {
        if (parse_count(&l->percent, err) != 0) return KIN_FAIL;
        return l->percent > 0 && l->percent <= 100 && l->period_ms > 0
                   ? 0
                   : kin_err_set(err, "'%s' is not a share of a processor in percent", optarg);
    }
    const char *at = strrchr(optarg, '@');
    if (!at || at == optarg || (size_t)(at - optarg) >= sizeof l->target)
        return kin_err_set(err, "'%s' is not TARGET@RATE", optarg);
    memcpy(l->target, optarg, (size_t)(at - optarg));
    return kin_size_parse(at + 1, &l->rate, err);
}

static int apply(options *o, int opt, kin_err *err) {
    switch (opt) {
    case OPT_BYTES: return parse_size(&o->bytes, err);
    case OPT_STEP: return parse_size(&o->step, err);
    case OPT_EVERY: return parse_count(&o->every_ms, err);
    case OPT_WAIT: return parse_count(&o->wait_ms, err);
    case OPT_HOLD: return parse_count(&o->hold_ms, err);
    case OPT_CYCLES: return parse_count(&o->n_cycles, err);
    case OPT_TRACE: o->trace = optarg; return 0;
    case OPT_CPU: return add_load(o, compute, err);
    case OPT_PERIOD: return parse_count(&o->period_ms, err);
    case OPT_READ: return add_load(o, read_file, err);
    case OPT_WRITE: return add_load(o, write_file, err);
    case OPT_CALL: return add_load(o, call, err);
    case OPT_SERVE: return add_load(o, serve, err);
    default: return kin_err_set(err, "see hog --help");
    }
}

int main(int argc, char **argv) {
    options o = {.step = 16 << 20, .every_ms = 100, .wait_ms = 5000, .hold_ms = 5000, .n_cycles = 1, .period_ms = 16};
    kin_err err;
    for (int opt; (opt = getopt_long(argc, argv, "h", all_options, NULL)) != -1;) {
        if (opt == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (apply(&o, opt, &err) == 0) continue;
        fprintf(stderr, "hog: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "hog: what is '%s'?\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (run(&o, &err) == 0) return 0;
    fprintf(stderr, "hog: %s\n", err.text);
    return 1;
}
