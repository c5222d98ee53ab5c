#include "engine/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "engine/governor.h"
#include "engine/stage.h"
#include "engine/throughput_benchmark.h"
#include "model/blocks.h"
#include "pure/proto/label.h"
#include "sys/disk.h"
#include "sys/memory.h"
#include "sys/quota.h"

enum {
    FORMAT = 10, // version of the measurements; a change makes stored profiles outdated
    N_SWEEPS = 3,
    SWEEP_MS = 3000, // no further sweep begins after this time
    N_WINDOW_NODES = 16,
    WINDOW_WIDTH = 2048,
    N_STARTS = 501,
    MAX_COPIES = 64,
};

#define STORE_MOST ((uint64_t)768 << 20) // of weights to multiply with
#define STORE_LEAST ((uint64_t)16 << 20)
#define STORE_USUAL ((uint64_t)128 << 20)
#define DISK_BYTES ((uint64_t)192 << 20)
#define COPY_BYTES ((size_t)32 << 20)

static const double LEAST_S = 0.03;       // per figure and sweep
static const double QUOTA_LEAST_S = 0.06; // under a quota
static const double QUOTA_PERIODS = 3;    // quota periods per figure and sweep
static const double GPU_SHARE = 0.97;     // usable part of its free memory, since drivers round up

typedef struct work {
    const kin_devices *devices;
    const kin_profile_options *o;
    kin_device_facts *facts;
    kin_benchmark_options options;
    uint64_t n_done, n_total; // steps, for progress
} work;

static int step(work *w, kin_err *err) {
    if (w->o->progress) w->o->progress(w->o->progress_user, "measuring this machine", w->n_done, w->n_total);
    w->n_done++;
    return w->o->stop && atomic_load(w->o->stop) ? kin_err_set(err, "stopped") : 0;
}

// ---- an engine's rates

// Returns a size many times larger than the CPU's last-level cache, so that the cache keeps nothing that is read in turn
// (throughput_benchmark.c); at most a quarter of the memory.
static uint64_t store_bytes(const kin_device *device, uint64_t memory) {
    enum { CACHES = 12 };
    uint64_t bytes = STORE_USUAL;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long cache = device->is_gpu ? 0 : sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && CACHES * (uint64_t)cache > bytes) bytes = CACHES * (uint64_t)cache;
#else
    (void)device;
#endif
    if (bytes > STORE_MOST) bytes = STORE_MOST;
    if (bytes > memory / 4) bytes = memory / 4;
    return bytes < STORE_LEAST ? STORE_LEAST : bytes;
}

// After all types have been tried.
static void mark_impossible(double rates[KIN_N_QUANT]) {
    for (int q = 0; q < KIN_N_QUANT; q++) rates[q] = rates[q] > 0 ? rates[q] : KIN_RATE_CANNOT;
}

static int measure_engine(work *w, const kin_device *device, uint64_t memory, kin_engine_facts *e, kin_err *err) {
    kin_throughput_benchmark *rates;
    kin_time begun = kin_clock_now();
    if (kin_throughput_benchmark_open(&rates, device, store_bytes(device, memory), err) != 0) return KIN_FAIL;
    kin_engine_facts sweeps[N_SWEEPS] = {0};
    int rc = 0, n = 0;
    for (int k = 0; k < N_SWEEPS && rc == 0; k++) {
        bool another = k == 0 || kin_clock_ms(begun, kin_clock_now()) < SWEEP_MS;
        for (int i = 0; i < kin_throughput_benchmark_n_steps() && rc == 0; i++) {
            rc = step(w, err);
            if (rc == 0 && another) rc = kin_throughput_benchmark_step(rates, i, &w->options, &sweeps[k], err);
        }
        n += another;
    }
    kin_throughput_benchmark_close(rates);
    kin_engine_facts_median(e, sweeps, n); // other programs come and go
    mark_impossible(e->token_bytes_s);
    mark_impossible(e->prompt_flop_s);
    // Without the fused operator, attention reads at the rate of products.
    if (e->read_bytes_s == 0) e->read_bytes_s = fmax(e->token_bytes_s[KIN_QUANT_F16], 0);
    return rc;
}

// ---- starting a window

// Builds as many nodes as a block of a layer has. Only one of them computes, since the others' time is measured elsewhere (op_s).
static struct ggml_tensor *build_small(const void *user, kin_graph *g, struct ggml_tensor *x, int variant) {
    (void)user;
    (void)variant;
    for (int i = 0; i < N_WINDOW_NODES; i++) x = ggml_reshape_2d(g->ctx, x, WINDOW_WIDTH, 1);
    return ggml_add(g->ctx, x, x); // [n_embd, 1]
}

// The graph changes every time, as it does between windows and between blocks.
static int time_starts(kin_stage *stage, const kin_benchmark_options *p, double *seconds, kin_err *err) {
    float x[WINDOW_WIDTH] = {0}, y[WINDOW_WIDTH];
    double times[N_STARTS], sum = 0;
    const kin_stage_inputs in = {.x = x};
    int n = 0;
    for (; n < N_STARTS || (p->mean && sum < p->least_s); n++) {
        kin_stage_shape shape = {.variant = n % 2, .n_tokens = 1, .n_out = 1};
        kin_time begun = kin_clock_now();
        if (kin_stage_run(stage, shape, &in, y, err) != 0) return KIN_FAIL;
        times[n % N_STARTS] = kin_clock_ms(begun, kin_clock_now()) / 1e3;
        sum += times[n % N_STARTS];
    }
    *seconds = p->mean ? sum / n : kin_median(times, N_STARTS);
    return 0;
}

static int measure_window(work *w, kin_err *err) {
    const kin_hparams hp = {.n_layer = 1, .n_embd = WINDOW_WIDTH, .n_ff = WINDOW_WIDTH};
    const kin_graph proto = {.hp = &hp};
    const kin_stage_shape shape = {.n_tokens = 1, .n_out = 1};
    kin_stage *stage;
    double seconds = 0;
    if (step(w, err) != 0 || kin_stage_open(&stage, &w->devices->cpu, &proto, 2 * N_WINDOW_NODES, build_small, NULL, err) != 0)
        return KIN_FAIL;
    int rc = kin_stage_reserve(stage, shape, err);
    if (rc == 0) rc = time_starts(stage, &w->options, &seconds, err);
    kin_stage_close(stage);
    // It is short enough to be disturbed as a whole, so the better of two counts.
    w->facts->window_s = w->facts->window_s > 0 ? fmin(w->facts->window_s, seconds) : seconds;
    return rc;
}

// ---- copies between memories

static double time_copies(struct ggml_tensor *t, void *bytes, size_t n, bool to) {
    double least = INFINITY;
    for (int i = 0; i < MAX_COPIES; i++) {
        kin_time begun = kin_clock_now();
        if (to)
            ggml_backend_tensor_set(t, bytes, 0, n);
        else
            ggml_backend_tensor_get(t, bytes, 0, n);
        least = fmin(least, kin_clock_ms(begun, kin_clock_now()) / 1e3);
        if (n == COPY_BYTES && i == 2) break;
    }
    return least;
}

static int measure_copies(work *w, kin_err *err) {
    struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = step(w, err) == 0 ? ggml_init(params) : NULL;
    if (!ctx) return KIN_FAIL;
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, COPY_BYTES / sizeof(float));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, w->devices->gpu.buft);
    void *bytes = calloc(1, COPY_BYTES);
    int rc = buffer && bytes ? 0 : kin_err_set(err, "%s has no memory for the measurement", w->devices->gpu.name);
    if (rc == 0) {
        w->facts->to_gpu_s = time_copies(t, bytes, WINDOW_WIDTH * sizeof(float), true);
        w->facts->from_gpu_s = time_copies(t, bytes, WINDOW_WIDTH * sizeof(float), false);
        w->facts->gpu_copy_bytes_s =
            2 * (double)COPY_BYTES / (time_copies(t, bytes, COPY_BYTES, true) + time_copies(t, bytes, COPY_BYTES, false));
    }
    free(bytes);
    if (buffer) ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return rc;
}

// ---- all of it

bool kin_profile_measure_disk(kin_device_facts *facts, const char *dir, const atomic_bool *stop) {
    kin_disk_speed speed;
    kin_err why;
    bool ok = kin_disk_measure(dir, DISK_BYTES, stop, &speed, &why) == 0;
    if (!ok) kin_log(KIN_LOG_WARN, "the disk was not measured: %s", why.text);
    facts->disk_bytes_s = speed.bytes_s;
    facts->disk_random_bytes_s = speed.random_bytes_s;
    return ok;
}

static int measure_disk(work *w, kin_err *err) {
    if (!w->o->disk_dir) return 0;
    if (step(w, err) != 0) return KIN_FAIL;
    kin_profile_measure_disk(w->facts, w->o->disk_dir, w->o->stop);
    return w->o->stop && atomic_load(w->o->stop) ? kin_err_set(err, "stopped") : 0;
}

static kin_benchmark_options benchmark_options(void) {
    kin_quota quota = kin_quota_read();
    if (quota.cores <= 0) return (kin_benchmark_options){.least_s = LEAST_S};
    return (kin_benchmark_options){.least_s = fmax(QUOTA_LEAST_S, QUOTA_PERIODS * quota.period_s), .mean = true};
}

static kin_os os_here(void) {
#if defined(__ANDROID__)
    return KIN_OS_ANDROID;
#elif defined(__linux__)
    return KIN_OS_LINUX;
#elif defined(__APPLE__)
    return KIN_OS_MACOS;
#else
    return KIN_OS_OTHER;
#endif
}

static bool shares_memory(const kin_device *gpu) {
#if defined(__APPLE__) && defined(__aarch64__)
    (void)gpu;
    return true;
#else
    return ggml_backend_dev_type(gpu->dev) == GGML_BACKEND_DEVICE_TYPE_IGPU;
#endif
}

void kin_profile_refresh(kin_device_facts *facts, const kin_devices *devices, uint64_t memory) {
    facts->memory_bytes = (double)kin_governor_room(memory);
    facts->swap_bytes = 0;
    if (!devices->gpu.backend) return;
    size_t free_bytes, total_bytes;
    ggml_backend_dev_memory(devices->gpu.dev, &free_bytes, &total_bytes);
    facts->gpu_memory_bytes = GPU_SHARE * (double)free_bytes;
}

int kin_profile_measure(kin_device_facts *out, const kin_devices *devices, const kin_profile_options *o, kin_err *err) {
    *out = (kin_device_facts){.os = os_here(), .has_gpu = devices->gpu.backend != NULL};
    kin_label_set(out->name, sizeof out->name - 1, o->name ? o->name : "");
    if (out->has_gpu) out->uma = shares_memory(&devices->gpu);
    kin_profile_refresh(out, devices, o->memory);
    work w = {.devices = devices, .o = o, .facts = out, .options = benchmark_options()};
    w.n_total = (uint64_t)(N_SWEEPS * kin_throughput_benchmark_n_steps() * (out->has_gpu ? 2 : 1) + 4);
    if (measure_window(&w, err) != 0) return KIN_FAIL;
    if (measure_engine(&w, &devices->cpu, (uint64_t)out->memory_bytes, &out->cpu, err) != 0) return KIN_FAIL;
    if (measure_window(&w, err) != 0) return KIN_FAIL;
    if (out->has_gpu) {
        if (measure_engine(&w, &devices->gpu, (uint64_t)out->gpu_memory_bytes, &out->gpu, err) != 0) return KIN_FAIL;
        if (measure_copies(&w, err) != 0) return KIN_FAIL;
    }
    int rc = measure_disk(&w, err);
    if (o->progress) o->progress(o->progress_user, "measuring this machine", w.n_total, w.n_total);
    return rc;
}

void kin_profile_fingerprint(const kin_devices *devices, char *buf, size_t n) {
    kin_quota quota = kin_quota_read();
    const char *gpu = devices->gpu.backend ? ggml_backend_dev_description(devices->gpu.dev) : "none";
    const char *kernels = devices->cpu.kernels ? devices->cpu.kernels->name : "ggml";
    snprintf(buf, n, "profile %d, kin %s, %s, kernels %s, %d threads, quota %.2f, GPU %s, %s%s", FORMAT, KIN_VERSION,
             ggml_backend_dev_description(devices->cpu.dev), kernels, devices->n_threads, quota.cores, gpu, devices->cpu_variant,
             devices->cpu.packs ? "" : ", not packed");
}
