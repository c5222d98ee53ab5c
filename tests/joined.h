// Devices of a test's cluster: each runs kin_join_run in its own thread, on loopback. The test provides the head.
//
// Only for such tests. A test sets its own options between device_options and start_device. The thread writes rc and err; read
// them only after close_device.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cluster/join.h"
#include "tests/place.h"

static const kin_key key = {{7, 7, 7}}; // the cluster's key

typedef struct device {
    kin_join_options o;
    kin_device_facts facts;
    atomic_bool stop;
    pthread_t thread;
    int rc;
    kin_err err;
} device;

static inline kin_join_options device_options(uint8_t id, const char *name, uint16_t head_port) {
    return (kin_join_options){.id = {{id}},
                              .name = name,
                              .version = "test",
                              .key = key,
                              .head = "127.0.0.1",
                              .head_port = head_port,
                              .listen = "127.0.0.1",
                              .cache_dir = "/nowhere"};
}

static inline void *device_run(void *arg) {
    device *d = arg;
    d->rc = kin_join_run(&d->o, &d->err);
    return NULL;
}

// facts: NULL for a device that has not been measured.
static inline void start_device(device *d, const kin_join_options *options, const kin_device_facts *facts) {
    *d = (device){.o = *options};
    d->o.stop = &d->stop;
    if (facts) {
        d->facts = *facts;
        d->o.facts = &d->facts;
    }
    assert_int_equal(pthread_create(&d->thread, NULL, device_run, d), 0);
}
#define start_device(...) FROM_TEST(start_device(__VA_ARGS__))

static inline void close_device(device *d) {
    atomic_store(&d->stop, true);
    pthread_join(d->thread, NULL);
    if (d->rc != 0) fail_msg("%s", d->err.text);
}
#define close_device(...) FROM_TEST(close_device(__VA_ARGS__))
