#include "cluster/session.h"
#include "engine/shard_memory.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "cluster/demo_model.h"
#include "cluster/profile_store.h"
#include "engine/expert_history.h"
#include "engine/governor.h"
#include "engine/model_facts.h"
#include "model/border.h"
#include "model/vocab_load.h"
#include "observe/timeline_file.h"
#include "pure/proto/activations.h"
#include "sys/whole_file.h"

static const uint64_t GPU_WORTH_BYTES = (uint64_t)256 << 20; // weights per token

kin_session_options kin_session_options_defaults(void) {
    return (kin_session_options){
        .n_batch = 512, .n_sequences = 1, .kv_type = "f16", .weights = "stream", .fleet = kin_fleet_options_defaults()};
}

// ---- the model

const char *kin_session_default_cache(char *buf, size_t n) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0])
        snprintf(buf, n, "%s/kin", xdg);
    else if (!home || !home[0])
        return NULL;
#ifdef __APPLE__
    else
        snprintf(buf, n, "%s/Library/Caches/kin", home);
#else
    else
        snprintf(buf, n, "%s/.cache/kin", home);
#endif
    return buf;
}

// Returns the directory of the caches: the requested one, or the user's; NULL without a home directory.
static const char *cache_dir(const kin_session_options *o, char *buf, size_t n) {
    return o->cache_dir ? o->cache_dir : kin_session_default_cache(buf, n);
}

static bool has_demo_file(const char *path) {
    uint8_t *bytes = NULL;
    size_t n, n_demo = kin_demo_model_size();
    bool has =
        kin_whole_file_read(path, n_demo, &bytes, &n, NULL) == 0 && n == n_demo && memcmp(bytes, kin_demo_model_bytes(), n) == 0;
    free(bytes);
    return has;
}

// Writes the embedded model to a file in the cache, from which other devices fetch it.
static const char *demo_file(kin_session *s, const kin_session_options *o, kin_err *err) {
    char dir[1000];
    const char *cache = cache_dir(o, dir, sizeof dir);
    if (!cache) {
        kin_err_set(err, "there is no home directory for the demo model; give --cache DIR");
        return NULL;
    }
    snprintf(s->demo_path, sizeof s->demo_path, "%s/demo.gguf", cache);
    if (has_demo_file(s->demo_path)) return s->demo_path; // another kin may be about to share it
    if (kin_folder_make(cache, err) == 0 &&
        kin_whole_file_write(s->demo_path, kin_demo_model_bytes(), kin_demo_model_size(), err) == 0)
        return s->demo_path;
    kin_err_prefix(err, "cannot write the demo model to a file for other devices; set another directory with --cache DIR");
    return NULL;
}

static int open_demo(kin_session *s, const kin_session_options *o, kin_err *err) {
    if (!o->fleet.cluster)
        return kin_model_open_bytes(&s->model, "demo model", kin_demo_model_bytes(), kin_demo_model_size(), err);
    const char *path = demo_file(s, o, err);
    return path ? kin_model_open(&s->model, path, err) : KIN_FAIL;
}

static void begin_open(kin_session *s, const kin_session_options *o) {
    *s = (kin_session){.model_name = o->model ? o->model : "demo", .console = o->console};
}

// Errors are reported when the vocabulary is needed.
static void load_vocab(kin_session *s) {
    if (kin_vocab_load(&s->vocab, s->model.gguf, &s->vocab_err) == 0) kin_tokenizer_new(&s->tokenizer, s->vocab, &s->vocab_err);
}

int kin_session_open_vocab(kin_session *s, const kin_session_options *o, kin_err *err) {
    begin_open(s, o);
    int rc = o->model ? kin_gguf_open(&s->model.gguf, o->model, err)
                      : kin_gguf_open_bytes(&s->model.gguf, "demo model", kin_demo_model_bytes(), kin_demo_model_size(), err);
    if (rc == 0) load_vocab(s);
    return rc;
}

int kin_session_open_model(kin_session *s, const kin_session_options *o, kin_err *err) {
    begin_open(s, o);
    if ((o->model ? kin_model_open(&s->model, o->model, err) : open_demo(s, o, err)) != 0) return KIN_FAIL;
    load_vocab(s);
    if (s->vocab && kin_vocab_n_tokens(s->vocab) > s->model.hp.n_vocab) {
        kin_err_set(err, "%s: the vocabulary has %d tokens, but the embedding has only %d", s->model_name,
                    kin_vocab_n_tokens(s->vocab), s->model.hp.n_vocab);
        kin_session_close(s);
        return KIN_FAIL;
    }
    return 0;
}

static bool places_experts(const kin_session_options *o) {
    return o->cpu_moe || o->n_cpu_moe > 0;
}

static bool chooses_gpu_layers(const kin_session_options *o) {
    return o->gpu_layers ? strcmp(o->gpu_layers, "auto") == 0 : !places_experts(o);
}

// With "auto" the result is 0 for now. Who places experts wants all layers on the GPU.
static int n_gpu_layers_of(const kin_session_options *o, int n_layer) {
    if (chooses_gpu_layers(o)) return 0;
    const bool all = !o->gpu_layers || strcmp(o->gpu_layers, "all") == 0;
    unsigned long long n = all ? ULLONG_MAX : strtoull(o->gpu_layers, NULL, 10);
    return n < (unsigned long long)n_layer ? (int)n : n_layer;
}

static int check_experts_place(const kin_session *s, const kin_session_options *o, kin_err *err) {
    const char *option = o->cpu_moe ? "--cpu-moe" : "--n-cpu-moe";
    if (!places_experts(o)) return 0;
    if (s->model.hp.n_expert == 0) return kin_err_set(err, "%s: this model has no experts", option);
    if (chooses_gpu_layers(o))
        return kin_err_set(err, "%s: with --gpu-layers auto kin places the experts; give a number of layers, or 'all'", option);
    if (n_gpu_layers_of(o, s->model.hp.n_layer) == 0)
        return kin_err_set(err, "%s needs layers on the GPU, but --gpu-layers is 0", option);
    return 0;
}

// The division of the layers as the options say.
static kin_layer_share share_of(const kin_session_options *o, int n_layer) {
    const int n_gpu = n_gpu_layers_of(o, n_layer);
    return (kin_layer_share){n_layer, n_gpu, o->cpu_moe || o->n_cpu_moe > n_gpu ? n_gpu : o->n_cpu_moe};
}

static enum ggml_type kv_type_of(const kin_session_options *o) {
    return strcmp(o->kv_type, "q8_0") == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

static kin_stream_mode mode_of(const kin_session_options *o) {
    if (strcmp(o->weights, "mmap") == 0) return KIN_STREAM_MMAP;
    return strcmp(o->weights, "mmap+willneed") == 0 ? KIN_STREAM_WILLNEED : KIN_STREAM_RESIDENT;
}

static bool wants_ggml_kernels(const kin_session_options *o) {
    return o->kernels && strcmp(o->kernels, "ggml") == 0;
}

// ---- predictions

// Adds the share of expert reads that the counts of earlier runs on this machine predict to hit.
static void add_expert_hits(const kin_session *s, const kin_session_options *o, kin_model_facts *facts) {
    static const double quarters[KIN_FACTS_N_HITS] = {0.25, 0.5, 0.75};
    char folder[1024];
    kin_err err;
    const char *dir = o->cache_dir ? o->cache_dir : kin_session_default_cache(folder, sizeof folder);
    if (kin_expert_history_hits(dir, &s->model, quarters, facts->expert_hits, KIN_FACTS_N_HITS, &err) == KIN_FAIL)
        kin_log(KIN_LOG_DEBUG, "%s", err.text);
}

// Returns the model's facts, with the hidden states' size according to --wire.
static int model_facts_of(const kin_session *s, const kin_session_options *o, const kin_shard_options *so, kin_model_facts *facts,
                          kin_err *err) {
    if (kin_model_facts_of(facts, &s->model, so, err) != 0) return KIN_FAIL;
    add_expert_hits(s, o, facts);
    facts->hidden_bytes = (double)kin_activations_bytes((uint64_t)kin_border_mean(&s->model.hp), kin_fleet_wire_type(&o->fleet));
    return 0;
}

int kin_session_model_facts(const kin_session *s, const kin_session_options *o, const kin_work_facts *work,
                            kin_model_facts *facts, kin_err *err) {
    kin_shard_options so = kin_shard_options_defaults(&s->model);
    if (kin_hparams_check_context(&s->model.hp, work->n_ctx, err) != 0) return KIN_FAIL;
    so.n_ctx = work->n_ctx;
    so.n_batch = work->n_batch;
    so.n_sequences = o->n_sequences;
    so.flash = !o->no_flash;
    so.ggml_kernels = wants_ggml_kernels(o);
    so.kv_type = kv_type_of(o);
    return model_facts_of(s, o, &so, facts, err);
}

static kin_work_facts work_of(const kin_session_options *o, const kin_shard_options *so) {
    return (kin_work_facts){.n_ctx = so->n_ctx,
                            .n_cached = o->n_cached ? o->n_cached : so->n_ctx / 2,
                            .n_prompt = o->n_prompt ? o->n_prompt : 128,
                            .n_batch = so->n_batch};
}

// Starting a GPU and measuring it once is not worth it for a model that a CPU reads in a few milliseconds.
static bool wants_gpu(const kin_session *s, const kin_session_options *o) {
    bool is_worth_it = o->gpu_layers || kin_model_bytes_per_token(&s->model) >= GPU_WORTH_BYTES;
    return chooses_gpu_layers(o) && is_worth_it && !o->fleet.cluster && !o->dry_run;
}

// True if a plan or a prediction needs the machine's profile.
static bool wants_facts(const kin_session_options *o) {
    return o->predicts || o->dry_run || (o->fleet.cluster && strcmp(o->fleet.plan, "auto") == 0);
}

static bool may_use_gpu(const kin_session *s, const kin_session_options *o) {
    return s->devices.gpu.backend && wants_gpu(s, o);
}

static bool needs_facts(const kin_session *s, const kin_session_options *o) {
    return wants_facts(o) || may_use_gpu(s, o);
}

static int measure_machine(kin_session *s, const kin_session_options *o, kin_err *err) {
    static const char name[] = "this machine";
    char dir[1000];
    int rc = o->profile ? kin_profile_read(&s->facts, &s->devices, name, o->profile, err)
                        : kin_profile_obtain(&s->facts, &s->devices, name, cache_dir(o, dir, sizeof dir), false, s->console, err);
    s->facts.no_slices = o->no_cache;
    return rc;
}

// Standalone: plans and predicts; may choose the GPU's layers.
static int plan_standalone(kin_session *s, const kin_session_options *o, kin_shard_options *so, kin_err *err) {
    kin_model_facts model;
    kin_work_facts work = work_of(o, so);
    kin_planner_options po = kin_planner_options_defaults();
    kin_err why;
    if (model_facts_of(s, o, so, &model, err) != 0 || kin_planner_open(&s->planner, &po, &model, &work, err) != 0)
        return KIN_FAIL;
    kin_device_facts facts = s->facts;
    if (so->memory && (double)so->memory < facts.memory_bytes) facts.memory_bytes = (double)so->memory;
    facts.memory_bytes -= fmin((double)so->beside, facts.memory_bytes);
    kin_window *window = &so->windows.at[0];
    kin_layer_share share = {window->layer_end, window->n_gpu_layers, window->n_cpu_moe};
    if (may_use_gpu(s, o)) {
        if (kin_planner_choose_standalone(s->planner, &facts, &share, err) != 0) return KIN_FAIL;
        *window = kin_plan_window_at(0, &share);
        if (share.n_layer_gpu == 0) kin_devices_close_gpu(&s->devices);
    } else if (kin_planner_set_standalone(s->planner, &facts, &share, &why) != 0 && !o->dry_run) {
        kin_log(KIN_LOG_INFO, "no prediction: %s", why.text);
    }
    return 0;
}

static int open_shard(kin_session *s, const kin_session_options *o, kin_shard_options *so, kin_err *err) {
    if (needs_facts(s, o) && plan_standalone(s, o, so, err) != 0) return KIN_FAIL;
    if (o->dry_run) return 0;
    return kin_shard_open(&s->shard, &s->model, &s->devices, so, err);
}

// A GPU that was not requested, and that fails, must not keep a model from running: continues on the CPU.
static bool goes_without_gpu(kin_session *s, const kin_session_options *o, kin_shard_options *so, const kin_err *why) {
    if (!may_use_gpu(s, o) || atomic_load(s->console->stop)) return false;
    kin_log(KIN_LOG_INFO, "the GPU is not used: %s", why->text);
    kin_planner_close(s->planner);
    s->planner = NULL;
    so->windows = kin_windows_one(0, s->model.hp.n_layer, 0);
    kin_devices_close_gpu(&s->devices);
    return true;
}

bool kin_session_expects(kin_session *s, kin_expectation *out) {
    if (!s->planner) return false;
    if (s->clustered) {
        kin_cluster_measure(s->fleet.cluster);
    } else {
        const kin_head_counts *counts = kin_head_get_counts(s->head);
        kin_token_times t = kin_head_token_times(counts);
        kin_planner_measured m = {.n = 1,
                                  .n_cached = (int)atomic_load(&counts->token_pos),
                                  .members = {{.compute_s = (double)t.compute_ns / 1e9,
                                               .disk_s = (double)t.disk_ns / 1e9,
                                               .disk_bytes = (double)t.disk_bytes}}};
        kin_planner_add_measured(s->planner, &m);
    }
    return kin_planner_expects(s->planner, out);
}

void kin_session_wake(const kin_session *s) {
    if (s->clustered) kin_cluster_wake(s->fleet.cluster);
}

bool kin_session_yields(const kin_session *s) {
    return s->clustered && kin_cluster_yields(s->fleet.cluster);
}

bool kin_session_batching(const kin_session *s, int n_sequences, int n_cached, int most, kin_batching *out) {
    return s->planner && kin_planner_batching(s->planner, n_sequences, n_cached, most, out);
}

int kin_session_chunk_worth(const kin_session *s) {
    return s->planner ? kin_planner_chunk_worth(s->planner) : 0;
}

// Devices that search for a head repeat it every few seconds.
int kin_session_find_devices(kin_session *s, const kin_session_options *o, kin_facts *facts, kin_err *err) {
    enum { QUIET_MS = 7000, SHOW_MS = 100 };
    kin_plan plan;
    int n = 0, n_before = 0;
    kin_time now = kin_clock_now(), quiet_since = now;
    for (; s->clustered && kin_clock_ms(quiet_since, now) < QUIET_MS; now = kin_clock_now()) {
        if (atomic_load(s->console->stop)) return kin_err_set(err, "stopped");
        n = kin_planner_last(s->planner, facts, &plan) ? facts->n_device - 1 : 0;
        if (o->fleet.n_devices > 0 && n >= o->fleet.n_devices) break;
        if (n != n_before || o->fleet.n_devices > 0) quiet_since = now;
        n_before = n;
        s->console->progress(NULL, "looking for devices", (uint64_t)kin_clock_ms(quiet_since, now), QUIET_MS);
        kin_planner_wait(s->planner, SHOW_MS * UINT64_C(1000000));
    }
    s->console->clear_progress();
    return kin_planner_last(s->planner, facts, &plan) ? 0 : kin_err_set(err, "there is no plan for this model on this machine");
}

static void say_no_block(const char *why) {
    kin_log(KIN_LOG_INFO, "no drafts by multi-token prediction: %s", why);
}

static void close_draft_block(kin_session *s, kin_shard_options *so) {
    kin_mtp_drafter_close(s->mtp);
    s->mtp = NULL;
    so->beside = 0;
    so->keeps_output = false;
}

// A draft block that was not asked for must not keep a model from opening. Returns 0 if the model opens without it.
static int open_without_block(kin_session *s, const kin_session_options *o, kin_shard_options *so, kin_err *err) {
    const kin_err why = *err;
    const bool has_block = s->draft == KIN_DRAFT_AUTO && (s->mtp || (o->dry_run && so->beside > 0));
    if (!has_block || atomic_load(s->console->stop)) return KIN_FAIL;
    kin_planner_close(s->planner);
    s->planner = NULL;
    close_draft_block(s, so);
    if (open_shard(s, o, so, err) != 0) return KIN_FAIL;
    say_no_block(why.text);
    return 0;
}

static int open_standalone(kin_session *s, const kin_session_options *o, kin_shard_options *so, kin_err *err) {
    int rc = open_shard(s, o, so, err);
    if (rc != 0 && goes_without_gpu(s, o, so, err)) rc = open_shard(s, o, so, err);
    if (rc != 0) rc = open_without_block(s, o, so, err);
    if (rc != 0 || o->dry_run) return rc;
    if (kin_loopback_head_open(&s->alone, &s->model, s->shard, so->n_batch, err) != 0) return KIN_FAIL;
    s->head = s->alone.head;
    s->n_gpu_layers = kin_windows_n_gpu_layers(&so->windows);
    s->n_cpu_moe = kin_windows_n_cpu_moe(&so->windows);
    kin_head_record(s->head, kin_timeline_own(s->timeline));
    return 0;
}

static int open_fleet(kin_session *s, const kin_session_options *o, const kin_shard_options *so, kin_err *err) {
    kin_model_facts model;
    kin_work_facts work = work_of(o, so);
    if (model_facts_of(s, o, so, &model, err) != 0) return KIN_FAIL;
    model.cpu_buffer_bytes += (double)kin_shard_border_bytes(&s->model, so);
    kin_fleet_base base = {.console = s->console,
                           .model_facts = &model,
                           .work = &work,
                           .facts = wants_facts(o) ? &s->facts : NULL,
                           .dry_run = o->dry_run,
                           .model = &s->model,
                           .devices = &s->devices,
                           .shard = *so,
                           .model_name = s->model_name,
                           .timeline = s->timeline,
                           .cache_dir = s->cache_dir[0] ? s->cache_dir : NULL};
    s->clustered = true;
    if (kin_fleet_open(&s->fleet, &o->fleet, &base, err) != 0) return KIN_FAIL;
    s->planner = s->fleet.planner;
    return 0;
}

static void warn_of_long_context(const kin_session *s) {
    int trained = s->model.hp.n_ctx_train;
    if (s->n_ctx <= trained) return;
    kin_log(KIN_LOG_WARN, "--ctx %d: the model was trained with a context of %d tokens; its output degrades beyond that",
            s->n_ctx, trained);
}

// The file is written at the end; an impossible path must be reported before the work.
static int check_timeline(const char *path, kin_err *err) {
    FILE *f = fopen(path, "a");
    return f && fclose(f) == 0 ? 0 : kin_err_set(err, "%s: %s", path, strerror(errno));
}

static int read_draft(kin_session *s, const kin_session_options *o, const char **file, kin_err *err) {
    s->draft_min = o->draft_min;
    s->draft_max = o->draft_max;
    return kin_draft_words_read(o->draft ? o->draft : "auto", &s->draft, file, err);
}

static int open_draft_model(kin_session *s, const char *file, kin_shard_options *so, kin_err *err) {
    if (!s->vocab) return kin_err_set(err, "%s: %s", s->model_name, s->vocab_err.text);
    kin_draft_model_options o = {.path = file,
                                 .vocab = s->vocab,
                                 .devices = &s->devices,
                                 .n_ctx = so->n_ctx,
                                 .n_batch = so->n_batch < KIN_DRAFT_MODEL_BATCH ? so->n_batch : KIN_DRAFT_MODEL_BATCH,
                                 .kv_type = so->kv_type,
                                 .cache_dir = so->cache_dir,
                                 .cache_cap = so->cache_cap,
                                 .progress = so->progress};
    if (kin_draft_model_open(&s->draft_model, &o, err) != 0) return KIN_FAIL;
    so->beside = kin_draft_model_bytes(s->draft_model);
    return 0;
}

static kin_mtp_drafter_options mtp_options(const kin_session *s, const kin_session_options *o, const kin_shard_options *so) {
    return (kin_mtp_drafter_options){.model = &s->model,
                                     .devices = &s->devices,
                                     .n_ctx = so->n_ctx,
                                     .n_sequences = o->n_sequences,
                                     .n_batch = so->n_batch < KIN_DRAFT_MODEL_BATCH ? so->n_batch : KIN_DRAFT_MODEL_BATCH,
                                     .n_vocab = s->vocab ? kin_vocab_n_tokens(s->vocab) : s->model.hp.n_vocab,
                                     .kv_type = so->kv_type,
                                     .cache_dir = so->cache_dir,
                                     .cache_cap = so->cache_cap,
                                     .progress = so->progress};
}

// Returns how many times as fast the file's first draft block presumably makes tokens; 0: kin does not compute it.
static double gain_of_block(const kin_session *s, uint64_t room) {
    kin_draft_blocks blocks;
    kin_err ignored;
    if (kin_draft_blocks_open(&blocks, &s->model, NULL, &ignored) != 0) return 0;
    const double gain = kin_draft_block_gain(&s->model, &blocks.at[0], room);
    kin_draft_blocks_close(&blocks);
    return gain;
}

// True if drafts of the block presumably pay, and the model keeps the memory that it needs.
static bool is_block_worth(const kin_session *s, const kin_session_options *o, const kin_shard_options *so, uint64_t bytes) {
    const double worth = 1.05; // as in pure/plan/speculation.h
    const uint64_t room = kin_governor_room(o->memory);
    if (gain_of_block(s, room) < worth) return false;
    if (kin_draft_block_fits(&s->model, bytes, room, kin_shard_fixed_bytes(&s->model, so))) return true;
    say_no_block("their block would take too much of the memory for the model; --draft mtp uses it nevertheless");
    return false;
}

// path: the file of the blocks; NULL: the model's. A dry run only counts their memory.
static int open_draft_block(kin_session *s, const kin_session_options *o, const char *path, kin_shard_options *so, kin_err *err) {
    kin_mtp_drafter_options m = mtp_options(s, o, so);
    m.path = path;
    if (o->dry_run) return kin_mtp_drafter_needs(&m, &so->beside, err);
    if (kin_mtp_drafter_open(&s->mtp, &m, err) != 0) return KIN_FAIL;
    so->beside = kin_mtp_drafter_bytes(s->mtp);
    so->keeps_output = true;
    return 0;
}

// The block is optional: if it does not open, the model generates without it.
static void try_draft_block(kin_session *s, const kin_session_options *o, kin_shard_options *so) {
    const kin_mtp_drafter_options m = mtp_options(s, o, so);
    uint64_t bytes;
    kin_err err;
    if (!kin_draft_blocks_are_in(&s->model)) return;
    if (kin_mtp_drafter_needs(&m, &bytes, &err) != 0) {
        say_no_block(err.text);
        return;
    }
    if (!is_block_worth(s, o, so, bytes)) return;
    if (open_draft_block(s, o, NULL, so, &err) == 0) return;
    say_no_block(err.text);
    close_draft_block(s, so);
}

// Opens what computes drafts before the model's own shard, which gets the remaining memory.
static int open_drafts(kin_session *s, const kin_session_options *o, const char *file, kin_shard_options *so, kin_err *err) {
    if (s->draft == KIN_DRAFT_OFF) return 0;
    if (file && s->draft != KIN_DRAFT_BLOCK && kin_draft_blocks_fill(file)) s->draft = KIN_DRAFT_BLOCK;
    if (file && s->draft != KIN_DRAFT_BLOCK) return o->dry_run ? 0 : open_draft_model(s, file, so, err);
    const bool is_exact = !so->ggml_kernels && so->windows.at[0].n_gpu_layers == 0 && !may_use_gpu(s, o);
    if (s->draft == KIN_DRAFT_BLOCK && !is_exact)
        return kin_err_set(err,
                           "--draft mtp needs kin's own CPU kernels for all layers; give --gpu-layers 0, and no --kernels ggml");
    if (s->draft == KIN_DRAFT_BLOCK) return open_draft_block(s, o, file, so, err);
    const bool drafts = (o->drafts || o->dry_run) && s->draft == KIN_DRAFT_AUTO;
    if (drafts && is_exact && !(o->fleet.cluster && s->devices.gpu.backend)) try_draft_block(s, o, so);
    return 0;
}

int kin_session_draft_blocks_bytes(const kin_session *s, const kin_session_options *o, const kin_work_facts *work,
                                   uint64_t *bytes, kin_err *err) {
    kin_shard_options so = kin_shard_options_defaults(&s->model);
    kin_devices devices = {.cpu.kernels = kin_kernels_at(0)};
    kin_draft_mode mode;
    const char *file;
    if (kin_draft_words_read(o->draft, &mode, &file, err) != 0) return KIN_FAIL;
    so.n_ctx = work->n_ctx;
    so.n_batch = work->n_batch;
    so.kv_type = kv_type_of(o);
    kin_mtp_drafter_options m = mtp_options(s, o, &so);
    m.path = file;
    m.devices = &devices;
    return kin_mtp_drafter_needs(&m, bytes, err);
}

// Variants of groups' sums with the same bits have the same number: mesh and star add in the order of the ranks.
static int32_t order_of_sums(const char *allreduce) {
    return strcmp(allreduce, "tree") == 0 ? 1 : strcmp(allreduce, "ring") == 0 ? 2 : 0;
}

// Standalone with a key of this machine, clustered with the cluster's, so that changing the code makes old pages useless.
static int open_kv_disk(kin_session *s, const kin_session_options *o, const kin_shard_options *so, kin_err *err) {
    kin_key key;
    const char *dir = cache_dir(o, s->kv_dir, sizeof s->kv_dir);
    if (!dir) return kin_err_set(err, "there is no home directory; give --cache DIR");
    int rc = o->fleet.cluster ? kin_identity_head_key(&key, &o->fleet.net, s->console, err)
                              : kin_identity_own_key(&key, &o->fleet.net, err);
    if (rc == 0) rc = kin_key_derive(s->kv_disk.secret, &key, KIN_KEY_FOR_PAGES, err);
    if (rc == 0) rc = kin_weights_model_identity(&s->model, &s->kv_context, err);
    kin_key_wipe(&key);
    const int32_t numbers[] = {so->kv_type, so->flash, so->ggml_kernels, (int32_t)kin_fleet_wire_type(&o->fleet),
                               order_of_sums(o->fleet.allreduce)};
    s->kv_context = kin_hash64(numbers, sizeof numbers, s->kv_context);
    s->kv_disk.cap = o->kv_disk_size;
    s->kv_disk.dir = rc == 0 ? dir : NULL;
    return rc;
}

// Without the KV disk, sequences are recomputed.
static void use_kv_disk(kin_session *s, const kin_session_options *o, kin_shard_options *so) {
    kin_err err;
    if (!o->keeps_kv || o->no_kv_disk) return;
    if (open_kv_disk(s, o, so, &err) != 0)
        kin_log(KIN_LOG_WARN, "the on-disk KV cache is disabled: %s; disable it with --no-kv-disk", err.text);
    so->kv_disk = s->kv_disk;
}

// Adds the model's version to the names of pages: after a file is replaced, older pages are not found. In a ring the content hash
// is known; standalone, hashing the whole file would take too long, so a copy of a file computes its sequences again.
static void name_pages(kin_session *s) {
    uint64_t version = kin_gguf_on_disk(s->model.gguf) ? kin_gguf_version(s->model.gguf) : 0;
    s->kv_context = s->clustered ? kin_hash64(s->fleet.manifest.hash, sizeof s->fleet.manifest.hash, s->kv_context)
                                 : kin_hash64(&version, sizeof version, s->kv_context);
}

static int open_devices(kin_session *s, const kin_session_options *o, kin_shard_options *so, kin_err *err) {
    kin_device_options dopts = kin_device_options_defaults();
    const bool needs_gpu = so->windows.at[0].n_gpu_layers > 0;
    dopts.n_threads = o->n_threads;
    dopts.repack = !o->no_repack;
    dopts.ggml_kernels = so->ggml_kernels;
    dopts.gpu = needs_gpu;
    dopts.gpu_if_any = o->dry_run || (o->fleet.cluster && wants_facts(o)) || wants_gpu(s, o);
    dopts.stop = s->console->stop;
    int rc = kin_devices_open(&s->devices, &dopts, err);
    if (rc == 0 || !dopts.gpu || !o->does_without_gpu) return rc;
    kin_log(KIN_LOG_WARN, "--gpu-layers %s: %s; the CPU computes all layers", o->gpu_layers ? o->gpu_layers : "all", err->text);
    so->windows = kin_windows_one(0, s->model.hp.n_layer, 0);
    dopts.gpu = false;
    return kin_devices_open(&s->devices, &dopts, err);
}

int kin_session_open(kin_session *s, const kin_session_options *o, int n_ctx, kin_err *err) {
    kin_time begun = kin_clock_now();
    kin_shard_options so = kin_shard_options_defaults(&s->model);
    const char *draft_file;
    if (read_draft(s, o, &draft_file, err) != 0) return KIN_FAIL;
    if (o->timeline && check_timeline(o->timeline, err) != 0) return KIN_FAIL;
    if (check_experts_place(s, o, err) != 0) return KIN_FAIL;
    const kin_layer_share share = share_of(o, s->model.hp.n_layer);
    so.windows.at[0] = kin_plan_window_at(0, &share);
    so.kv_type = kv_type_of(o);
    so.mode = mode_of(o);
    if (strcmp(o->weights, "window") == 0) so.sliding = (kin_sliding_window){o->window > 0 ? o->window : 2, o->retain};
    so.memory = o->memory;
    so.cache_cap = o->cache_size;

    if (o->n_ctx > 0)
        n_ctx = o->n_ctx;
    else if (n_ctx > s->model.hp.n_ctx_train)
        n_ctx = s->model.hp.n_ctx_train;
    if (kin_hparams_check_context(&s->model.hp, n_ctx, err) != 0) return KIN_FAIL;
    s->n_ctx = so.n_ctx = n_ctx;
    so.n_batch = o->n_batch < n_ctx ? o->n_batch : n_ctx;
    so.cache_dir = o->no_cache ? NULL : cache_dir(o, s->cache_dir, sizeof s->cache_dir);
    so.flash = !o->no_flash;
    so.ggml_kernels = wants_ggml_kernels(o);
    so.n_sequences = kin_shard_has_kernels(&s->model, &so) ? o->n_sequences : 0;
    s->window = kin_kv_window_of(&s->model.hp, n_ctx, so.n_batch, so.n_sequences);
    const kin_kv_options kv = {.type = so.kv_type, .window = s->window};
    s->checkpoint_gap = kin_kv_checkpoint_gap(&s->model.hp, &kv);
    so.progress = s->console->progress;
    use_kv_disk(s, o, &so);

    if (open_devices(s, o, &so, err) != 0) return KIN_FAIL;
    if (open_drafts(s, o, draft_file, &so, err) != 0) return KIN_FAIL;
    kin_time measuring = kin_clock_now();
    if (needs_facts(s, o)) {
        int rc = measure_machine(s, o, err);
        if (rc != 0 && !o->profile && goes_without_gpu(s, o, &so, err)) rc = wants_facts(o) ? measure_machine(s, o, err) : 0;
        if (rc != 0) return KIN_FAIL;
    }
    begun += kin_clock_now() - measuring; // measuring is not loading
    if ((o->timeline || o->records) && kin_timeline_open(&s->timeline, KIN_TIMELINE_TOKENS, err) != 0) return KIN_FAIL;
    if ((o->fleet.cluster ? open_fleet(s, o, &so, err) : open_standalone(s, o, &so, err)) != 0) return KIN_FAIL;
    name_pages(s);
    s->load_ms = kin_clock_ms(begun, kin_clock_now());
    warn_of_long_context(s);
    return 0;
}

int kin_session_check_files(const kin_session *s, kin_err *err) {
    return kin_gguf_check_files(s->model.gguf, err);
}

void kin_session_set_meanwhile(kin_session *s, void (*meanwhile)(void *user), void *user) {
    if (s->clustered) kin_cluster_set_meanwhile(s->fleet.cluster, meanwhile, user);
}

int kin_session_begin(kin_session *s, kin_err *err) {
    if (!s->clustered) return 0;
    int rc = kin_cluster_begin(s->fleet.cluster, err);
    s->head = kin_cluster_head(s->fleet.cluster); // after a failure, too: the old one may be closed
    s->shard = kin_cluster_shard(s->fleet.cluster);
    if (rc != 0) return KIN_FAIL;
    kin_head_set_chunk(s->head, s->fleet.o.n_chunk);
    return 0;
}

void kin_session_end(kin_session *s) {
    if (s->clustered) kin_cluster_end(s->fleet.cluster);
}

// ---- the timeline

static void add_own_events(kin_session *s) {
    kin_interval intervals[64];
    size_t n = 0;
    if (!s->shard) return;
    do {
        n = kin_shard_pop_intervals(s->shard, KIN_STREAM_READS, intervals, 64);
        kin_trace_add_disk(kin_timeline_own(s->timeline), intervals, n);
    } while (n == 64);
    kin_timeline_add_own(s->timeline, kin_timeline_row(s->timeline, s->clustered ? s->fleet.self.name : "this machine"));
}

void kin_session_mark(kin_session *s) {
    if (s->timeline_has_ended || kin_timeline_is_whole(s->timeline)) return;
    kin_timeline_mark(s->timeline, kin_clock_now());
    add_own_events(s);
}

int kin_session_end_timeline(kin_session *s, const kin_session_options *o, kin_err *err) {
    if (!s->timeline || s->timeline_has_ended) return 0;
    s->timeline_has_ended = true;
    if (s->clustered) kin_cluster_gather(s->fleet.cluster);
    add_own_events(s);
    kin_trace_turn(kin_timeline_own(s->timeline), false);
    return o->timeline ? kin_timeline_write(s->timeline, o->timeline, err) : 0;
}

void kin_session_close(kin_session *s) {
    if (s->clustered) {
        kin_fleet_close(&s->fleet);
    } else {
        kin_loopback_head_close(&s->alone);
        kin_shard_close(s->shard);
        kin_planner_close(s->planner);
    }
    s->planner = NULL;
    kin_draft_model_close(s->draft_model);
    s->draft_model = NULL;
    kin_mtp_drafter_close(s->mtp);
    s->mtp = NULL;
    kin_timeline_close(s->timeline);
    s->timeline = NULL;
    kin_devices_close(&s->devices);
    kin_tokenizer_free(s->tokenizer);
    kin_vocab_free(s->vocab);
    kin_model_close(&s->model);
    s->head = NULL;
    s->shard = NULL;
    s->tokenizer = NULL;
    s->vocab = NULL;
}

int kin_session_encode(const kin_session *s, const char *text, size_t len, bool parse_special, int32_t **ids, int *n,
                       kin_err *err) {
    *ids = NULL;
    if (!s->tokenizer) return kin_err_set(err, "%s: %s", s->model_name, s->vocab_err.text);
    unsigned flags = KIN_ENCODE_ADD_SPECIAL | (parse_special ? KIN_ENCODE_PARSE_SPECIAL : 0);
    size_t cap = len + 8; // a token is at least a byte of text, except bos, eos and a leading space
    *ids = malloc(cap * sizeof **ids);
    if (!*ids) return kin_err_set(err, "out of memory");
    int64_t got = kin_tokenizer_encode(s->tokenizer, text, len, flags, *ids, cap, err);
    if (got >= 0 && (size_t)got <= cap && got < 1 << 30) {
        *n = (int)got;
        return 0;
    }
    if (got >= 0) kin_err_set(err, "the prompt is too long");
    free(*ids);
    *ids = NULL;
    return KIN_FAIL;
}
