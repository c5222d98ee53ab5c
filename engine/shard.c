#include "engine/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/attention_rows.h"
#include "engine/border_log.h"
#include "engine/governor.h"
#include "engine/output_layer.h"
#include "engine/shard_graphs.h"
#include "engine/shard_memory.h"
#include "engine/shared_choice.h"
#include "engine/side_rows.h"
#include "engine/stage.h"
#include "kernels/kernels.h"
#include "model/blocks.h"
#include "model/kernel/ops.h"
#include "sys/team/team.h"
#include "sys/tls.h"

enum {
    NODES_PER_LAYER = 96, // more than any family's layer needs
};

// The graphs of one device, for its kin_layer_range of each window.
typedef struct layers_stage {
    kin_layers_graphs graphs;
    kin_stage *stage;    // NULL: no layers there
    kin_stage **divided; // [n_layer] those of divided layers, whose graphs alternate; NULL: other layers, or no layer is divided
} layers_stage;

// A batch in flight.
typedef struct step {
    bool open;
    kin_batch batch; // its arrays are the following
    int32_t *pos, *seq, *out;
    int32_t *n_seen;       // pos + 1: the cells of its sequence that a token attends to
    int32_t *plain_cells;  // cells, in 32 bits
    int32_t *window_cells; // those of windowed layers
    int64_t *cells;
    float *inputs;   // [n_batch, n_inputs] that came with the batch; NULL: they cross the borders, or the layers have none
    int32_t *tokens; // [n_batch]; NULL: no layer needs their numbers
    kin_kv_copies copies;
    int n_kv;
    // If the model has recurrent layers; else NULL:
    kin_run *runs;     // [n_tokens], of which n_runs are used
    int32_t *run_rows; // [n_tokens]
    int n_runs;
    kin_kv_later later; // copies made in each layer before the step
    int n_run;          // windows that were run
} step;

struct kin_shard {
    const kin_model *model;
    kin_hparams hp;      // for the share of each layer
    kin_graph_sums sums; // for a share
    kin_devices devices; // borrowed, except for the choice of kernels
    kin_shard_options o;
    kin_weights *weights;
    kin_kv *kv;
    kin_kv_pages *pages;     // NULL: no disk for pages, or not opened yet
    kin_graph_layer *layers; // [n_layer], filled in for the windows' layers
    layers_stage cpu, gpu;
    kin_output_layer *output; // NULL: it is not here
    bool flash;
    uint64_t program_bytes;  // of the process after opening and before computing: its buffers are still untouched
    uint64_t fixed_bytes;    // KV cache, buffers and the program itself
    uint64_t weights_budget; // initial budget
    kin_governor *governor;  // NULL: nothing to govern, or not started yet

    step *steps; // [n_steps + 1], the last one for layers that are recomputed
    // Inputs of one run, sized for n_batch.
    kin_attention_rows rows;
    int32_t *chosen;          // [n_batch, n_expert_used]
    float *half;              // [n_batch, n_ff] between the halves of a feed-forward block; NULL with experts
    kin_side_rows side;       // what crosses the windows' borders beside the residual
    kin_shared_choice choice; // of an indexer that later layers share
    float *before;            // [n_batch, stream width] a layer's input, if both of its blocks read it; else NULL
    int32_t *out_tokens;      // [n_batch]: the tokens of the rows whose output is needed
    float *out_inputs;        // [n_batch, n_inputs]: a step's inputs of the rows whose output is needed
};

static int min_int(int a, int b) {
    return a < b ? a : b;
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}

// ---- opening

static const kin_device *device_of_layer(const void *user, int il) {
    return kin_weights_device(user, il);
}

// KV cache and buffers come first; weights get the rest. Refuses a context that cannot fit, and says what would be needed.
static int plan_memory(kin_shard *s, kin_err *err) {
    const kin_shard_options *o = &s->o;
    uint64_t memory = kin_governor_room(o->memory), kv_bytes = kin_shard_cpu_kv_bytes(s->model, o);
    s->fixed_bytes = kin_shard_fixed_bytes(s->model, o) + o->beside;
    if (s->fixed_bytes <= memory) {
        s->weights_budget = o->mode == KIN_STREAM_RESIDENT ? memory - s->fixed_bytes : UINT64_MAX;
        return 0;
    }
    char a[32], b[32], c[32];
    return kin_err_set(err,
                       "a context of %d tokens in batches of %d needs %s for its KV cache and %s for computing%s, but only %s of "
                       "memory is %s; use a smaller --ctx or --batch",
                       o->n_ctx, o->n_batch, kin_size_format(kv_bytes, a, sizeof a),
                       kin_size_format(s->fixed_bytes - kv_bytes, b, sizeof b), o->beside ? " and drafts" : "",
                       kin_size_format(memory, c, sizeof c), o->memory && memory == o->memory ? "allowed" : "available");
}

// The output is on the GPU only if the whole model is.
static bool output_on_gpu(const kin_shard *s) {
    return s->o.output && kin_windows_n_gpu_layers(&s->o.windows) == s->model->hp.n_layer;
}

static kin_weights_options weights_options(const kin_shard *s) {
    return (kin_weights_options){
        .windows = s->o.windows,
        .slices = kin_share_slices(&s->o.share, s->model),
        .n_ctx = s->o.n_ctx,
        .output = s->o.output,
        .output_on_gpu = output_on_gpu(s),
        .stream_ends = s->o.stream_ends,
        .cache_dir = s->o.cache_dir,
        .cache_cap = s->o.cache_cap,
        .identity = s->o.identity,
        .mode = s->o.mode,
        .budget = s->weights_budget,
        .keeps_output = s->o.keeps_output,
        .sliding = s->o.sliding,
        .arrival = s->o.arrival,
        .progress = s->o.progress,
        .progress_user = s->o.progress_user,
    };
}

static int open_weights(kin_shard *s, kin_err *err) {
    kin_weights_options w = weights_options(s);
    return kin_weights_open(&s->weights, s->model, &s->devices, &w, err);
}

static void fill_layers(kin_shard *s) {
    for (int i = 0; i < s->o.windows.n; i++) {
        for (int il = s->o.windows.at[i].layer_begin; il < s->o.windows.at[i].layer_end; il++) {
            memcpy(s->layers[il].w, kin_weights_layer(s->weights, il), sizeof s->layers[il].w);
            if (s->o.share.rank > 0) // only rank 0 adds these to the sum
                s->layers[il].w[KIN_W_ATTN_OUT_BIAS] = s->layers[il].w[KIN_W_FFN_DOWN_EXPS_BIAS] = NULL;
            const int of = kin_kv_home(&s->hp, &s->o.windows.at[i], il);
            s->layers[il].k = kin_kv_k(s->kv, of);
            s->layers[il].v = kin_kv_v(s->kv, of);
            s->layers[il].index = kin_kv_index(s->kv, of);
            s->layers[il].states = kin_kv_layer_states(s->kv, il);
        }
    }
}

// Returns an upper bound of the nodes of a graph with this many layers.
static size_t max_nodes(const kin_shard *s, int n_layer) {
    return (size_t)n_layer * (size_t)(NODES_PER_LAYER + 2 * s->hp.n_expert_used) + 32;
}

// Opens the stages of divided layers with this device's blocks, in the compute buffer of all layers.
static int open_divided(const kin_shard *s, layers_stage *ls, kin_err *err) {
    if (kin_windows_n_cpu_moe(&s->o.windows) == 0) return 0;
    ls->divided = calloc((size_t)s->hp.n_layer, sizeof *ls->divided);
    if (!ls->divided) return kin_err_set(err, "out of memory");
    for (int i = 0; i < s->o.windows.n; i++) {
        const kin_window *w = &s->o.windows.at[i];
        const kin_layer_range of = kin_layers_in(w, kin_layers_of_window(w), KIN_LAYER_DIVIDED);
        for (int il = of.begin; il < of.end; il++) {
            const bool attends = kin_weights_device(s->weights, il)->is_gpu;
            if (ls->graphs.on_gpu && !attends) continue;
            const kin_stage_shape largest = {.variant = kin_variant_of_block(il, attends && !ls->graphs.on_gpu),
                                             .n_tokens = s->o.n_batch,
                                             .n_kv = kin_kv_n_cells(s->o.n_ctx),
                                             .n_out = s->o.n_batch};
            if (kin_stage_reserve(ls->stage, largest, err) != 0) return KIN_FAIL;
            if (kin_stage_open_beside(&ls->divided[il], ls->stage, max_nodes(s, 1), err) != 0) return KIN_FAIL;
        }
    }
    return 0;
}

static int open_stage(kin_shard *s, layers_stage *ls, bool on_gpu, kin_err *err) {
    const kin_hparams *hp = &s->hp;
    const kin_device *device = on_gpu ? &s->devices.gpu : &s->devices.cpu;
    kin_graph proto = {
        .hp = hp,
        .layers = s->layers,
        .rope_factors = kin_weights_rope_factors(s->weights, device),
        .flash = s->flash,
        .choice = s->choice.at,
        .sums = kin_share_is_whole(&s->o.share) ? NULL : &s->sums,
        .experts = on_gpu ? NULL : kin_weights_expert_source(s->weights),
        .kernels = device->kernels,
        .n_threads = s->devices.n_threads,
    };
    *ls = (layers_stage){.graphs = {.windows = &s->o.windows, .on_gpu = on_gpu}};
    int most = kin_windows_n_cpu_moe(&s->o.windows) > 0;
    for (int i = 0; i < s->o.windows.n; i++) most = max_int(most, kin_layers_graphs_n(&ls->graphs, i));
    if (most == 0) return 0;
    if (kin_stage_open(&ls->stage, device, &proto, max_nodes(s, most), kin_build_layers, &ls->graphs, err) != 0) return KIN_FAIL;
    for (int i = 0; i < s->o.windows.n; i++) {
        kin_stage_shape largest = {
            .variant = i, .n_tokens = s->o.n_batch, .n_kv = kin_kv_n_cells(s->o.n_ctx), .n_out = s->o.n_batch};
        if (kin_layers_graphs_n(&ls->graphs, i) == 0) continue;
        if (kin_stage_reserve(ls->stage, largest, err) != 0) return KIN_FAIL;
        largest.n_tokens = largest.n_out = 1; // a single token's attention may be split, which takes scratch
        if (kin_stage_reserve(ls->stage, largest, err) != 0) return KIN_FAIL;
    }
    return open_divided(s, ls, err);
}

static int open_output(kin_shard *s, const kin_kernels *kernels, kin_err *err) {
    if (!s->o.output && !s->o.stream_ends) return 0;
    const kin_device *device = output_on_gpu(s) ? &s->devices.gpu : &s->devices.cpu;
    return kin_output_layer_open(&s->output, s->model, &s->hp, s->weights, device, kernels, err);
}

// Returns the floats of all layers' inputs for a token.
static size_t n_inputs(const kin_hparams *hp) {
    return (size_t)hp->n_input * (size_t)hp->n_layer;
}

// True if some of this shard's layers need the tokens' numbers.
static bool needs_tokens(const kin_shard *s) {
    bool needs = false;
    for (int i = 0; i < s->o.windows.n; i++) needs = needs || s->o.windows.at[i].layer_begin < kin_hparams_token_layers(&s->hp);
    return needs;
}

static int open_steps(kin_shard *s, kin_err *err) {
    size_t n_batch = (size_t)s->o.n_batch;
    if (kin_side_rows_open(&s->side, &s->hp, s->o.n_batch, err) != 0) return KIN_FAIL;
    if (kin_shared_choice_open(&s->choice, &s->hp, s->o.n_batch, err) != 0) return KIN_FAIL;
    s->out_inputs = s->hp.n_input ? malloc(n_batch * n_inputs(&s->hp) * sizeof *s->out_inputs) : NULL;
    if (s->hp.n_input && !s->out_inputs) return kin_err_set(err, "out of memory");
    const bool has_states = kin_hparams_has_states(&s->hp), has_tokens = needs_tokens(s);
    s->out_tokens = has_tokens ? malloc(n_batch * sizeof *s->out_tokens) : NULL;
    if (has_tokens && !s->out_tokens) return kin_err_set(err, "out of memory");
    s->steps = calloc((size_t)s->o.n_steps + 1, sizeof *s->steps);
    for (int i = 0; i <= s->o.n_steps && s->steps; i++) {
        step *st = &s->steps[i];
        st->cells = malloc(n_batch * sizeof *st->cells);
        st->pos = malloc(n_batch * sizeof *st->pos);
        st->seq = malloc(n_batch * sizeof *st->seq);
        st->out = malloc(n_batch * sizeof *st->out);
        st->n_seen = malloc(n_batch * sizeof *st->n_seen);
        st->plain_cells = malloc(n_batch * sizeof *st->plain_cells);
        st->window_cells = malloc(n_batch * sizeof *st->window_cells);
        st->tokens = has_tokens ? malloc(n_batch * sizeof *st->tokens) : NULL;
        if (has_states) {
            st->runs = malloc(n_batch * sizeof *st->runs);
            st->run_rows = malloc(n_batch * sizeof *st->run_rows);
            if (!st->runs || !st->run_rows) return kin_err_set(err, "out of memory");
        }
        if (!st->cells || !st->pos || !st->seq || !st->out || !st->n_seen || !st->plain_cells || !st->window_cells ||
            (has_tokens && !st->tokens))
            return kin_err_set(err, "out of memory");
    }
    return s->steps ? 0 : kin_err_set(err, "out of memory");
}

static bool has_parallel_layers(const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).is_parallel) return true;
    return false;
}

static int open_inputs(kin_shard *s, kin_err *err) {
    const kin_hparams *hp = &s->hp;
    size_t n_batch = (size_t)s->o.n_batch;
    s->layers = calloc((size_t)hp->n_layer, sizeof *s->layers);
    s->chosen = malloc(n_batch * (size_t)(hp->n_expert_used + 1) * sizeof *s->chosen);
    s->half = hp->n_ff > 0 ? malloc(n_batch * (size_t)hp->n_ff * sizeof *s->half) : NULL;
    s->before = has_parallel_layers(hp) ? malloc(n_batch * (size_t)kin_hparams_stream_width(hp) * sizeof *s->before) : NULL;
    bool ok = s->layers && s->chosen && (s->half || hp->n_ff == 0) && (s->before || !has_parallel_layers(hp));
    if (!ok) return kin_err_set(err, "out of memory");
    const bool has_tables = kin_shard_kv_options(s->model, &s->o).window.n_blocks > 0;
    if (kin_attention_rows_open(&s->rows, s->o.n_batch, s->o.n_ctx, hp->window, has_tables, err) != 0) return KIN_FAIL;
    return open_steps(s, err);
}

static void set_budget(void *user, uint64_t budget) {
    kin_weights_set_budget(user, budget);
}

static uint64_t anonymous_bytes(void *user) {
    return kin_weights_anonymous_bytes(user);
}

// Only weights that can be streamed can free memory.
static int open_governor(kin_shard *s, kin_err *err) {
    uint64_t most = kin_weights_most_useful_budget(s->weights);
    if (s->o.mode != KIN_STREAM_RESIDENT || s->o.sliding.n_blocks > 0 || most == 0) return 0;
    kin_governor_options o = {
        .memory = s->o.memory,
        .fixed = s->fixed_bytes,
        .budget = s->weights_budget,
        .most_useful = most,
        .set = set_budget,
        .anonymous = anonymous_bytes,
        .user = s->weights,
    };
    return kin_governor_start(&s->governor, &o, err);
}

// Fails if only kin's kernels compute the model, and some layers are without them. given: the caller's options.
static int check_kernels(const kin_shard *s, const kin_shard_options *given, int n_gpu_layers, kin_err *err) {
    const char *lacks = s->devices.cpu.kernels && n_gpu_layers == 0 ? NULL : kin_blocks_without_ggml(&s->hp, given->n_ctx);
    kin_shard_options asked = *given;
    kin_err why;
    if (!lacks) return 0;
    if (s->devices.options.ggml_kernels) asked.ggml_kernels = true;
    if (n_gpu_layers > 0)
        kin_err_set(&why, "some of its layers are on the GPU");
    else if (kin_shard_check_kernels(s->model, &asked, &why) == 0)
        kin_err_set(&why, "they need a vector unit that this processor lacks");
    return kin_err_set(err, "this model needs kin's CPU kernels for %s, but %s", lacks, why.text);
}

static int open_shard(kin_shard *s, const kin_shard_options *given, kin_err *err) {
    const kin_shard_options *o = &s->o;
    int n_gpu_layers = kin_windows_n_gpu_layers(&o->windows);
    if (kin_windows_n_cpu_moe(&o->windows) > 0 && s->hp.n_expert == 0)
        return kin_err_set(err, "%d layers with their experts on the CPU, but this model has no experts",
                           kin_windows_n_cpu_moe(&o->windows));
    if (n_gpu_layers > 0 && !s->devices.gpu.backend)
        return kin_err_set(err, "%d layers for the GPU, but no GPU is open", n_gpu_layers);
    if (n_gpu_layers > 0 && !kin_share_is_whole(&o->share))
        return kin_err_set(err, "devices of a group share layers on the CPU only, not on a GPU");
    if (kin_share_check(&o->share, s->model, (int)o->kv_type, err) != 0) return KIN_FAIL;
    if (kin_kv_check_type(&s->hp, o->kv_type, err) != 0) return KIN_FAIL;
    if (check_kernels(s, given, n_gpu_layers, err) != 0) return KIN_FAIL;
    const kin_kernels *kernels = s->devices.cpu.kernels ? s->devices.cpu.kernels : kin_kernels_choose(err);
    if (!kernels) return KIN_FAIL;
    if (plan_memory(s, err) != 0 || open_inputs(s, err) != 0 || open_weights(s, err) != 0) return KIN_FAIL;

    kin_kv_options kv = kin_shard_kv_options(s->model, o);
    if (kin_kv_open(&s->kv, &s->hp, &kv, device_of_layer, s->weights, err) != 0) return KIN_FAIL;
    fill_layers(s);

    s->flash = o->flash && kin_graphs_have_flash(&s->hp, s->o.kv_type, &s->devices.cpu) &&
               (n_gpu_layers == 0 || kin_graphs_have_flash(&s->hp, s->o.kv_type, &s->devices.gpu));
    if (open_stage(s, &s->cpu, false, err) != 0 || open_stage(s, &s->gpu, true, err) != 0) return KIN_FAIL;
    if (open_output(s, kernels, err) != 0) return KIN_FAIL;
    return kin_weights_is_arriving(s->weights) ? 0 : open_governor(s, err);
}

static kin_shard *new_shard(const kin_model *model, const kin_devices *devices, const kin_shard_options *o) {
    kin_assert(kin_windows_valid(&o->windows, model->hp.n_layer));
    kin_assert(o->n_ctx > 0 && o->n_batch > 0 && o->n_steps > 0);
    kin_shard *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->model = model;
    s->hp = kin_share_hparams(&o->share, model);
    s->sums.sum = o->sum;
    s->devices = *devices;
    s->o = *o;
    if (!kin_shard_has_kernels(model, o)) s->devices.cpu.kernels = NULL;
    if (!s->devices.cpu.kernels) s->o.ggml_kernels = true;
    if (s->o.n_batch > s->o.n_ctx) s->o.n_batch = s->o.n_ctx;
    return s;
}

int kin_shard_prepack(const kin_model *model, const kin_devices *devices, const kin_shard_options *o, const kin_windows *but,
                      const atomic_bool *stop, kin_packed **held, kin_err *err) {
    *held = NULL;
    kin_shard *s = new_shard(model, devices, o);
    if (!s) return kin_err_set(err, "out of memory");
    kin_weights_options w = weights_options(s);
    w.arrival = NULL;
    w.budget = UINT64_MAX;
    int rc = kin_weights_prepack(model, &s->devices, &w, but, stop, held, err);
    free(s);
    return rc;
}

int kin_shard_open(kin_shard **out, const kin_model *model, const kin_devices *devices, const kin_shard_options *o,
                   kin_err *err) {
    *out = NULL;
    if (kin_hparams_check_context(&model->hp, o->n_ctx, err) != 0) return KIN_FAIL;
    kin_shard *s = new_shard(model, devices, o);
    if (!s) return kin_err_set(err, "out of memory");
    if (open_shard(s, o, err) != 0) {
        kin_shard_close(s);
        return KIN_FAIL;
    }
    s->program_bytes = kin_governor_held(false);
    *out = s;
    return 0;
}

static void close_steps(kin_shard *s) {
    for (int i = 0; i <= s->o.n_steps && s->steps; i++) {
        free(s->steps[i].cells);
        free(s->steps[i].pos);
        free(s->steps[i].seq);
        free(s->steps[i].out);
        free(s->steps[i].n_seen);
        free(s->steps[i].plain_cells);
        free(s->steps[i].window_cells);
        free(s->steps[i].inputs);
        free(s->steps[i].tokens);
        free(s->steps[i].runs);
        free(s->steps[i].run_rows);
        free(s->steps[i].later.states.at);
        free(s->steps[i].later.blocks.at);
    }
    free(s->steps);
}

static void close_layers(const kin_shard *s, layers_stage *ls) {
    for (int il = 0; ls->divided && il < s->hp.n_layer; il++) kin_stage_close(ls->divided[il]);
    free(ls->divided);
    kin_stage_close(ls->stage);
}

void kin_shard_close(kin_shard *s) {
    if (!s) return;
    if (s->devices.cpu.compute.team) kin_team_rest(s->devices.cpu.compute.team);
    kin_governor_stop(s->governor);
    close_layers(s, &s->cpu);
    close_layers(s, &s->gpu);
    kin_output_layer_close(s->output);
    kin_kv_pages_close(s->pages);
    kin_kv_close(s->kv);
    kin_weights_close(s->weights);
    close_steps(s);
    free(s->layers);
    kin_attention_rows_close(&s->rows);
    free(s->chosen);
    free(s->half);
    free(s->before);
    free(s->out_inputs);
    kin_side_rows_close(&s->side);
    kin_shared_choice_close(&s->choice);
    free(s->out_tokens);
    free(s);
}

bool kin_shard_is_exact(const kin_shard *s) {
    return s->devices.cpu.kernels && kin_windows_n_gpu_layers(&s->o.windows) == 0;
}

int kin_shard_n_windows(const kin_shard *s) {
    return s->o.windows.n;
}

int kin_shard_row_width(const kin_shard *s, int i_window, bool is_after) {
    const kin_window *w = &s->o.windows.at[i_window];
    return kin_border_before(&s->hp, is_after ? w->layer_end : w->layer_begin).width;
}

// ---- steps

static step *free_step(kin_shard *s, int *number) {
    for (int i = 0; i < s->o.n_steps; i++) {
        *number = i;
        if (!s->steps[i].open) return &s->steps[i];
    }
    return NULL;
}

// Once the last weights have arrived in the background: begins streaming, and starts the governor.
static int settle(kin_shard *s, kin_err *err) {
    if (!kin_weights_is_arriving(s->weights) || !kin_weights_has_arrived(s->weights)) return 0;
    if (kin_weights_settle(s->weights, err) != 0) return KIN_FAIL;
    kin_stage_forget(s->cpu.stage); // a weight may now have another layout
    for (int il = 0; s->cpu.divided && il < s->hp.n_layer; il++) kin_stage_forget(s->cpu.divided[il]);
    kin_output_layer_forget(s->output);
    return open_governor(s, err);
}

// ggml's operator writes only one cell per token.
static bool has_ggml_attention(const kin_shard *s) {
    return !s->devices.cpu.kernels || kin_windows_n_gpu_layers(&s->o.windows) > 0;
}

static void note_cells(const kin_shard *s, step *st) {
    st->n_kv = kin_kv_n_used(s->kv);
    for (int i = 0; i < st->batch.n_tokens; i++) {
        st->n_seen[i] = st->pos[i] + 1;
        st->plain_cells[i] = (int32_t)st->cells[i];
        st->window_cells[i] = (int32_t)kin_kv_window_cell(s->kv, st->seq[i], st->pos[i]);
    }
}

// They come from the network.
static int check_tokens(const kin_shard *s, const kin_batch *batch, kin_err *err) {
    if (!batch->tokens) return kin_err_set(err, "a step without the numbers of its tokens, which some layers need");
    for (int i = 0; i < batch->n_tokens; i++)
        if (batch->tokens[i] < 0 || batch->tokens[i] >= s->hp.n_vocab)
            return kin_err_set(err, "token %d is not in the vocabulary (0..%d)", (int)batch->tokens[i], s->hp.n_vocab - 1);
    return 0;
}

// Most steps have none: the inputs of a ring's layers cross its borders.
static int make_room_for_inputs(const kin_shard *s, step *st, const kin_batch *batch, kin_err *err) {
    if (batch->inputs && !st->inputs) {
        st->inputs = malloc((size_t)s->o.n_batch * n_inputs(&s->hp) * sizeof *st->inputs);
        if (!st->inputs) return kin_err_set(err, "out of memory");
    }
    if (batch->inputs) return 0;
    free(st->inputs);
    st->inputs = NULL;
    return 0;
}

int kin_shard_begin(kin_shard *s, const kin_batch *batch, kin_err *err) {
    kin_assert(batch->n_tokens > 0 && batch->n_tokens <= s->o.n_batch);
    kin_assert(!batch->out || (batch->n_out > 0 && batch->n_out <= batch->n_tokens));
    int number;
    step *st = free_step(s, &number);
    if (!st) return kin_err_set(err, "%d steps are in flight already", s->o.n_steps);
    if (st->tokens && check_tokens(s, batch, err) != 0) return KIN_FAIL;
    if (make_room_for_inputs(s, st, batch, err) != 0) return KIN_FAIL;
    if (settle(s, err) != 0 || kin_kv_place(s->kv, batch, st->cells, &st->copies, err) != 0) return KIN_FAIL;
    if (st->copies.n > 0 && has_ggml_attention(s)) {
        kin_kv_undo(s->kv, batch);
        return kin_err_set(err, "a step that branches needs kin's kernels for all layers");
    }
    size_t n = (size_t)batch->n_tokens;
    memcpy(st->pos, batch->pos, n * sizeof *st->pos);
    if (batch->seq)
        memcpy(st->seq, batch->seq, n * sizeof *st->seq);
    else
        memset(st->seq, 0, n * sizeof *st->seq);
    if (batch->out) memcpy(st->out, batch->out, (size_t)batch->n_out * sizeof *st->out);
    if (st->inputs) memcpy(st->inputs, batch->inputs, n * n_inputs(&s->hp) * sizeof *st->inputs);
    if (st->tokens) memcpy(st->tokens, batch->tokens, n * sizeof *st->tokens);
    st->batch = *batch;
    st->batch.tokens = st->tokens;
    st->batch.inputs = st->inputs;
    st->batch.pos = st->pos;
    st->batch.seq = st->seq;
    st->batch.out = batch->out ? st->out : NULL;
    st->batch.n_ops = 0; // applied
    note_cells(s, st);
    if (st->runs) st->n_runs = kin_kv_runs(s->kv, &st->batch, st->runs, st->run_rows);
    kin_kv_swap_later(s->kv, &st->later);
    st->n_run = 0;
    st->open = true;
    return number;
}

static void copy_later(kin_shard *s, const step *st, int i_window) {
    const kin_window *window = &s->o.windows.at[i_window];
    for (int il = window->layer_begin; il < window->layer_end; il++) kin_kv_copy_later(s->kv, il, &st->later);
}

// Copies that a step would have made are for other sequences, too, so they are made if it does not reach all windows.
void kin_shard_end(kin_shard *s, int number, bool keep) {
    step *st = &s->steps[number];
    kin_assert(st->open);
    st->open = false;
    while (st->n_run < s->o.windows.n) copy_later(s, st, st->n_run++);
    if (!keep) kin_kv_undo(s->kv, &st->batch);
}

// ---- pages

// Identifies what a page's bytes depend on besides the tokens and the layer: the model, and how it is computed. Independent of
// which layers this shard has.
static int make_variant(const kin_shard *s, uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err) {
    const int32_t how[] = {(int32_t)s->o.kv_type, s->devices.cpu.kernels ? KIN_KV_FORMAT : 0, s->flash, KIN_STATE_FORMAT};
    const size_t n_how = sizeof how - (kin_hparams_has_states(&s->hp) ? 0 : sizeof how[0]);
    uint64_t model = s->o.kv_disk.model ? s->o.kv_disk.model : s->o.identity;
    if (!model && kin_weights_model_identity(s->model, &model, err) != 0) return KIN_FAIL;
    memset(variant, 0, KIN_KV_VARIANT_BYTES);
    kin_put_u64(variant, model);
    kin_put_u64(variant + 8, kin_kv_page_bytes(s->kv));
    kin_put_u64(variant + 16, kin_hash64(how, n_how, kin_hash64(&s->o.share, sizeof s->o.share, 2)));
    return 0;
}

// Opening does not touch the disk before there is a page. Failures are logged once.
static void open_pages(kin_shard *s) {
    uint8_t variant[KIN_KV_VARIANT_BYTES];
    kin_err err;
    if (s->pages || !s->o.kv_disk.dir) return;
    kin_border_rows rows = {.n_embd = kin_hparams_stream_width(&s->hp), .n_batch = s->o.n_batch, .wire = s->o.wire};
    if (!kin_shard_has_borders(s->model, &s->o)) rows.n_embd = 0;
    if (make_variant(s, variant, &err) == 0 && kin_kv_pages_open(&s->pages, s->kv, &rows, &s->o.kv_disk, variant, &err) == 0)
        return;
    kin_log(KIN_LOG_WARN, "the on-disk KV cache is disabled: %s", err.text);
    s->o.kv_disk.dir = NULL;
}

static bool has_open_step(const kin_shard *s) {
    bool has = false;
    for (int i = 0; i < s->o.n_steps; i++) has = has || s->steps[i].open;
    return has;
}

int kin_shard_pages(kin_shard *s, const kin_batch *batch, kin_err *err) {
    if (kin_kv_place(s->kv, &(kin_batch){.ops = batch->ops, .n_ops = batch->n_ops}, NULL, NULL, err) != 0) return KIN_FAIL;
    if (!has_open_step(s)) kin_kv_copy_now(s->kv);
    if (!batch->pages) return 0;
    open_pages(s);
    return kin_kv_pages_handle(s->pages, s->kv, batch->pages, err);
}

// ---- running

// Returns the stage that runs single blocks of a layer.
static kin_stage *stage_of(const layers_stage *ls, int il) {
    return ls->divided && ls->divided[il] ? ls->divided[il] : ls->stage;
}

// Before a feed-forward block with experts, by ggml's kernels: runs its router, and brings the chosen experts into memory.
static int fetch_experts(kin_shard *s, int il, kin_stage_shape shape, const kin_stage_inputs *in, kin_err *err) {
    if (s->devices.cpu.kernels) return 0;
    kin_stage_shape route = {
        .variant = kin_variant_of_block(il, KIN_VARIANT_ROUTE), .n_tokens = shape.n_tokens, .n_out = shape.n_tokens};
    if (kin_stage_run(s->cpu.stage, route, in, s->chosen, err) != 0) return KIN_FAIL;
    kin_weights_fetch_experts(s->weights, il, s->chosen, (size_t)shape.n_tokens * (size_t)s->model->hp.n_expert_used);
    return 0;
}

// Runs one block with its weights acquired: in->x -> y; the two may be the same memory.
static int run_block(kin_shard *s, int il, int block, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    const kin_layer layer = kin_layer_of(&s->hp, il);
    const bool has_experts = layer.has_experts && block == (layer.has_no_attention ? 0 : 1);
    int number = kin_weights_compute_block(s->weights, il) + block;
    shape.variant = kin_variant_of_block(il, block);
    if (kin_weights_acquire(s->weights, number, err) != 0) return KIN_FAIL;
    int rc = has_experts ? fetch_experts(s, il, shape, in, err) : 0;
    if (rc == 0) rc = kin_stage_run(stage_of(&s->cpu, il), shape, in, y, err);
    kin_weights_release(s->weights, number);
    return rc;
}

// Runs the block that a layer begins with, where its weights are.
static int run_first_block(kin_shard *s, int il, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    if (!kin_weights_device(s->weights, il)->is_gpu) return run_block(s, il, 0, shape, in, y, err);
    shape.variant = kin_variant_of_block(il, 0);
    return kin_stage_run(s->gpu.divided[il], shape, in, y, err);
}

// Copies the rows of a layer's input whose output is needed: to // f32 [n_out, stream width], which may be the input's memory.
static void copy_input_of_out(const kin_shard *s, kin_stage_shape shape, const kin_stage_inputs *in, float *to) {
    const size_t width = (size_t)kin_hparams_stream_width(&s->hp);
    for (int i = 0; i < shape.n_out; i++) {
        size_t row = (size_t)(shape.n_out < shape.n_tokens ? in->out_rows[i] : i);
        memmove(to + (size_t)i * width, in->x + row * width, width * sizeof *to);
    }
}

// Selects the inputs of the rows whose output is needed.
static const float *inputs_of_out(const kin_shard *s, kin_stage_shape shape, const kin_stage_inputs *in) {
    const size_t n = n_inputs(&s->hp);
    if (!in->inputs || shape.n_out == shape.n_tokens) return in->inputs;
    for (int i = 0; i < shape.n_out; i++)
        memcpy(s->out_inputs + (size_t)i * n, in->inputs + (size_t)in->out_rows[i] * n, n * sizeof *s->out_inputs);
    return s->out_inputs;
}

// The same of the tokens' numbers.
static const int32_t *tokens_of_out(const kin_shard *s, kin_stage_shape shape, const kin_stage_inputs *in) {
    if (!in->tokens || shape.n_out == shape.n_tokens) return in->tokens;
    for (int i = 0; i < shape.n_out; i++) s->out_tokens[i] = in->tokens[in->out_rows[i]];
    return s->out_tokens;
}

// Runs a layer that is a feed-forward block only, for the rows whose output is needed.
static int run_ffn_alone(kin_shard *s, int il, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    const kin_stage_shape ffn = {.n_tokens = shape.n_out, .n_kv = shape.n_kv, .n_out = shape.n_out};
    kin_stage_inputs ffn_in = *in;
    if (shape.n_out < shape.n_tokens) {
        copy_input_of_out(s, shape, in, y);
        ffn_in.x = y;
    }
    ffn_in.inputs = inputs_of_out(s, shape, in);
    ffn_in.tokens = tokens_of_out(s, shape, in);
    return run_block(s, il, 0, ffn, &ffn_in, y, err);
}

// Runs a layer block by block. Rows whose output is not needed are dropped in the attention of the model's last layer.
static int run_layer(kin_shard *s, int il, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    const bool is_parallel = kin_layer_of(&s->hp, il).is_parallel;
    if (kin_layer_of(&s->hp, il).has_no_attention) return run_ffn_alone(s, il, shape, in, y, err);
    if (is_parallel) copy_input_of_out(s, shape, in, s->before); // before attention overwrites it
    if (run_first_block(s, il, shape, in, y, err) != 0) return KIN_FAIL;
    if (kin_layer_of(&s->hp, il).has_no_ff) return 0;
    kin_stage_shape ffn = {.n_tokens = shape.n_out, .n_kv = shape.n_kv, .n_out = shape.n_out};
    kin_stage_inputs ffn_in = *in;
    ffn_in.x = is_parallel ? s->before : y;
    ffn_in.inputs = inputs_of_out(s, shape, in);
    ffn_in.tokens = tokens_of_out(s, shape, in);
    if (kin_layer_of(&s->hp, il).has_experts || s->hp.n_streams > 1) return run_block(s, il, 1, ffn, &ffn_in, y, err);
    if (run_block(s, il, 1, ffn, &ffn_in, s->half, err) != 0) return KIN_FAIL;
    ffn.n_x = kin_layer_of(&s->hp, il).n_ff;
    ffn.is_half = true;
    ffn_in.x = s->half;
    ffn_in.residual = y;
    return run_block(s, il, 2, ffn, &ffn_in, y, err);
}

static int run_one_by_one(kin_shard *s, kin_layer_range of, kin_stage_shape shape, const kin_stage_inputs *in, float *y,
                          kin_err *err) {
    kin_stage_inputs layer_in = *in;
    for (int il = of.begin; il < of.end; il++) {
        kin_stage_shape layer = shape;
        if (il < of.end - 1) layer.n_out = layer.n_tokens;
        if (run_layer(s, il, layer, &layer_in, y, err) != 0) return KIN_FAIL;
        layer_in.x = y;
    }
    return 0;
}

// is_divided: only the layers' feed-forward blocks are on the CPU.
static int run_cpu(kin_shard *s, kin_layer_range of, bool is_divided, kin_stage_shape shape, bool with_output,
                   const kin_stage_inputs *in, float *y, kin_err *err) {
    const bool by_block = kin_weights_begin(s->weights, kin_weights_compute_block(s->weights, of.begin), with_output);
    if (!is_divided && !by_block) return kin_stage_run(s->cpu.stage, shape, in, y, err);
    return run_one_by_one(s, of, shape, in, y, err);
}

// Fills in what attention needs to know of a step's tokens: plain arrays for kin's kernels, masks for ggml's.
static void fill_rows(kin_shard *s, const step *st, bool plain, bool masks, kin_stage_inputs *in) {
    in->all = (kin_rows){.pos = st->pos, .cells = st->plain_cells, .n_cells = st->n_seen, .window_cells = st->window_cells};
    in->all.copies = st->copies.at;
    in->all.n_copies = st->copies.n;
    in->all.runs = st->runs;
    in->all.n_runs = st->n_runs;
    kin_attention_rows_fill(&s->rows, s->kv, &st->batch, st->n_kv, plain, masks, in);
}

// ---- keys and values that layers read of a layer before their window

static int64_t cell_of(const kin_shard *s, const step *st, int il, int token) {
    return kin_kv_has_window_cells(s->kv, il) ? st->window_cells[token] : st->cells[token];
}

// Writes a source's keys and values into the layer that has the copy, of all tokens and their extra cells.
static void write_keys(kin_shard *s, const step *st, int il, int source) {
    const kin_kv_cells cells = kin_kv_cells_of(s->kv, il);
    const bool has_window = kin_kv_has_window_cells(s->kv, il);
    for (int i = 0; i < st->batch.n_tokens; i++)
        kin_kv_cells_set(&cells, cell_of(s, st, il, i), kin_side_rows_keys(&s->side, source, i));
    for (int i = 0; i < st->copies.n; i++) {
        const kin_row_cell *copy = &st->copies.at[i];
        kin_kv_cells_set(&cells, has_window ? copy->window_cell : copy->cell, kin_side_rows_keys(&s->side, source, copy->row));
    }
}

static void read_keys(kin_shard *s, const step *st, int source) {
    const kin_kv_cells cells = kin_kv_cells_of(s->kv, source);
    for (int i = 0; i < st->batch.n_tokens; i++)
        kin_kv_cells_get(&cells, cell_of(s, st, source, i), kin_side_rows_keys(&s->side, source, i));
}

// Returns the layer that an own copy of layer `il`, which is here, is of; KIN_FAIL: its cells are no copy.
static int source_of_copy(const kin_shard *s, int il) {
    const int source = kin_kv_source(s->kv, il);
    return source < il && kin_kv_has_layer(s->kv, il) ? source : KIN_FAIL;
}

// Writes the copies of a window, which the border before it has brought.
static void write_copies(kin_shard *s, const step *st, const kin_window *w) {
    for (int il = w->layer_begin; il < w->layer_end; il++) {
        const int source = source_of_copy(s, il);
        if (source >= 0 && source < w->layer_begin) write_keys(s, st, il, source);
    }
}

// Copies keys and values of layers that were computed on the CPU for layers on the GPU.
static void copy_keys(kin_shard *s, const step *st, kin_layer_range on_cpu, kin_layer_range on_gpu) {
    for (int il = on_gpu.begin; il < on_gpu.end; il++) {
        const int source = source_of_copy(s, il);
        if (source < on_cpu.begin) continue;
        read_keys(s, st, source);
        write_keys(s, st, il, source);
    }
}

static int run_on_devices(kin_shard *s, const step *st, int i_window, kin_layer_range of, int n_out, const float *x, float *y,
                          kin_err *err) {
    const kin_batch *batch = &st->batch;
    const kin_window *window = &s->o.windows.at[i_window];
    kin_stage_inputs in = {.x = x, .pos = st->pos, .cells = st->cells};
    in.inputs = st->inputs ? st->inputs : s->side.inputs;
    in.tokens = st->tokens;
    in.ngrams = s->side.ngrams;
    const kin_layer_range on_cpu = kin_layers_in(window, of, KIN_LAYER_ON_CPU),
                          divided = kin_layers_in(window, of, KIN_LAYER_DIVIDED),
                          on_gpu = kin_layers_in(window, of, KIN_LAYER_ON_GPU);
    const bool cpu = on_cpu.begin < on_cpu.end, both = divided.begin < divided.end, gpu = on_gpu.begin < on_gpu.end;
    const bool plain = (cpu || both) && s->devices.cpu.kernels, with_output = s->output && !batch->no_output;
    if (n_out < batch->n_tokens) in.out_rows = st->out;
    fill_rows(s, st, plain, gpu || both || !plain, &in);
    kin_stage_shape shape = {
        .variant = kin_variant_of_layers(&s->o.windows, i_window, of), .n_tokens = batch->n_tokens, .n_kv = st->n_kv};
    kin_stage_shape cpu_shape = shape;
    cpu_shape.n_out = gpu || both ? batch->n_tokens : n_out;
    // only scratch memory depends on it
    if (plain) cpu_shape.n_kv = (st->n_kv + KIN_SPAN_CELLS - 1) / KIN_SPAN_CELLS * KIN_SPAN_CELLS;
    if (cpu && run_cpu(s, on_cpu, false, cpu_shape, with_output, &in, y, err) != 0) return KIN_FAIL;
    if (!both && !gpu) return 0;
    const kin_layer_range attends = {both ? divided.begin : on_gpu.begin, gpu ? on_gpu.end : divided.end};
    if (kin_weights_await_gpu(s->weights, attends.begin, attends.end, err) != 0) return KIN_FAIL;
    if (cpu) copy_keys(s, st, on_cpu, attends);
    if (cpu) in.x = y;
    shape.n_out = gpu ? batch->n_tokens : n_out;
    if (both && run_cpu(s, divided, true, shape, with_output, &in, y, err) != 0) return KIN_FAIL;
    if (!gpu) return 0;
    if (both) in.x = y;
    shape.n_out = n_out;
    return kin_stage_run(s->gpu.stage, shape, &in, y, err);
}

// x // f32 [n_tokens, stream width] before kin_layer_range of a window -> y // f32 [n_out, stream width] after them. Fails if the
// model's files were modified, so that results of such weights are never passed on or stored.
static int run_layers(kin_shard *s, const step *st, int i_window, kin_layer_range of, int n_out, const float *x, float *y,
                      kin_err *err) {
    int rc = run_on_devices(s, st, i_window, of, n_out, x, y, err);
    if (kin_weights_check_experts(s->weights, err) != 0) rc = KIN_FAIL;
    return kin_gguf_check_files(s->model->gguf, err) == 0 ? rc : KIN_FAIL; // its error is more specific than a failed read
}

// Logs the hidden states y // f32 [n_tokens, stream width] at the border before layer `il`. In a step that branches, a token is
// logged with its extra cells before the tokens that follow it there.
static void pass_border(kin_shard *s, const step *st, int il, const float *y) {
    if (st->copies.n == 0) {
        kin_kv_pages_pass(s->pages, il, st->cells, st->batch.n_tokens, y);
        return;
    }
    for (int i = 0; i < st->batch.n_tokens; i++, y += kin_hparams_stream_width(&s->hp)) {
        kin_kv_pages_pass(s->pages, il, &st->cells[i], 1, y);
        for (int c = 0; c < st->copies.n; c++) {
            int64_t cell = st->copies.at[c].cell;
            if (st->copies.at[c].row == i) kin_kv_pages_pass(s->pages, il, &cell, 1, y);
        }
    }
}

// Runs a window between borders that more crosses than the residual: x // f32 [n_tokens, width of the first border] -> y // f32
// [n_out, width of the other one]. They may be the same memory.
static int run_between_borders(kin_shard *s, const step *st, int i_window, int n_out, const float *x, float *y, kin_err *err) {
    const kin_window *w = &s->o.windows.at[i_window];
    const kin_border before = kin_border_before(&s->hp, w->layer_begin), after = kin_border_before(&s->hp, w->layer_end);
    const bool is_last = w->layer_end == s->hp.n_layer;
    const int n = st->batch.n_tokens;
    kin_side_rows_take(&s->side, &s->hp, w->layer_begin, n, x);
    if (before.choice > 0 && kin_shared_choice_take(&s->choice, n, st->n_seen, before.choice, s->side.choice, err) != 0)
        return KIN_FAIL;
    write_copies(s, st, w);
    float *result = is_last ? y : s->side.x;
    if (run_layers(s, st, i_window, kin_layers_of_window(w), n_out, s->side.x, result, err) != 0) return KIN_FAIL;
    for (int i = 0; i < after.n_sources; i++)
        if (after.sources[i] >= w->layer_begin) read_keys(s, st, after.sources[i]);
    if (after.choice > 0) kin_shared_choice_give(&s->choice, n, st->n_seen, after.choice, s->side.choice);
    if (!is_last) kin_side_rows_give(&s->side, &s->hp, w->layer_end, n_out, y);
    return 0;
}

int kin_shard_run(kin_shard *s, int number, int i_window, const float *x, float *y, kin_err *err) {
    const step *st = &s->steps[number];
    const kin_window *window = &s->o.windows.at[i_window];
    kin_assert(st->open && i_window >= 0 && i_window < s->o.windows.n);
    bool is_last = window->layer_end == s->model->hp.n_layer;
    int n_out = is_last ? kin_batch_n_out(&st->batch) : st->batch.n_tokens;
    copy_later(s, st, i_window);
    s->steps[number].n_run = i_window + 1;
    if (s->side.x && !st->inputs) return run_between_borders(s, st, i_window, n_out, x, y, err);
    if (run_layers(s, st, i_window, kin_layers_of_window(window), n_out, x, y, err) != 0) return KIN_FAIL;
    if (is_last) return 0;
    open_pages(s);
    pass_border(s, st, window->layer_end, y);
    return 0;
}

// ---- kin_layer_range of a lost device

// Recomputes at most n_batch tokens whose cells are assigned.
static int compute_some(kin_shard *s, kin_layer_range of, int32_t seq, int pos, int n, float *x, kin_err *err) {
    step *st = &s->steps[s->o.n_steps];
    st->batch = (kin_batch){.n_tokens = n, .pos = st->pos, .seq = st->seq, .n_out = n, .no_output = true};
    for (int i = 0; i < n; i++) {
        st->pos[i] = pos + i;
        st->seq[i] = seq;
        st->cells[i] = (int64_t)kin_kv_block(s->kv, seq, st->pos[i] / KIN_KV_CELLS) * KIN_KV_CELLS + st->pos[i] % KIN_KV_CELLS;
    }
    note_cells(s, st);
    for (int i = 0; i < s->o.windows.n; i++) {
        const kin_window *w = &s->o.windows.at[i];
        kin_layer_range own = {max_int(of.begin, w->layer_begin), min_int(of.end, w->layer_end)};
        if (own.begin < own.end && run_layers(s, st, i, own, n, x, x, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// implements kin_kv_compute
static int compute_layers(void *user, int layer_begin, int layer_end, int32_t seq, int pos, int n, float *x, kin_err *err) {
    kin_shard *s = user;
    for (int at = 0, some; at < n; at += some) {
        some = min_int(n - at, s->o.n_batch);
        float *x_some = x + (size_t)at * (size_t)kin_hparams_stream_width(&s->hp);
        if (compute_some(s, (kin_layer_range){layer_begin, layer_end}, seq, pos + at, some, x_some, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_shard_recompute(kin_shard *s, const kin_page_request *request, kin_err *err) {
    const kin_kv_compute compute = {.layers = compute_layers, .user = s};
    if (settle(s, err) != 0) return KIN_FAIL;
    return kin_kv_pages_recompute(s->pages, s->kv, request, &compute, err);
}

void kin_shard_put_border(kin_shard *s, int il, const kin_page_request *request, const float *x) {
    open_pages(s);
    kin_kv_pages_put_border(s->pages, il, request, x);
}

int kin_shard_output(kin_shard *s, int n, const float *x, float *logits, kin_err *err) {
    kin_assert(s->output);
    return kin_output_layer_run(s->output, n, x, logits, err);
}

int kin_shard_project(kin_shard *s, int n, const float *hidden, float *logits, kin_err *err) {
    kin_assert(s->output);
    return kin_output_layer_project(s->output, n, hidden, logits, err);
}

int kin_shard_hidden(kin_shard *s, int n, const float *x, float *hidden, kin_err *err) {
    kin_assert(s->output);
    return kin_output_layer_hidden(s->output, n, x, hidden, err);
}

void kin_shard_clear(kin_shard *s) {
    kin_kv_clear(s->kv);
}

kin_shard_stats kin_shard_get_stats(const kin_shard *s) {
    kin_kv_options kv = kin_shard_kv_options(s->model, &s->o);
    kin_shard_stats stats = {
        .weights = kin_weights_get_stats(s->weights),
        .kv_bytes = kin_kv_bytes(&s->hp, &kv),
        .weights_budget = s->governor ? kin_governor_budget(s->governor) : s->weights_budget,
        .flash = s->flash,
    };
    if (s->cpu.stage) stats.compute_bytes += kin_stage_bytes(s->cpu.stage);
    if (s->gpu.stage) stats.compute_bytes += kin_stage_bytes(s->gpu.stage);
    stats.compute_bytes += kin_output_layer_bytes(s->output);
    return stats;
}

// Memory for messages: an incoming step in its link's reader and as a message, an outgoing one, and its encrypted form; plus what
// sums take.
static uint64_t message_bytes(const kin_shard *s) {
    size_t n_values = (size_t)s->o.n_batch * (size_t)kin_border_most(&s->hp), step = n_values * sizeof(float);
    if (kin_shard_is_whole(s->model, &s->o)) return 0;
    return 3 * step + kin_tls_output_bytes(step) + (s->o.sum.bytes ? s->o.sum.bytes(s->o.share.n_ranks, n_values) : 0);
}

bool kin_shard_get_memory(const kin_shard *s, kin_shard_memory *m) {
    const kin_shard_stats stats = kin_shard_get_stats(s);
    const kin_weights_stats *w = &stats.weights;
    if (w->sliding.n_blocks == 0) return false;
    uint64_t half = s->half ? (uint64_t)s->o.n_batch * (uint64_t)s->hp.n_ff * sizeof *s->half : 0;
    uint64_t before = s->before ? (uint64_t)s->o.n_batch * (uint64_t)kin_hparams_stream_width(&s->hp) * sizeof *s->before : 0;
    *m = (kin_shard_memory){.weights = kin_sliding_window_bytes(&w->sliding, &w->blocks),
                            .kv = stats.kv_bytes,
                            .buffers = stats.compute_bytes + half + before + message_bytes(s) + kin_kv_pages_bytes(s->pages) +
                                       w->stream.state_bytes,
                            .program = s->program_bytes,
                            .occupied = kin_governor_held(true) + w->stream.resident_bytes};
    return true;
}

size_t kin_shard_pop_intervals(kin_shard *s, kin_stream_record record, kin_interval *out, size_t n_max) {
    return kin_weights_pop_intervals(s->weights, record, out, n_max);
}
