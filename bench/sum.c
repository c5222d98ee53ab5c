// sum: measures how long the devices of a group take to add up their parts.
//
//   sum                          in one process: a thread for each device, TLS over socket pairs
//   sum RANK ADDRESS ADDRESS...  over a network: this device's rank, from 0, among the devices with these IPv4 addresses; start
//                                it on all of them. The first one prints the times, and the round trip to each other one
//
// In one process it measures the cost of a sum without the network: encrypting, system calls, waking, adding. With more threads
// than processors it is mostly waking.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "testkit/group_mesh.h"

enum { N_SUMS = 400, WARM_UP = 40, MAX_RANKS = 4, MAX_VALUES = 8192, PORT = 7713, N_TRIES = 1000, TRY_US = 10000 };

static const char *const names[KIN_PROTO_ALLREDUCE_N] = {"mesh", "star", "tree", "ring"};

typedef struct device {
    kin_exchange *exchange;
    uint32_t epoch;
    int n_values;
    double us[N_SUMS];
    kin_err err;
    pthread_t thread;
} device;

static void *work(void *arg) {
    device *d = arg;
    static const float zeros[MAX_VALUES];
    float x[MAX_VALUES];
    kin_sum sum = kin_exchange_sum(d->exchange);
    kin_exchange_use(d->exchange, d->epoch);
    for (int i = -WARM_UP; i < N_SUMS; i++) {
        memcpy(x, zeros, sizeof x);
        sum.begin(sum.user, (uint64_t)(i + WARM_UP + 1), 0);
        kin_time begun = kin_clock_now();
        if (sum.add(sum.user, x, 1, d->n_values, &d->err) != 0) return arg;
        if (i >= 0) d->us[i] = (double)(kin_clock_now() - begun) / 1e3;
    }
    return NULL;
}

static void print(device *d, const char *name, int n_ranks) {
    printf("%-6s %d devices, %5d values: %7.1f us\n", name, n_ranks, d->n_values, kin_median(d->us, N_SUMS));
    fflush(stdout);
}

// ---- in one process

static int measure(int n, kin_proto_allreduce variant, int n_values) {
    static uint32_t epoch = 0;
    static device devices[MAX_RANKS];
    kin_exchange *exchanges[MAX_RANKS];
    kin_exchange_place place = {.epoch = ++epoch, .n_ranks = n, .allreduce = variant};
    kin_err err;
    void *failed = NULL;
    for (int i = 0; i < n; i++) {
        if (kin_exchange_open(&exchanges[i], &(kin_exchange_options){0}, &err) != 0) return KIN_FAIL;
        devices[i].exchange = exchanges[i];
        devices[i].epoch = epoch;
        devices[i].n_values = n_values;
    }
    if (kin_group_mesh_enter(exchanges, &place, &err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) pthread_create(&devices[i].thread, NULL, work, &devices[i]);
    for (int i = 0; i < n; i++) {
        void *result;
        pthread_join(devices[i].thread, &result);
        if (result) failed = result;
    }
    if (!failed) print(&devices[0], names[variant], n);
    for (int i = 0; i < n; i++) kin_exchange_close(exchanges[i]);
    return failed ? KIN_FAIL : 0;
}

static int measure_all(void) {
    for (int n = 2; n <= MAX_RANKS; n++) {
        for (int variant = 0; variant < KIN_PROTO_ALLREDUCE_N; variant++) {
            for (int n_values = 2048; n_values <= MAX_VALUES; n_values *= 2) {
                if (measure(n, variant, n_values) != 0) return KIN_FAIL;
            }
        }
    }
    return 0;
}

// ---- over a network

typedef struct ranks {
    int rank, n;
    struct sockaddr_in at[KIN_SHARE_RANKS];
    int fd[KIN_SHARE_RANKS]; // -1: this device
} ranks;

static int parse(ranks *r, int argc, char **argv, kin_err *err) {
    *r = (ranks){.rank = atoi(argv[1]), .n = argc - 2};
    if (r->n < 2 || r->n > KIN_SHARE_RANKS || r->rank < 0 || r->rank >= r->n)
        return kin_err_set(err, "usage: sum [RANK ADDRESS ADDRESS...]");
    for (int i = 0; i < r->n; i++) {
        r->fd[i] = -1;
        r->at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
        if (inet_pton(AF_INET, argv[i + 2], &r->at[i].sin_addr) != 1)
            return kin_err_set(err, "%s is no IPv4 address", argv[i + 2]);
    }
    return 0;
}

static int send_all(int fd, const void *bytes, size_t n, kin_err *err) {
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : kin_err_set(err, "cannot send");
}

static int receive_byte(int fd, uint8_t *byte, kin_err *err) {
    return recv(fd, byte, 1, MSG_WAITALL) == 1 ? 0 : kin_err_set(err, "a device has ended");
}

// Connects to the devices before this one, which may not be listening yet.
static int dial(ranks *r, int to, kin_err *err) {
    uint8_t rank = (uint8_t)r->rank;
    for (int i = 0; i < N_TRIES; i++, usleep(TRY_US)) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&r->at[to], sizeof r->at[to]) == 0) {
            r->fd[to] = fd;
            return send_all(fd, &rank, 1, err);
        }
        if (fd >= 0) close(fd);
    }
    return kin_err_set(err, "device %d does not answer", to);
}

// Accepts connections of the devices after this one.
static int listen_for(ranks *r, kin_err *err) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0), rc = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&r->at[r->rank], sizeof r->at[0]) != 0 || listen(fd, KIN_SHARE_RANKS) != 0)
        rc = kin_err_set(err, "cannot listen");
    for (int i = r->rank + 1; i < r->n && rc == 0; i++) {
        uint8_t from = 0;
        int came = accept(fd, NULL, NULL);
        rc = came < 0 ? kin_err_set(err, "cannot accept") : receive_byte(came, &from, err);
        if (rc == 0 && (from <= r->rank || from >= r->n || r->fd[from] >= 0)) rc = kin_err_set(err, "two have one rank");
        if (rc == 0) r->fd[from] = came;
    }
    close(fd);
    return rc;
}

static int connect_all(ranks *r, kin_err *err) {
    int one = 1;
    for (int i = 0; i < r->rank; i++) {
        if (dial(r, i, err) != 0) return KIN_FAIL;
    }
    if (listen_for(r, err) != 0) return KIN_FAIL;
    for (int i = 0; i < r->n; i++) {
        if (r->fd[i] >= 0) setsockopt(r->fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return 0;
}

// Times a byte and its answer, between plain sockets whose readers sleep.
static int measure_round_trip(const ranks *r, int to, kin_err *err) {
    double us[N_SUMS];
    uint8_t byte = 0;
    for (int i = -WARM_UP; i < N_SUMS; i++) {
        kin_time begun = kin_clock_now();
        if (send_all(r->fd[to], &byte, 1, err) != 0 || receive_byte(r->fd[to], &byte, err) != 0) return KIN_FAIL;
        if (i >= 0) us[i] = (double)(kin_clock_now() - begun) / 1e3;
    }
    printf("round trip to device %d: %7.1f us\n", to, kin_median(us, N_SUMS));
    return 0;
}

static int answer_round_trips(const ranks *r, kin_err *err) {
    uint8_t byte;
    for (int i = 0; i < N_SUMS + WARM_UP; i++) {
        if (receive_byte(r->fd[0], &byte, err) != 0 || send_all(r->fd[0], &byte, 1, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Gives the connections away: each measurement needs its own.
static int measure_over_network(ranks *r, kin_proto_allreduce variant, int n_values, kin_err *err) {
    static uint32_t epoch = 0;
    static device d;
    const kin_exchange_place place = {.epoch = ++epoch, .rank = r->rank, .n_ranks = r->n, .allreduce = variant};
    if (connect_all(r, err) != 0 || kin_exchange_open(&d.exchange, &(kin_exchange_options){0}, err) != 0) return KIN_FAIL;
    kin_exchange_enter(d.exchange, &place);
    for (int i = 0; i < r->n; i++) {
        kin_tls *tls;
        if (r->fd[i] < 0) continue;
        if (kin_group_mesh_shake_hands(r->fd[i], i < r->rank, &tls, err) != 0) return KIN_FAIL;
        kin_exchange_give(d.exchange, epoch, i, r->fd[i], tls);
        r->fd[i] = -1;
    }
    d.epoch = epoch;
    d.n_values = n_values;
    if (work(&d)) {
        *err = d.err;
        return KIN_FAIL;
    }
    if (r->rank == 0) print(&d, names[variant], r->n);
    kin_exchange_close(d.exchange);
    return 0;
}

static int measure_all_over_network(ranks *r, kin_err *err) {
    if (connect_all(r, err) != 0) return KIN_FAIL;
    for (int i = 1; i < r->n; i++) {
        if (r->rank == 0 && measure_round_trip(r, i, err) != 0) return KIN_FAIL;
        if (r->rank == i && answer_round_trips(r, err) != 0) return KIN_FAIL;
    }
    for (int i = 0; i < r->n; i++) {
        if (r->fd[i] >= 0) close(r->fd[i]);
        r->fd[i] = -1;
    }
    for (int variant = 0; variant < KIN_PROTO_ALLREDUCE_N; variant++) {
        for (int n_values = 2048; n_values <= MAX_VALUES; n_values *= 2) {
            if (measure_over_network(r, variant, n_values, err) != 0) return KIN_FAIL;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    ranks r;
    kin_err err;
    if (argc == 1) return measure_all() == 0 ? 0 : 1;
    if (parse(&r, argc, argv, &err) == 0 && measure_all_over_network(&r, &err) == 0) return 0;
    fprintf(stderr, "sum: %s\n", err.text);
    return 1;
}
