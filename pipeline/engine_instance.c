#include "pipeline/engine_instance.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/border.h"
#include "sys/cpu.h"

struct kin_engine_instance {
    kin_model model;
    kin_devices devices;
    kin_member_windows windows;
    int n_rounds;
    kin_share share;
    kin_shard *shard; // NULL: a relay
    kin_stage_executor *executor;
    kin_worker *worker;
    // For a remote engine.
    const kin_remote_engine *remote; // NULL: none
    kin_message_pool *pool;
    kin_steps steps;
    bool got_wrong; // the input is invalid
    kin_step_order order;
    kin_proto_ready ready;
    kin_kv_op *ops; // [KIN_PROTO_MAX_OPS]
    kin_worker_stats stats;
};

int kin_engine_instance_windows(const kin_proto_plan *plan, int n_layer, kin_member_windows *out, kin_err *err) {
    if (plan->n_windows > KIN_MAX_WINDOWS) return kin_err_set(err, "the plan has %d windows, which is too many", plan->n_windows);
    out->windows.n = plan->n_windows;
    for (int i = 0; i < plan->n_windows; i++) {
        const kin_proto_window *w = &plan->window[i];
        out->windows.at[i] = (kin_window){w->layer_begin, w->layer_end, w->n_gpu, w->n_cpu_moe};
        out->rounds[i] = w->round;
    }
    if (kin_windows_valid(&out->windows, n_layer)) return 0;
    return kin_err_set(err, "the plan's windows do not match the model's %d layers", n_layer);
}

// A step never has more tokens than the context: the shard's batches are limited to it, too.
kin_steps kin_engine_instance_steps(const kin_proto_plan *plan, const kin_hparams *hp) {
    return (kin_steps){.n_embd = kin_border_most(hp),
                       .n_least = kin_hparams_stream_width(hp),
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
    dopts.n_signs = o->n_signs;
    if (dopts.gpu && o->no_gpu) return kin_err_set(err, "the plan has layers for a GPU, but this device does not offer one");
    return kin_devices_open(&s->devices, &dopts, err);
}

kin_share kin_engine_instance_share(const kin_proto_plan *plan) {
    const kin_proto_group *g = &plan->group;
    if (g->n_ranks == 0) return (kin_share){0};
    return (kin_share){.rank = g->rank,
                       .n_ranks = g->n_ranks,
                       .head_begin = g->head_begin,
                       .head_end = g->head_end,
                       .ff_begin = (int)g->ff_begin,
                       .ff_end = (int)g->ff_end};
}

static kin_shard_options shard_options(const kin_engine_instance *s, const kin_proto_plan *plan,
                                       const kin_engine_instance_options *o) {
    static const kin_stream_mode modes[] = {KIN_STREAM_RESIDENT, KIN_STREAM_MMAP, KIN_STREAM_WILLNEED, KIN_STREAM_RESIDENT};
    kin_shard_options so = kin_shard_options_defaults(&s->model);
    so.windows = s->windows.windows;
    so.share = s->share;
    so.sum = o->sum;
    so.n_ctx = (int)plan->n_ctx;
    so.n_batch = (int)plan->n_batch;
    so.n_steps = KIN_STEPS_IN_FLIGHT;
    so.n_sequences = plan->n_sequences;
    so.kv_type = plan->kv_type == KIN_PROTO_KV_Q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    so.wire = plan->wire_type;
    so.flash = plan->flags & KIN_PROTO_PLAN_FLASH;
    so.ggml_kernels = plan->flags & KIN_PROTO_PLAN_GGML;
    so.output = false;
    so.mode = modes[plan->mode];
    so.sliding = (kin_sliding_window){plan->sliding_blocks, plan->sliding_retain};
    so.memory = o->memory && (!plan->memory || o->memory < plan->memory) ? o->memory : plan->memory;
    so.cache_dir = o->cache_dir;
    so.cache_cap = o->cache_cap;
    so.kv_disk = o->kv_disk;
    memcpy(&so.kv_disk.model, plan->model.bytes, sizeof so.kv_disk.model);
    if (o->in_parts) memcpy(&so.identity, plan->model.bytes, sizeof so.identity);
    so.arrival = o->arrival;
    so.progress = o->progress;
    so.progress_user = o->progress_user;
    return so;
}

// Opens the model and the devices for a plan.
static int open_model(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    if (kin_model_open(&s->model, o->model_path, err) != 0) return KIN_FAIL;
    if (o->in_parts) kin_gguf_set_filled(s->model.gguf);
    if (kin_engine_instance_windows(plan, s->model.hp.n_layer, &s->windows, err) != 0) return KIN_FAIL;
    s->share = kin_engine_instance_share(plan);
    return s->windows.windows.n > 0 ? open_devices(s, plan, o, err) : 0;
}

static int open_shard(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    kin_shard_options so = shard_options(s, plan, o);
    return kin_shard_open(&s->shard, &s->model, &s->devices, &so, err);
}

// Removes the GPU from the plan, which belongs to the computing thread: its layers are not packed, and divided ones are packed as
// a whole.
static kin_proto_plan without_gpu(const kin_proto_plan *plan) {
    kin_proto_plan p = *plan;
    p.n_windows = 0;
    for (int i = 0; i < plan->n_windows; i++) {
        kin_proto_window w = plan->window[i];
        w.layer_end = (uint16_t)(w.layer_end - w.n_gpu + w.n_cpu_moe);
        w.n_gpu = w.n_cpu_moe = 0;
        if (w.layer_end > w.layer_begin) p.window[p.n_windows++] = w;
    }
    return p;
}

int kin_engine_instance_prepack(const kin_proto_plan *of, const kin_engine_instance_options *o, const kin_windows *but,
                                const atomic_bool *stop, kin_packed **held, kin_err *err) {
    kin_proto_plan plan = without_gpu(of);
    *held = NULL;
    if (o->remote) return o->remote->prefetch ? o->remote->prefetch(o->remote->user, of, stop, err) : 0;
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

static int open_remote(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    if (kin_model_open(&s->model, o->model_path, err) != 0) return KIN_FAIL;
    if (kin_engine_instance_windows(plan, s->model.hp.n_layer, &s->windows, err) != 0) return KIN_FAIL;
    if (plan->group.n_ranks > 0) return kin_err_set(err, "this device has no group");
    s->remote = o->remote;
    s->pool = o->pool;
    s->n_rounds = plan->n_rounds;
    s->steps = kin_engine_instance_steps(plan, &s->model.hp);
    s->ops = malloc(KIN_PROTO_MAX_OPS * sizeof *s->ops);
    if (!s->ops) return kin_err_set(err, "out of memory");
    const kin_remote_open open = {.plan = plan, .progress = o->progress, .progress_user = o->progress_user};
    return o->remote->open(o->remote->user, &open, &s->ready, err);
}

static int open_instance(kin_engine_instance *s, const kin_proto_plan *plan, const kin_engine_instance_options *o, kin_err *err) {
    if (o->remote) return open_remote(s, plan, o, err);
    if (open_model(s, plan, o, err) != 0) return KIN_FAIL;
    if (!kin_share_is_whole(&s->share) && !o->sum.add) return kin_err_set(err, "this device has no group");
    if (s->windows.windows.n > 0 && open_shard(s, plan, o, err) != 0) return KIN_FAIL;
    kin_stage_executor_options po = {.shard = s->shard,
                                     .windows = s->windows.windows,
                                     .rounds = s->windows.rounds,
                                     .n_rounds = plan->n_rounds,
                                     .n_layer = s->model.hp.n_layer,
                                     .n_steps = KIN_STEPS_IN_FLIGHT,
                                     .sum = kin_share_is_whole(&s->share) ? (kin_sum){0} : o->sum};
    kin_steps steps = kin_engine_instance_steps(plan, &s->model.hp);
    steps.ends_tokens = kin_worker_ends_tokens(&s->windows, kin_hparams_token_layers(&s->model.hp));
    s->n_rounds = plan->n_rounds;
    if (kin_stage_executor_open(&s->executor, &po, err) != 0) return KIN_FAIL;
    if (kin_worker_open(&s->worker, s->executor, &steps, o->pool, err) != 0) return KIN_FAIL;
    if (kin_share_is_whole(&s->share)) kin_worker_set_queue(s->worker, o->in);
    return 0;
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
    free(s->ops);
    free(s);
}

// ---- a remote engine's steps

// True if the answer is to this step: unwanted rows may be missing; nothing else may change.
static bool is_answer(const kin_proto_step *to, const kin_proto_step *answer) {
    return answer->step == to->step && answer->round == to->round && answer->flags == to->flags &&
           answer->n_tokens == to->n_tokens && answer->n_out == to->n_out && answer->n_ops == to->n_ops &&
           answer->n_rows <= to->n_rows;
}

// Rows may be wider after the window of this round than before it.
static bool make_room_for_answer(const kin_engine_instance *s, const kin_proto_step *m, kin_message_buffer *buffer) {
    kin_proto_step answer = *m;
    for (int i = 0; i < s->windows.windows.n; i++)
        if (s->windows.rounds[i] == m->round)
            answer.n_embd = (uint32_t)kin_border_before(&s->model.hp, s->windows.windows.at[i].layer_end).width;
    return kin_message_buffer_grow(buffer, kin_proto_step_lay_out(&answer).size);
}

static int handle_remote_step(kin_engine_instance *s, kin_message_buffer *buffer, kin_err *err) {
    kin_proto_step m, answer;
    s->got_wrong =
        kin_steps_check(&s->steps, buffer, &m, err) != 0 ||
        ((m.flags & KIN_PROTO_STEP_POSITIONS) && kin_step_order_accept(&s->order, buffer->frame.epoch, m.step, err) != 0);
    if (s->got_wrong) return KIN_FAIL;
    if (m.flags & KIN_PROTO_STEP_POSITIONS) s->stats.n_tokens += m.n_tokens;
    if (!make_room_for_answer(s, &m, buffer)) return kin_err_set(err, "out of memory for a step's rows");
    if (s->remote->handle(s->remote->user, buffer, err) != 0) return KIN_FAIL;
    if (kin_steps_check(&s->steps, buffer, &answer, err) != 0) return kin_err_prefix(err, "the result of a step");
    return is_answer(&m, &answer) ? 0 : kin_err_set(err, "the result belongs to another step");
}

static int handle_remote_pages(kin_engine_instance *s, kin_message_buffer *buffer, kin_err *err) {
    kin_proto_pages m, answer;
    kin_page_request request;
    kin_batch batch;
    s->got_wrong = kin_steps_unpack_pages(&s->steps, buffer, &m, &request, s->ops, &batch, err) != 0 ||
                   kin_step_order_accept(&s->order, buffer->frame.epoch, m.step, err) != 0;
    if (s->got_wrong) return KIN_FAIL;
    if (s->remote->handle(s->remote->user, buffer, err) != 0) return KIN_FAIL;
    if (kin_steps_unpack_pages(&s->steps, buffer, &answer, &request, s->ops, &batch, err) != 0)
        return kin_err_prefix(err, "the answer to a page request");
    bool fits = answer.step == m.step && answer.n_pages == m.n_pages && answer.n_ops == m.n_ops && answer.n_good <= m.n_good;
    return fits ? 0 : kin_err_set(err, "the answer belongs to other pages");
}

static int handle_remote(kin_engine_instance *s, kin_message_buffer **buffer, kin_err *err) {
    kin_time begun = kin_clock_now();
    bool is_step = (*buffer)->frame.type == KIN_FRAME_STEP;
    int rc = is_step ? handle_remote_step(s, *buffer, err) : handle_remote_pages(s, *buffer, err);
    if (is_step) s->stats.compute_ns += kin_clock_now() - begun;
    s->stats.n_steps += is_step;
    if (rc == 0) return 0;
    kin_message_pool_give(s->pool, *buffer);
    *buffer = NULL;
    return KIN_FAIL;
}

int kin_engine_instance_handle(kin_engine_instance *s, kin_message_buffer **buffer, kin_err *err) {
    return s->remote ? handle_remote(s, buffer, err) : kin_worker_handle(s->worker, buffer, err);
}

int kin_engine_instance_reset(kin_engine_instance *s, kin_err *err) {
    if (s->remote) return s->remote->reset(s->remote->user, err);
    kin_stage_executor_reset(s->executor);
    return 0;
}

// ---- inspection

bool kin_engine_instance_got_wrong(const kin_engine_instance *s) {
    return s->remote ? s->got_wrong : kin_worker_got_wrong(s->worker);
}

kin_worker_stats kin_engine_instance_worker_stats(const kin_engine_instance *s) {
    return s->remote ? s->stats : kin_worker_get_stats(s->worker);
}

kin_worker *kin_engine_instance_worker(kin_engine_instance *s) {
    return s->worker;
}

bool kin_engine_instance_passes_early(const kin_engine_instance *s) {
    return s->share.rank + 1 < s->share.n_ranks;
}

int kin_engine_instance_n_embd(const kin_engine_instance *s) {
    return kin_border_most(&s->model.hp);
}

int kin_engine_instance_n_rounds(const kin_engine_instance *s) {
    return s->n_rounds;
}

kin_stage_executor *kin_engine_instance_executor(kin_engine_instance *s) {
    return s->executor;
}

kin_shard_stats kin_engine_instance_stats(const kin_engine_instance *s) {
    kin_shard_stats stats = {0};
    if (s->shard) return kin_shard_get_stats(s->shard);
    stats.kv_bytes = s->ready.kv_bytes;
    stats.weights.packed_bytes = stats.weights.anonymous_bytes = s->ready.weights_bytes;
    stats.weights.resident_bytes = s->ready.weights_bytes;
    stats.compute_bytes = s->ready.compute_bytes;
    return stats;
}

bool kin_engine_instance_get_memory(const kin_engine_instance *s, kin_shard_memory *memory) {
    return s->shard && kin_shard_get_memory(s->shard, memory);
}

size_t kin_engine_instance_pop_intervals(kin_engine_instance *s, kin_stream_record record, kin_interval *out, size_t n_max) {
    return s->shard ? kin_shard_pop_intervals(s->shard, record, out, n_max) : 0;
}
