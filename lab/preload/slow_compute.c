// slow_compute: makes what a program computes with ggml (LD_PRELOAD) as slow as on a processor of one speed: a graph takes as
// long as its operations need there, whatever neighbours leave of the real processor, which must be faster. Where it was not,
// that is counted, and told at the end in the file KIN_LAB_LATE: "graphs,seconds,seconds late".
//
// That processor multiplies KIN_LAB_COMPUTES bytes of weights per second, if they do not need more than FLOP_PER_BYTE each: then
// the arithmetic decides. Attention is so many bytes and FLOP too. Any other operation takes as long as OP_BYTES. GPUs are left
// as they are.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ggml-backend.h>
#include <ggml.h>

typedef enum ggml_status compute_function(ggml_backend_t backend, struct ggml_cgraph *graph);

static const double FLOP_PER_BYTE = 2;
static const double OP_BYTES = 24 << 10;
static const uint64_t SPIN_NS = 150000; // a sleep ends up to so late

static compute_function *real_compute, *real_compute_async;
static double bytes_per_ns;
static _Atomic uint64_t n_graphs, all_ns, late_ns;
static _Thread_local int depth; // the one calls the other

__attribute__((constructor)) static void begin(void) {
    const char *rate = getenv("KIN_LAB_COMPUTES");
    *(void **)&real_compute = dlsym(RTLD_NEXT, "ggml_backend_graph_compute");
    *(void **)&real_compute_async = dlsym(RTLD_NEXT, "ggml_backend_graph_compute_async");
    bytes_per_ns = rate ? atof(rate) * 1e-9 : 0;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("KIN_LAB_LATE");
    FILE *f = path && n_graphs > 0 ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%llu,%.3f,%.3f\n", (unsigned long long)n_graphs, (double)all_ns * 1e-9, (double)late_ns * 1e-9);
    fclose(f);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void wait_until(uint64_t ns) {
    if (now_ns() + SPIN_NS < ns) {
        const uint64_t wake_ns = ns - SPIN_NS;
        const struct timespec t = {(time_t)(wake_ns / 1000000000ull), (long)(wake_ns % 1000000000ull)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    while (now_ns() < ns) {
    }
}

// What an operation costs, in bytes of weights.
static double cost(const struct ggml_tensor *t) {
    double bytes = 0, flops = 0;
    const struct ggml_tensor *a = t->src[0], *b = t->src[1], *c = t->src[2];
    switch (t->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE: return 0;
    case GGML_OP_MUL_MAT:
    case GGML_OP_MUL_MAT_ID:
        bytes = (double)ggml_nbytes(a);
        flops = 2.0 * (double)a->ne[0] * (double)ggml_nelements(t);
        if (t->op == GGML_OP_MUL_MAT_ID && ggml_nelements(c) < a->ne[2]) bytes *= (double)ggml_nelements(c) / (double)a->ne[2];
        break;
    case GGML_OP_FLASH_ATTN_EXT:
        bytes = (double)(ggml_nbytes(b) + ggml_nbytes(c));
        flops = 2.0 * (double)(b->ne[0] * b->ne[1] + c->ne[0] * c->ne[1]) * (double)(a->ne[1] * a->ne[2]); // tokens, heads
        break;
    default: break;
    }
    return OP_BYTES + (flops > FLOP_PER_BYTE * bytes ? flops / FLOP_PER_BYTE : bytes);
}

static enum ggml_status compute(compute_function *real, ggml_backend_t backend, struct ggml_cgraph *graph) {
    const uint64_t begun = now_ns();
    depth++;
    const enum ggml_status status = real(backend, graph);
    depth--;
    if (depth > 0 || bytes_per_ns <= 0) return status;
    if (ggml_backend_dev_type(ggml_backend_get_device(backend)) != GGML_BACKEND_DEVICE_TYPE_CPU) return status;
    double bytes = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) bytes += cost(ggml_graph_node(graph, i));
    const uint64_t due = begun + (uint64_t)(bytes / bytes_per_ns), now = now_ns();
    n_graphs++;
    all_ns += due - begun;
    if (now > due) late_ns += now - due;
    wait_until(due);
    return status;
}

enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return compute(real_compute, backend, graph);
}

enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return compute(real_compute_async, backend, graph);
}
