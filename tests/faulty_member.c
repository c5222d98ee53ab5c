// A kin whose member computes wrongly: linked with all of app/; kin_engine_instance_handle is wrapped, and its result is changed.
// For test_faulty_member.sh.
//
//   FAULTY_MEMBER=KIND:N[+]    changes the N-th step of this process; +: this step and all that follow
//
// swallows: the step is not forwarded. number: it is forwarded with another number. rows: with another number of rows. nan: with
// a NaN in its last row.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "pipeline/engine_instance.h"

int __real_kin_engine_instance_handle(kin_engine_instance *instance, kin_message_buffer **buffer, kin_err *err);
int __wrap_kin_engine_instance_handle(kin_engine_instance *instance, kin_message_buffer **buffer, kin_err *err);
kin_message_buffer *__real_kin_message_pool_get(kin_message_pool *pool, size_t n);
kin_message_buffer *__wrap_kin_message_pool_get(kin_message_pool *pool, size_t n);

enum { NUMBER_AT = 0, ROWS_AT = 20 }; // offsets in a STEP

static kin_message_pool *pool_of_steps; // a device has one pool

kin_message_buffer *__wrap_kin_message_pool_get(kin_message_pool *pool, size_t n) {
    pool_of_steps = pool;
    return __real_kin_message_pool_get(pool, n);
}

static bool is_due(const char *kind) {
    static int n_steps;
    const char *fault = getenv("FAULTY_MEMBER");
    size_t n = strlen(kind);
    if (!fault || strncmp(fault, kind, n) != 0 || fault[n] != ':') return false;
    int at = atoi(fault + n + 1);
    n_steps++;
    return n_steps == at || (n_steps > at && strchr(fault, '+'));
}

int __wrap_kin_engine_instance_handle(kin_engine_instance *instance, kin_message_buffer **buffer, kin_err *err) {
    int rc = __real_kin_engine_instance_handle(instance, buffer, err);
    kin_message_buffer *b = *buffer;
    if (rc != 0 || !b || b->frame.type != KIN_FRAME_STEP) return rc;
    uint8_t *end = b->payload + b->frame.length;
    if (is_due("swallows")) {
        kin_message_pool_give(pool_of_steps, b);
        *buffer = NULL;
    }
    if (is_due("number")) kin_put_u64(b->payload + NUMBER_AT, kin_get_u64(b->payload + NUMBER_AT) + 1);
    if (is_due("rows")) kin_put_u32(b->payload + ROWS_AT, kin_get_u32(b->payload + ROWS_AT) + 1);
    if (is_due("nan")) kin_put_u32(end - 4, 0x7fc00000);
    return rc;
}
