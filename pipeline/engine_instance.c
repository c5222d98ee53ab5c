#include "pipeline/engine_instance.h"

#include <stdlib.h>
#include <string.h>

#include "sys/cpu.h"

struct kin_engine_instance {
    kin_model model;
    kin_devices devices;
    kin_member_windows windows;
    int n_rounds;
    kin_shard *shard; // NULL: a relay
    kin_stage_executor *executor;
    kin_worker *worker;
};

int kin_engine_instance_windows(const kin_proto_plan *plan, int n_layer, kin_member_windows *out, kin_err *err) {
    if (plan->n_windows > KIN_MAX_WINDOWS) return kin_err_set(err, "a plan of %d windows", plan->n_windows);
    out->windows.n = plan->n_windows;
    for (int i = 0; i < plan->n_windows; i++) {
        const kin_proto_window *w = &plan->window[i];
        out->windows.at[i] = (kin_window){w->layer_begin, w->layer_end, w->n_gpu};
        out->rounds[i] = w->round;
    }
    if (kin_windows_valid(&out->windows, n_layer)) return 0;
    return kin_err_set(err, "the plan has layers that the model, with %d, has not", n_layer);
}

// A step that is longer than the context has no room: the shard's batches are cut to it, too.
kin_steps kin_engine_instance_steps(const kin_proto_plan *plan, int n_embd) {
    return (kin_steps){.n_embd = n_embd,
                       .n_batch = (int)(plan->n_batch < plan->n_ctx ? plan->n_batch : plan->n_ctx),
                       .n_seq = plan->n_seq,
                       .n_rounds = plan->n_rounds,
                       .type = plan->wire_type};
}

// The plan may ask for fewer threads than there are cores, not for more.
static int n_threads(const kin_proto_plan *plan, const kin_engine_instance_options *o) {
    if (o->n_threads) return o->n_threads;
    int n_cores = kin_cpu_n_cores();
    return plan->n_threads && plan->n_threads < n_cores ? plan->n_threads : n_cores;
}

static int open_devices(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    kin_device_options dopts = kin_device_options_defaults();
    dopts.n_threads = n_threads(plan, o);
    dopts.gpu = kin_windows_n_gpu_layers(&s->windows.windows) > 0;
    dopts.repack = plan->flags & KIN_PROTO_PLAN_REPACK;
    dopts.ggml_kernels = plan->flags & KIN_PROTO_PLAN_GGML;
    dopts.stop = o->stop;
    if (dopts.gpu && o->no_gpu) return kin_err_set(err, "the plan has layers for a GPU, which this device does not lend");
    return kin_devices_open(&s->devices, &dopts, err);
}

static kin_shard_options shard_options(const kin_engine_instance *s, const kin_proto_plan *plan,
                                       const kin_engine_instance_options *o) {
    static const kin_stream_mode modes[] = {KIN_STREAM_RESIDENT, KIN_STREAM_MMAP, KIN_STREAM_WILLNEED};
    kin_shard_options so = kin_shard_options_defaults(&s->model);
    so.windows = s->windows.windows;
    so.n_ctx = (int)plan->n_ctx;
    so.n_batch = (int)plan->n_batch;
    so.n_steps = KIN_STEPS_IN_FLIGHT;
    so.kv_type = plan->kv_type == KIN_PROTO_KV_Q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    so.flash = plan->flags & KIN_PROTO_PLAN_FLASH;
    so.ggml_kernels = plan->flags & KIN_PROTO_PLAN_GGML;
    so.output = false;
    so.mode = modes[plan->mode];
    so.memory = o->memory && (!plan->memory || o->memory < plan->memory) ? o->memory : plan->memory;
    so.cache_dir = o->cache_dir;
    so.cache_cap = o->cache_cap;
    so.kv_disk = o->kv_disk;
    if (o->in_parts) memcpy(&so.identity, plan->model.bytes, sizeof so.identity);
    so.arrival = o->arrival;
    so.progress = o->progress;
    so.progress_user = o->progress_user;
    return so;
}

// What a plan asks of the engine.
static int open_model(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    if (kin_model_open(&s->model, o->model_path, err) != 0) return KIN_FAIL;
    if (kin_engine_instance_windows(plan, s->model.hp.n_layer, &s->windows, err) != 0) return KIN_FAIL;
    return s->windows.windows.n > 0 ? open_devices(s, plan, o, err) : 0;
}

static int open_shard(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    kin_shard_options so = shard_options(s, plan, o);
    return kin_shard_open(&s->shard, &s->model, &s->devices, &so, err);
}

// What is for the GPU is not packed, and the GPU is the computing thread's.
static kin_proto_plan without_gpu(const kin_proto_plan *plan) {
    kin_proto_plan p = *plan;
    p.n_windows = 0;
    for (int i = 0; i < plan->n_windows; i++) {
        kin_proto_window w = plan->window[i];
        w.layer_end = (uint16_t)(w.layer_end - w.n_gpu);
        w.n_gpu = 0;
        if (w.layer_end > w.layer_begin) p.window[p.n_windows++] = w;
    }
    return p;
}

int kin_engine_instance_prepack(const kin_proto_plan *of, const kin_engine_instance_options *o, const kin_windows *but,
                                const atomic_bool *stop, kin_packed **held, kin_err *err) {
    kin_proto_plan plan = without_gpu(of);
    *held = NULL;
    kin_engine_instance *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    int rc = open_model(s, &plan, o, err);
    if (rc == 0 && s->windows.windows.n > 0) {
        kin_shard_options so = shard_options(s, &plan, o);
        rc = kin_shard_prepack(&s->model, &s->devices, &so, but, stop, held, err);
    }
    kin_engine_instance_close(s);
    return rc;
}

static int open_instance(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    if (open_model(s, plan, o, err) != 0) return KIN_FAIL;
    if (s->windows.windows.n > 0 && open_shard(s, plan, o, err) != 0) return KIN_FAIL;
    kin_stage_executor_options po = {.shard = s->shard,
                                     .windows = s->windows.windows,
                                     .rounds = s->windows.rounds,
                                     .n_rounds = plan->n_rounds,
                                     .n_layer = s->model.hp.n_layer,
                                     .n_steps = KIN_STEPS_IN_FLIGHT};
    kin_steps steps = kin_engine_instance_steps(plan, s->model.hp.n_embd);
    s->n_rounds = plan->n_rounds;
    if (kin_stage_executor_open(&s->executor, &po, err) != 0) return KIN_FAIL;
    return kin_worker_open(&s->worker, s->executor, &steps, o->pool, err);
}

int kin_engine_instance_open(kin_engine_instance **out, const kin_proto_plan *plan, const kin_engine_instance_options *o,
                             kin_err *err) {
    *out = NULL;
    kin_engine_instance *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    if (open_instance(s, plan, o, err) != 0) {
        kin_engine_instance_close(s);
        return KIN_FAIL;
    }
    *out = s;
    return 0;
}

void kin_engine_instance_close(kin_engine_instance *s) {
    if (!s) return;
    kin_worker_close(s->worker);
    kin_stage_executor_close(s->executor);
    kin_shard_close(s->shard);
    kin_devices_close(&s->devices);
    kin_model_close(&s->model);
    free(s);
}

kin_worker *kin_engine_instance_worker(kin_engine_instance *s) {
    return s->worker;
}

int kin_engine_instance_n_embd(const kin_engine_instance *s) {
    return s->model.hp.n_embd;
}

int kin_engine_instance_n_rounds(const kin_engine_instance *s) {
    return s->n_rounds;
}

kin_stage_executor *kin_engine_instance_executor(kin_engine_instance *s) {
    return s->executor;
}

kin_shard_stats kin_engine_instance_stats(const kin_engine_instance *s) {
    return s->shard ? kin_shard_get_stats(s->shard) : (kin_shard_stats){0};
}

size_t kin_engine_instance_take_intervals(kin_engine_instance *s, kin_stream_record record, kin_interval *out, size_t n_max) {
    return s->shard ? kin_shard_take_intervals(s->shard, record, out, n_max) : 0;
}
