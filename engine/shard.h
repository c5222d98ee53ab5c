// A shard: a device's layers of a model on this machine's ggml devices, with their KV cache.
//
// "Run these layers on this batch: activations in, activations out." It is the only door to ggml execution, and it knows
// nothing of tokens, text, networks or other devices. A whole model on one machine is one shard with one window over all layers.
//
//   step = begin(batch) ─► run(step, window 0) ─► ... ─► run(step, last window) ─► [output] ─► end(step)
//
// A step is a batch that goes through all windows. Several may be in flight at once: a prompt's chunks follow each other round
// the ring.
//
// Owner: the head or a worker. Thread: all calls from one thread, always the same.
#pragma once

#include <stdbool.h>

#include "engine/device.h"
#include "engine/kv.h"
#include "engine/kv_pages.h"
#include "engine/weights.h"
#include "model/graph.h"
#include "model/model.h"
#include "model/share.h"
#include "pure/plan/sliding_window.h"
#include "pure/plan/window.h"

typedef struct kin_shard kin_shard;

typedef struct kin_shard_options {
    kin_windows windows;
    kin_share share;            // of each layer, in a group of devices; zeros: whole layers. Without GPU layers
    kin_sum sum;                // for a share: adds up what the devices of the group have computed
    int n_ctx;                  // cells of the KV cache
    int n_batch;                // most tokens per step
    int n_steps;                // most steps at once
    enum ggml_type kv_type;     // GGML_TYPE_F16 or GGML_TYPE_Q8_0
    kin_activation_type wire;   // as what hidden states are sent to other devices
    bool flash;                 // use the fused attention operator where every device has it
    bool ggml_kernels;          // CPUs compute with ggml's kernels alone, whatever their devices have
    bool output;                // hold the output layer too (the head's shard does)
    const char *cache_dir;      // of the prepacked cache; NULL: none
    uint64_t cache_cap;         // bytes that all caches there may take; 0: a fifth of the disk
    kin_kv_disk kv_disk;        // where pages of the KV cache are kept; dir NULL: nowhere
    uint64_t identity;          // of the model's content, if it is known; 0: samples of the file tell
    uint64_t memory;            // bytes that all of it may take: weights, KV cache, buffers; 0: what the machine can spare
    uint64_t beside;            // of these, what is not this shard's: a draft model
    kin_stream_mode mode;       // how weights that do not fit are read
    kin_sliding_window sliding; // with KIN_STREAM_RESIDENT: all are read through such a window, for comparison
    const kin_arrival *arrival; // of weights that are not in the files yet, borrowed until close; NULL: all are
    kin_progress progress;
    void *progress_user;
} kin_shard_options;

kin_shard_options kin_shard_options_defaults(const kin_model *model);

// Opens weights, KV cache and compute buffers. KV cache and buffers come first, the weights get the memory that is left and are
// streamed as far as they do not fit. Fails when the rest is too little even for that (the sentence has the numbers).
// With an arrival and several windows it waits for the first window's weights; a run waits for what it needs of the others.
int kin_shard_open(kin_shard **out, const kin_model *model, const kin_devices *devices, const kin_shard_options *options,
                   kin_err *err);
void kin_shard_close(kin_shard *shard);

// Packs ahead, into the prepacked cache, what an opening with these options would pack: see kin_weights_prepack. Any thread.
int kin_shard_prepack(const kin_model *model, const kin_devices *devices, const kin_shard_options *options,
                      const kin_windows *but, const atomic_bool *stop, kin_packed **held, kin_err *err);

// Whether CPUs that have kin's kernels compute this model with them.
bool kin_shard_has_kernels(const kin_model *model, const kin_shard_options *options);

// Whether each row of a step has the bits that it has in every other company: kin's kernels multiply with all weights that are
// there so far. Else ggml's do with some, whose rows depend on how many there are.
bool kin_shard_is_exact(const kin_shard *shard);

// What a shard sets aside before weights get memory: compute buffers of its CPU layers or of its GPU layers; the program itself;
// what a member of a ring that keeps pages has of hidden states until they are on its disk (engine/border_log.h); the sum of the
// CPU's buffers, the program, these, and the KV cache of its CPU layers.
uint64_t kin_shard_buffer_bytes(const kin_model *model, const kin_shard_options *options, bool on_gpu);
uint64_t kin_shard_overhead_bytes(void);
uint64_t kin_shard_border_bytes(const kin_model *model, const kin_shard_options *options);
uint64_t kin_shard_fixed_bytes(const kin_model *model, const kin_shard_options *options);

int kin_shard_n_windows(const kin_shard *shard);

// Begins a step: the KV cache is changed as the batch says, and its tokens get cells. The batch is copied. Returns the step's
// number, or KIN_FAIL when the context or all n_steps are full.
int kin_shard_begin(kin_shard *shard, const kin_batch *batch, kin_err *err);

// What batch->pages asks for, if it is not NULL, after the changes of the KV cache. Returns how many of the first pages are as
// they should be: kept, or found and taken over, which is no more than were to be taken over; a page that is not is no failure.
// KIN_FAIL: the changes failed, or the pages cannot be where the request says.
int kin_shard_pages(kin_shard *shard, const kin_batch *batch, kin_err *err);

// The second half of a request that recomputes, and hidden states for it: see engine/kv_pages.h.
int kin_shard_recompute(kin_shard *shard, const kin_page_request *request, kin_err *err);
void kin_shard_put_border(kin_shard *shard, int il, const kin_page_request *request, const float *x);

// Runs one window. x // f32 [n_tokens, n_embd] before its layers -> y // f32 [n, n_embd] after them, where n is
// kin_batch_n_out(batch) if the window ends with the model's last layer, else n_tokens. x and y may be the same memory. Here and
// below a model whose files have changed since they were opened is a failure (kin_gguf_check_files).
int kin_shard_run(kin_shard *shard, int step, int i_window, const float *x, float *y, kin_err *err);

// Ends a step. keep: its tokens stay in the KV cache; else they leave it, with those that came after them in their sequences.
void kin_shard_end(kin_shard *shard, int step, bool keep);

// The output layer: x // f32 [n, n_embd] after the last layer -> logits // f32 [n, n_vocab]. Only with options.output.
int kin_shard_output(kin_shard *shard, int n, const float *x, float *logits, kin_err *err);

// The same without the output matrix: x -> hidden // f32 [n, n_embd], normalised. What embeddings are made of.
int kin_shard_hidden(kin_shard *shard, int n, const float *x, float *hidden, kin_err *err);

void kin_shard_clear(kin_shard *shard); // forgets all sequences

// For people: sizes of what the shard holds, in bytes.
typedef struct kin_shard_stats {
    kin_weights_stats weights;
    uint64_t kv_bytes;
    uint64_t compute_bytes;
    uint64_t weights_budget; // of the CPU's weights
    bool flash;              // attention uses the fused operator
} kin_shard_stats;

kin_shard_stats kin_shard_get_stats(const kin_shard *shard);

// What a shard with a sliding window should take by its sizes, what the process held when it was open and had computed nothing,
// and what it holds now that the OS cannot take back, with the blocks that stay. Bytes.
typedef struct kin_shard_memory {
    uint64_t weights; // by proposition 5 (pure/plan/sliding_window.h)
    uint64_t kv, buffers, program;
    uint64_t taken;
} kin_shard_memory;

// False: there is no such window.
bool kin_shard_get_memory(const kin_shard *shard, kin_shard_memory *memory);
uint64_t kin_shard_memory_sum(const kin_shard_memory *memory); // by the formula
void kin_shard_memory_format(const kin_shard_memory *memory, char *text, size_t n);

// When weights were read from the disk, and waited for: see kin_stream_take_intervals.
size_t kin_shard_take_intervals(kin_shard *shard, kin_stream_record record, kin_interval *out, size_t n_max);
