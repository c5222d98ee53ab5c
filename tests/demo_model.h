// Loads the demo model with a service, as `kin serve` does, for tests of the code between the API and the scheduler.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "serve/loaded_model.h"
#include "testkit/silent_console.h"

static kin_loaded_model demo;

static inline void wake_nobody(void *user) {
    (void)user;
}

static inline int open_demo(void **state) {
    static kin_console console;
    static atomic_bool never;
    kin_loaded_model_options o = {.session = kin_session_options_defaults(), .n_ctx = 256};
    kin_err err;
    (void)state;
    console = kin_silent_console(&never);
    o.session.console = &console;
    o.session.n_threads = 1;
    o.session.gpu_layers = "0";
    o.service = (kin_service_options){.n_parallel = 1, .max_waiting = 1, .stop = &never, .wake = wake_nobody};
    if (kin_loaded_model_open(&demo, &o, &err) == 0) return 0;
    print_error("%s\n", err.text);
    return -1;
}

static inline int close_demo(void **state) {
    (void)state;
    kin_loaded_model_close(&demo);
    return 0;
}
