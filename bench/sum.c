// sum: how long the devices of a group take to add up their parts, in one process: a thread for each device, TLS over socket
// pairs.
//
// It is what a sum costs beside the wire: encrypting, system calls, waking, adding. With more threads than processors it is
// mostly waking.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "testkit/group_mesh.h"

enum { N_SUMS = 400, WARM_UP = 40, MAX_RANKS = 4, MAX_VALUES = 8192 };

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

static int measure(int n, kin_proto_allreduce way, const char *name, int n_values) {
    static uint32_t epoch = 0;
    static device devices[MAX_RANKS];
    kin_exchange *exchanges[MAX_RANKS];
    kin_exchange_place place = {.epoch = ++epoch, .n_ranks = n, .allreduce = way};
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
    if (!failed) printf("%-6s %d devices, %5d values: %7.1f us\n", name, n, n_values, kin_median(devices[0].us, N_SUMS));
    for (int i = 0; i < n; i++) kin_exchange_close(exchanges[i]);
    return failed ? KIN_FAIL : 0;
}

int main(void) {
    static const char *const names[KIN_PROTO_ALLREDUCE_N] = {"mesh", "star", "tree", "ring"};
    for (int n = 2; n <= MAX_RANKS; n++) {
        for (int way = 0; way < KIN_PROTO_ALLREDUCE_N; way++) {
            for (int n_values = 2048; n_values <= MAX_VALUES; n_values *= 2) {
                if (measure(n, way, names[way], n_values) != 0) return 1;
            }
        }
    }
    return 0;
}
