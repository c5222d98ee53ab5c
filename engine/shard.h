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
#include "engine/kv/pages.h"
#include "engine/shard_memory.h"
#include "engine/shard_options.h"
#include "engine/weights.h"
#include "model/graph.h"
#include "model/model.h"

typedef struct kin_shard kin_shard;

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

// True if a row's bits never depend on which other rows are in the step: kin's kernels multiply with all weights present so far.
// Otherwise some weights use ggml's kernels, whose results depend on the number of rows.
bool kin_shard_is_exact(const kin_shard *shard);

int kin_shard_n_windows(const kin_shard *shard);

// Returns the numbers of a row before a window, or after it (model/border.h).
int kin_shard_row_width(const kin_shard *shard, int i_window, bool is_after);

// Begins a step: applies the batch's changes to the KV cache and assigns cells to its tokens. The batch is copied. Returns the
// step's number, or KIN_FAIL if the context is full or all n_steps are in use.
int kin_shard_begin(kin_shard *shard, const kin_batch *batch, kin_err *err);

// Applies the batch's changes to the KV cache, then handles batch->pages, if not NULL. Returns the number of leading pages that
// are kept, or found and loaded (never more than were requested); a page that is not is no failure. KIN_FAIL: the changes failed,
// or the sequence cannot have these pages.
int kin_shard_pages(kin_shard *shard, const kin_batch *batch, kin_err *err);

// Do the second half of a request that recomputes, and supply hidden states for it: see engine/kv/pages.h.
int kin_shard_recompute(kin_shard *shard, const kin_page_request *request, kin_err *err);
void kin_shard_put_border(kin_shard *shard, int il, const kin_page_request *request, const float *x);

// Runs one window. x // f32 [n_tokens, row width before it] -> y // f32 [n, row width after it], where n is
// kin_batch_n_out(batch) if the window ends with the model's last layer, else n_tokens. If the layers' inputs came with the
// batch, rows are as wide as the residual. x and y may be the same memory. This and the functions below fail if the model's files
// have changed since they were opened (kin_gguf_check_files).
int kin_shard_run(kin_shard *shard, int step, int i_window, const float *x, float *y, kin_err *err);

// Ends a step. keep: its tokens stay in the KV cache; false: they are removed, with those placed after them in their sequences.
void kin_shard_end(kin_shard *shard, int step, bool keep);

// Computes the output layer: x // f32 [n, stream width] after the last layer -> logits // f32 [n, n_vocab]. Only with
// options.output.
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

// Returns false if there is no sliding window.
bool kin_shard_get_memory(const kin_shard *shard, kin_shard_memory *memory);

// Returns when weights were read from the disk, or waited for: see kin_stream_pop_intervals.
size_t kin_shard_pop_intervals(kin_shard *shard, kin_stream_record record, kin_interval *out, size_t n_max);
