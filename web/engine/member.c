// One member's computation: pipeline/engine_instance.h for frames that the page passes in as bytes.
#include <stdlib.h>
#include <string.h>

#include "net/message_buffer.h"
#include "pipeline/engine_instance.h"
#include "web/engine/gpu.h"
#include "web/exports.h"

static kin_err last_error;
static kin_engine_instance *instance;
static char *model_name;
static kin_message_buffer step; // the one being computed

// Always false: frames wait in the page's socket, not here.
bool kin_message_queue_has(kin_message_queue *queue, bool (*is_it)(void *user, const kin_message_buffer *buffer), void *user) {
    (void)queue, (void)is_it, (void)user;
    return false;
}

void kin_message_pool_give(kin_message_pool *pool, kin_message_buffer *buffer) {
    (void)pool, (void)buffer;
}

bool kin_message_buffer_grow(kin_message_buffer *buffer, size_t n) {
    kin_assert(buffer == &step);
    return kin_web_payload(n) != NULL;
}

void *kin_web_alloc(size_t n) {
    return malloc(n);
}

void kin_web_free(void *p) {
    free(p);
}

const char *kin_web_error(void) {
    return last_error.text;
}

const char *kin_web_kernels(void) {
    return kin_kernels_at(0)->name;
}

int kin_web_open(const uint8_t *bytes, size_t n, const char *name, int n_threads, int gpu) {
    kin_proto_plan plan;
    kin_web_close();
    kin_gpu_set(gpu);
    if (kin_proto_decode_plan(bytes, n, &plan, &last_error) != 0) return KIN_FAIL;
    model_name = strdup(name);
    if (!model_name) return kin_err_set(&last_error, "out of memory");
    const kin_engine_instance_options o = {.model_path = model_name, .in_parts = true, .n_threads = n_threads};
    return kin_engine_instance_open(&instance, &plan, &o, &last_error);
}

void kin_web_close(void) {
    kin_engine_instance_close(instance);
    instance = NULL;
    free(model_name);
    model_name = NULL;
    kin_gpu_set(false);
}

uint8_t *kin_web_payload(size_t n) {
    if (n <= step.cap) return step.payload;
    uint8_t *larger = realloc(step.payload, n);
    if (!larger) return NULL;
    step.payload = larger;
    step.cap = n;
    return larger;
}

int kin_web_handle(size_t n, int type) {
    kin_assert(instance && n <= step.cap);
    step.frame = (kin_frame){.type = type == KIN_FRAME_PAGES ? KIN_FRAME_PAGES : KIN_FRAME_STEP, .length = (uint32_t)n};
    kin_message_buffer *buffer = &step;
    return kin_engine_instance_handle(instance, &buffer, &last_error) == 0 ? (int)step.frame.length : KIN_FAIL;
}

void kin_web_reset(void) {
    kin_engine_instance_reset(instance, &last_error);
}

double kin_web_bytes(int of) {
    if (!instance) return 0;
    kin_shard_stats stats = kin_engine_instance_stats(instance);
    return (double)(of == 0 ? stats.kv_bytes : of == 1 ? stats.weights.packed_bytes : stats.compute_bytes);
}
