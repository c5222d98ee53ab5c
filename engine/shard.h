// A shard: a device's layers of a model on this machine's ggml devices, with their KV cache.
//
// "Run these layers on this batch: activations in, activations out." It is the only access to ggml execution, and it knows
// nothing about text, networks or other devices. A whole model on one machine is one shard with one window over all layers.
//
//   step = begin(batch) ─► run(step, window 0) ─► ... ─► run(step, last window) ─► [output] ─► end(step)
//
// A step is a batch that passes through all windows. Several may be in flight at once: a prompt's chunks follow each other round
// the ring.
//
// Owner: the head or a worker. Thread: all calls from the same thread.
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
    kin_share share;            // of each layer, in a group of devices; zeros: whole layers. Not combined with GPU layers
    kin_sum sum;                // with a share: adds up the results of the group's devices
    int n_ctx;                  // in KV cache cells
    int n_batch;                // maximum tokens per step
    int n_steps;                // maximum steps in flight
    int n_sequences;            // for whose windows windowed layers have room; 0: they keep the whole context (kv_window.h)
    enum ggml_type kv_type;     // GGML_TYPE_F16 or GGML_TYPE_Q8_0
    kin_activation_type wire;   // format of hidden states sent to other devices
    bool flash;                 // use the fused attention operator if every device has it
    bool ggml_kernels;          // CPUs compute with ggml's kernels only
    bool output;                // also hold the output layer (the head's shard does)
    const char *cache_dir;      // folder of the prepacked cache; NULL: none
    uint64_t cache_cap;         // bytes for all caches in it; 0: a fifth of the disk
    kin_kv_disk kv_disk;        // where pages of the KV cache are kept; dir NULL: nowhere
    uint64_t identity;          // of the model's content; 0: unknown, derived from samples of the file
    uint64_t memory;            // bytes for everything: weights, KV cache, buffers; 0: what the machine can spare
    uint64_t beside;            // the part of `memory` used outside this shard, by a draft model
    kin_stream_mode mode;       // how weights that do not fit are read
    kin_sliding_window sliding; // with KIN_STREAM_RESIDENT: read all weights through such a window, for comparison
    const kin_arrival *arrival; // for weights that are not in the files yet, borrowed until close; NULL: all are
    kin_progress progress;
    void *progress_user;
} kin_shard_options;

kin_shard_options kin_shard_options_defaults(const kin_model *model);

// Opens weights, KV cache and compute buffers. KV cache and buffers are allocated first; the weights get the remaining memory,
// and those that do not fit are streamed. Fails if the rest is too small even for streaming (the error has the numbers). With an
// arrival and several windows it waits for the first window's weights only; a run waits for the others that it needs.
int kin_shard_open(kin_shard **out, const kin_model *model, const kin_devices *devices, const kin_shard_options *options,
                   kin_err *err);
void kin_shard_close(kin_shard *shard);

// Packs in advance, into the prepacked cache, what kin_shard_open with these options would pack: see kin_weights_prepack. Any
// thread.
int kin_shard_prepack(const kin_model *model, const kin_devices *devices, const kin_shard_options *options,
                      const kin_windows *but, const atomic_bool *stop, kin_packed **held, kin_err *err);

// True if CPUs that have kin's kernels use them for this model.
bool kin_shard_has_kernels(const kin_model *model, const kin_shard_options *options);

// True if a row's bits never depend on which other rows are in the step: kin's kernels multiply with all weights present so far.
// Otherwise some weights use ggml's kernels, whose results depend on the number of rows.
bool kin_shard_is_exact(const kin_shard *shard);

// Return what a shard reserves before weights get memory: the compute buffers of its CPU layers or of its GPU layers; the program
// itself; the hidden states that a ring member holds until they are on its disk (engine/border_log.h); and the sum of all these
// with the KV cache, for the CPU. And the KV cache of some layers, which are on the CPU or on the GPU.
uint64_t kin_shard_buffer_bytes(const kin_model *model, const kin_shard_options *options, bool on_gpu);
uint64_t kin_shard_overhead_bytes(void);
uint64_t kin_shard_border_bytes(const kin_model *model, const kin_shard_options *options);
uint64_t kin_shard_fixed_bytes(const kin_model *model, const kin_shard_options *options);
uint64_t kin_shard_kv_bytes(const kin_model *model, const kin_shard_options *options, int layer_begin, int layer_end,
                            bool on_gpu);

int kin_shard_n_windows(const kin_shard *shard);

// Begins a step: applies the batch's changes to the KV cache and assigns cells to its tokens. The batch is copied. Returns the
// step's number, or KIN_FAIL if the context is full or all n_steps are in use.
int kin_shard_begin(kin_shard *shard, const kin_batch *batch, kin_err *err);

// Applies the batch's changes to the KV cache, then handles batch->pages, if not NULL. Returns the number of leading pages that
// are kept, or found and loaded (never more than were requested); a page that is not is no failure. KIN_FAIL: the changes failed,
// or the sequence cannot have these pages.
int kin_shard_pages(kin_shard *shard, const kin_batch *batch, kin_err *err);

// Do the second half of a request that recomputes, and supply hidden states for it: see engine/kv_pages.h.
int kin_shard_recompute(kin_shard *shard, const kin_page_request *request, kin_err *err);
void kin_shard_put_border(kin_shard *shard, int il, const kin_page_request *request, const float *x);

// Runs one window. x // f32 [n_tokens, n_embd] before its layers -> y // f32 [n, n_embd] after them, where n is
// kin_batch_n_out(batch) if the window ends with the model's last layer, else n_tokens. x and y may be the same memory. This and
// the functions below fail if the model's files have changed since they were opened (kin_gguf_check_files).
int kin_shard_run(kin_shard *shard, int step, int i_window, const float *x, float *y, kin_err *err);

// Ends a step. keep: its tokens stay in the KV cache; false: they are removed, with those placed after them in their sequences.
void kin_shard_end(kin_shard *shard, int step, bool keep);

// Computes the output layer: x // f32 [n, n_embd] after the last layer -> logits // f32 [n, n_vocab]. Only with options.output.
int kin_shard_output(kin_shard *shard, int n, const float *x, float *logits, kin_err *err);

// Does the same without the output matrix: x -> hidden // f32 [n, n_embd], normalised. Embeddings are made from these.
int kin_shard_hidden(kin_shard *shard, int n, const float *x, float *hidden, kin_err *err);

// Does the other half: hidden // f32 [n, n_embd], normalised -> logits // f32 [n, n_vocab]. Drafts are made from these.
int kin_shard_project(kin_shard *shard, int n, const float *hidden, float *logits, kin_err *err);

void kin_shard_clear(kin_shard *shard); // removes all sequences

// Sizes of what the shard holds, in bytes, for display.
typedef struct kin_shard_stats {
    kin_weights_stats weights;
    uint64_t kv_bytes;
    uint64_t compute_bytes;
    uint64_t weights_budget; // for the CPU's weights
    bool flash;              // attention uses the fused operator
} kin_shard_stats;

kin_shard_stats kin_shard_get_stats(const kin_shard *shard);

// Memory of a shard with a sliding window, in bytes: the sizes that the formula predicts, the memory of the process when the
// shard was open and had computed nothing, and the memory it holds now that the OS cannot reclaim, plus the resident blocks.
typedef struct kin_shard_memory {
    uint64_t weights; // by proposition 5 (pure/plan/sliding_window.h)
    uint64_t kv, buffers, program;
    uint64_t occupied;
} kin_shard_memory;

// Returns false if there is no such window.
bool kin_shard_get_memory(const kin_shard *shard, kin_shard_memory *memory);
uint64_t kin_shard_memory_sum(const kin_shard_memory *memory); // by the formula
void kin_shard_memory_format(const kin_shard_memory *memory, char *text, size_t n);

// Returns when weights were read from the disk, or waited for: see kin_stream_pop_intervals.
size_t kin_shard_pop_intervals(kin_shard *shard, kin_stream_record record, kin_interval *out, size_t n_max);
