// probe: measures the network between two devices of a lab: round trips, rate, and which devices answer a broadcast. It also
// measures what processors give to a device that computes for a moment and then waits, like one in a ring. It does not depend on
// kin. One end serves, the other asks; nothing is authenticated, so use it only in your own networks.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/median.h"

#define GROUP "239.255.75.78"
#define NS_PER_MS 1000000ull

enum {
    USAGE = 2,
    DATAGRAM_MAX = 1400,
    CHUNK = 256 << 10,
    PINGS_MAX = 100000,
    PING_EVERY_MS = 5,
    LOST_AFTER_MS = 1000,
    CALL_MS = 500,
    CONNECTIONS_MAX = 64,
    THREADS_MAX = 16,
    BURSTS_MAX = 1000,
    OPERATION_US = 100, // of work between two barriers, about the time of a matrix of a small layer
    REST_US = 23000,    // before a burst; grows a little each time, so that bursts begin anywhere in a period of a quota
    REST_STEP_US = 370,
    REST_STEPS = 16,
    WORK_ROUNDS = 2000000,
    WORK_BYTES = 128 << 20,
    READ_BYTES = 1 << 20,
};

static const char usage[] =
    "usage: probe serve PORT              answer the others\n"
    "       probe ping HOST PORT N         round trips in us: n,min,median,p99,max\n"
    "       probe send HOST PORT BYTES     bytes per second over TCP\n"
    "       probe call multicast|broadcast PORT   the addresses that answer\n"
    "       probe burst THREADS MS N       wall time in us of MS of work by each thread, after a rest:\n"
    "                                      n,min,median,p99,max\n"
    "       probe work N                   wall time in us of the same work on each processor, medians of N:\n"
    "                                      processor,in registers,in memory\n"
    "       probe read FILE N              wall time in us of a direct read of 1 MiB, after a rest: n,min,median,p99,max\n";

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) errno = EINVAL, fail(host);
    return a;
}

static int open_socket(int type) {
    const int one = 1, fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("cannot make a socket");
    if (type == SOCK_STREAM) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (type == SOCK_DGRAM) setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return fd;
}

static int bind_to(int fd, const char *port) {
    const struct sockaddr_in a = address("0.0.0.0", port);
    if (bind(fd, (const struct sockaddr *)&a, sizeof a)) fail("cannot listen");
    return fd;
}

// ---- serve: returns datagrams unchanged; a connection gets its number of bytes when its sender is done

static void echo(int fd) {
    char bytes[DATAGRAM_MAX];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    const ssize_t n = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length);
    if (n >= 0) sendto(fd, bytes, (size_t)n, 0, (const struct sockaddr *)&from, length);
}

// False if it ended.
static bool swallow(int fd, uint64_t *n_bytes) {
    static char bytes[CHUNK];
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0) *n_bytes += (uint64_t)n;
    if (n == 0 && write(fd, n_bytes, sizeof *n_bytes) != sizeof *n_bytes) fprintf(stderr, "probe: a sender left early\n");
    return n > 0;
}

_Noreturn static void serve(const char *port) {
    struct pollfd polled[2 + CONNECTIONS_MAX];
    uint64_t n_bytes[2 + CONNECTIONS_MAX] = {0};
    const struct ip_mreqn group = {.imr_multiaddr = address(GROUP, port).sin_addr};
    nfds_t n = 2;
    polled[0] = (struct pollfd){bind_to(open_socket(SOCK_DGRAM), port), POLLIN, 0};
    polled[1] = (struct pollfd){bind_to(open_socket(SOCK_STREAM), port), POLLIN, 0};
    if (setsockopt(polled[0].fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group)) fail("cannot join " GROUP);
    if (listen(polled[1].fd, 8)) fail("cannot listen");
    printf("serving\n");
    fflush(stdout);
    for (;;) {
        if (poll(polled, n, -1) < 0) fail("cannot wait");
        if (polled[0].revents) echo(polled[0].fd);
        if (polled[1].revents && n < 2 + CONNECTIONS_MAX) {
            polled[n] = (struct pollfd){accept(polled[1].fd, NULL, NULL), POLLIN, 0};
            if (polled[n].fd >= 0) n_bytes[n++] = 0;
        }
        for (nfds_t i = n; i-- > 2;) {
            if (!polled[i].revents || swallow(polled[i].fd, &n_bytes[i])) continue;
            close(polled[i].fd);
            polled[i] = polled[--n];
            n_bytes[i] = n_bytes[n];
        }
    }
}

// ---- ask

static void print_spread(double *us, int n) {
    const double median = kin_median(us, n);
    printf("%d,%.0f,%.0f,%.0f,%.0f\n", n, us[0], median, us[n * 99 / 100], us[n - 1]);
}

static bool answered(int fd, uint32_t number) {
    const uint64_t until = now_ns() + LOST_AFTER_MS * NS_PER_MS;
    for (uint64_t now; (now = now_ns()) < until;) {
        struct pollfd polled = {fd, POLLIN, 0};
        uint32_t got;
        if (poll(&polled, 1, (int)((until - now) / NS_PER_MS) + 1) > 0 && recv(fd, &got, sizeof got, 0) == sizeof got &&
            got == number)
            return true;
    }
    return false;
}

static int ping(const char *host, const char *port, int n) {
    static double us[PINGS_MAX];
    const struct sockaddr_in to = address(host, port);
    const int fd = open_socket(SOCK_DGRAM);
    int n_back = 0;
    if (n < 1 || n > PINGS_MAX) n = PINGS_MAX;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to)) fail(host);
    for (uint32_t i = 0; i < (uint32_t)n; i++) {
        const uint64_t begun = now_ns();
        if (send(fd, &i, sizeof i, 0) == sizeof i && answered(fd, i)) us[n_back++] = (double)(now_ns() - begun) / 1e3;
        usleep(PING_EVERY_MS * 1000);
    }
    if (n_back == 0) {
        printf("0,,,,\n");
        return 1;
    }
    print_spread(us, n_back);
    return n_back == n ? 0 : 1;
}

static int send_bytes(const char *host, const char *port, uint64_t n_bytes) {
    static char bytes[CHUNK];
    const struct sockaddr_in to = address(host, port);
    const int fd = open_socket(SOCK_STREAM);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to)) fail(host);
    const uint64_t begun = now_ns();
    for (uint64_t sent = 0; sent < n_bytes;) {
        const ssize_t n = write(fd, bytes, n_bytes - sent < CHUNK ? (size_t)(n_bytes - sent) : CHUNK);
        if (n <= 0) fail("cannot send");
        sent += (uint64_t)n;
    }
    uint64_t arrived = 0;
    if (shutdown(fd, SHUT_WR) || read(fd, &arrived, sizeof arrived) != sizeof arrived) fail("no receipt");
    printf("%.0f\n", (double)arrived / ((double)(now_ns() - begun) / 1e9));
    return arrived == n_bytes ? 0 : 1;
}

static int call(const char *how, const char *port) {
    const struct sockaddr_in to = address(strcmp(how, "multicast") == 0 ? GROUP : "255.255.255.255", port);
    const int fd = open_socket(SOCK_DGRAM);
    int n = 0;
    if (sendto(fd, "who", 3, 0, (const struct sockaddr *)&to, sizeof to) != 3) fail("cannot call");
    const uint64_t until = now_ns() + CALL_MS * NS_PER_MS;
    for (uint64_t now; (now = now_ns()) < until;) {
        struct pollfd polled = {fd, POLLIN, 0};
        if (poll(&polled, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0) break;
        char bytes[DATAGRAM_MAX], name[INET_ADDRSTRLEN];
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        if (recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length) < 0) continue;
        printf("%s\n", inet_ntop(AF_INET, &from.sin_addr, name, sizeof name));
        n++;
    }
    return n > 0 ? 0 : 1;
}

// ---- burst: work is counted in processor time, so the share of other programs is excluded, but not the delay that they cause

typedef struct burst {
    pthread_barrier_t meeting;
    uint64_t n_operations;
} burst;

static uint64_t used_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void *work(void *arg) {
    burst *b = arg;
    pthread_barrier_wait(&b->meeting);
    uint64_t until = used_ns();
    for (uint64_t i = 0; i < b->n_operations; i++) {
        until += OPERATION_US * 1000;
        while (used_ns() < until) {
        }
        pthread_barrier_wait(&b->meeting);
    }
    return NULL;
}

// Returns the time of a burst. Its threads are started before and wait at a barrier, whose cost counts.
static double burst_us(int n_threads, double ms) {
    burst b = {.n_operations = (uint64_t)(ms * 1000 / OPERATION_US + 0.5)};
    pthread_t threads[THREADS_MAX];
    pthread_barrier_init(&b.meeting, NULL, (unsigned)n_threads);
    for (int i = 1; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, work, &b)) fail("no thread");
    static int n_rests;
    usleep(REST_US + REST_STEP_US * (n_rests++ % REST_STEPS));
    const uint64_t begun = now_ns();
    work(&b);
    const double us = (double)(now_ns() - begun) / 1e3;
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&b.meeting);
    return us;
}

static int bursts(int n_threads, double ms, int n) {
    static double us[BURSTS_MAX];
    if (n_threads < 1 || n_threads > THREADS_MAX || n < 1 || n > BURSTS_MAX) errno = EINVAL, fail("burst");
    for (int i = 0; i < n; i++) us[i] = burst_us(n_threads, ms);
    print_spread(us, n);
    return 0;
}

// ---- work: always the same, in registers and in memory

typedef float lanes __attribute__((vector_size(64))); // vectors, as in matrix products

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static double
in_registers_us(void) {
    lanes a = {0}, b = a + 1, c = a + 2, d = a + 3;
    volatile float sink = 0;
    const uint64_t begun = now_ns();
    for (int i = 0; i < WORK_ROUNDS; i++) {
        a = a * 0.999f + 1, b = b * 0.999f + 1;
        c = c * 0.999f + 1, d = d * 0.999f + 1;
    }
    const double us = (double)(now_ns() - begun) / 1e3;
    a += b + c + d;
    sink = a[0] + a[15];
    (void)sink;
    return us;
}

static double in_memory_us(const uint64_t *memory) {
    enum { LINE = 64 / sizeof(uint64_t) };
    volatile uint64_t sink = 0;
    const uint64_t begun = now_ns();
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < WORK_BYTES / sizeof *memory; i += 4 * LINE)
        a += memory[i], b += memory[i + LINE], c += memory[i + 2 * LINE], d += memory[i + 3 * LINE];
    const double us = (double)(now_ns() - begun) / 1e3;
    sink = a + b + c + d;
    (void)sink;
    return us;
}

static int works(int n) {
    static double registers_us[BURSTS_MAX], memory_us[BURSTS_MAX];
    uint64_t *memory;
    if (n < 1 || n > BURSTS_MAX) errno = EINVAL, fail("work");
    if (posix_memalign((void **)&memory, 2 << 20, WORK_BYTES)) fail("no memory");
    madvise(memory, WORK_BYTES, MADV_HUGEPAGE); // otherwise the result depends on luck with pages
    memset(memory, 1, WORK_BYTES);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one)) continue; // this processor is not available
        for (int i = 0; i < n; i++) {
            registers_us[i] = in_registers_us();
            memory_us[i] = in_memory_us(memory);
        }
        printf("%d,%.0f,%.0f\n", cpu, kin_median(registers_us, n), kin_median(memory_us, n));
    }
    free(memory);
    return 0;
}

// ---- read: like a program that streams from a disk

static int read_directly(const char *path, int n) {
    static double us[BURSTS_MAX];
    void *to;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (n < 1 || n > BURSTS_MAX) errno = EINVAL, fail("read");
    if (fd < 0 || posix_memalign(&to, 4096, READ_BYTES)) fail(path);
    for (int i = 0; i < n; i++) {
        usleep(REST_US);
        const uint64_t begun = now_ns();
        if (pread(fd, to, READ_BYTES, (off_t)i * READ_BYTES) != READ_BYTES) errno = ENODATA, fail(path);
        us[i] = (double)(now_ns() - begun) / 1e3;
    }
    print_spread(us, n);
    free(to);
    close(fd);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(argv[2]);
    if (argc == 5 && strcmp(argv[1], "ping") == 0) return ping(argv[2], argv[3], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[1], "send") == 0) return send_bytes(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "call") == 0) return call(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "burst") == 0) return bursts(atoi(argv[2]), atof(argv[3]), atoi(argv[4]));
    if (argc == 3 && strcmp(argv[1], "work") == 0) return works(atoi(argv[2]));
    if (argc == 4 && strcmp(argv[1], "read") == 0) return read_directly(argv[2], atoi(argv[3]));
    fputs(usage, stderr);
    return USAGE;
}
