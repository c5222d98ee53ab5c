// The weights of a device's layers as ggml tensors on their devices, with those of the output layer if requested.
//
// Layers on the GPU are copied to it. On the CPU a block (see kin_weight_block) is packed if this CPU has a faster layout for one
// of its weights: it then comes from the prepacked cache (packed.h), or, if there is no cache, from memory packed at each start.
// Other blocks are used in the model file itself. Either way the bytes are a mapped file, which the OS can reclaim; blocks that
// do not fit the budget are streamed (stream.h).
//
// The computing thread acquires, computes with and releases one compute block after the other. A run that needs no streaming
// learns this at its beginning and uses all tensors at once.
//
// With an arrival and several windows, open waits for the first window only. The others arrive while it is being computed:
// acquire waits for them, and fails if they do not come. Streaming begins when all have arrived.
//
// Owner: one shard. Thread: the owner's; set_budget from any.
#pragma once

#include <ggml.h>

#include "engine/weights/options.h"

// The model and the devices are borrowed until close.
int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *options,
                     kin_err *err);

// Writes to the prepacked cache what kin_weights_open with these options would pack, except the layers in `but`. Works block by
// block in the caller's thread, with at most one block in memory. *held keeps the file open with what is known of its blocks, so
// that an open soon afterwards finds them checked: close it later (kin_packed_close). NULL: no cache is useful here. Other
// weights may be open, even of the same file, if they share none of these layers. Fails with "stopped" once `stop` is true.
int kin_weights_prepack(const kin_model *model, const kin_devices *devices, const kin_weights_options *options,
                        const kin_windows *but, const atomic_bool *stop, kin_packed **held, kin_err *err);

// Ends waits for weights that have not arrived. Waits until a cache file in progress is safely on the disk.
void kin_weights_close(kin_weights *weights);

// Returns the device of a layer of the windows; of a divided one, that of its attention.
const kin_device *kin_weights_device(const kin_weights *weights, int il);

// [KIN_W_COUNT] tensors of a layer of the windows; NULL where the family has none.
struct ggml_tensor *const *kin_weights_layer(const kin_weights *weights, int il);

// f32 [n_rot / 2], for layers on that device; NULL if the model has none.
struct ggml_tensor *kin_weights_rope_factors(const kin_weights *weights, const kin_device *device);

// The output layer: the norm f32 [n_embd] and its bias (NULL if there is none), and the matrix in tiles of consecutive rows
// [n_embd, n_rows], so that it need not be in memory as a whole.
struct ggml_tensor *kin_weights_output_norm(const kin_weights *weights);
struct ggml_tensor *kin_weights_output_norm_bias(const kin_weights *weights);
struct ggml_tensor *const *kin_weights_stream_ends(const kin_weights *weights); // [KIN_STREAM_ENDS] kin_model.stream_ends
int kin_weights_n_tiles(const kin_weights *weights);
struct ggml_tensor *kin_weights_tile(const kin_weights *weights, int i_tile);

// A compute block is the unit of computing while weights stream: a part of a CPU layer (attention; then the feed-forward block,
// in two halves if the layer has neither experts nor several streams), or a tile of the output. Compute blocks are numbered in
// cyclic order, those of a layer consecutively.
int kin_weights_compute_block(const kin_weights *weights, int il); // the first one of a CPU layer
int kin_weights_tile_compute_block(const kin_weights *weights, int i_tile);

// kin_weights_begin begins a run over compute blocks from `i_compute_block` on; with_output: this pass will go on to the tiles.
// It returns true if the caller must acquire and release each compute block in turn, one at a time; false: all tensors are
// usable, so do neither.
bool kin_weights_begin(kin_weights *weights, int i_compute_block, bool with_output);
int kin_weights_acquire(kin_weights *weights, int i_compute_block, kin_err *err);
void kin_weights_release(kin_weights *weights, int i_compute_block);

// is_arriving: some weights may still arrive; true from open until settle. has_arrived: all of them are here. Call settle then,
// between two runs: it begins streaming, and fails like open.
bool kin_weights_is_arriving(const kin_weights *weights);
bool kin_weights_has_arrived(kin_weights *weights);
int kin_weights_settle(kin_weights *weights, kin_err *err);

// Before a run over layers on the GPU: waits for those that have not arrived yet, and copies them.
int kin_weights_await_gpu(kin_weights *weights, int layer_begin, int layer_end, kin_err *err);

// Experts do not go through the ring, since the router decides which ones a token needs. If not all of them fit, those of kin's
// kernels come from the cache of experts (experts.h): graphs ask its source for them, and check_experts says after a run whether
// all could be read.
const kin_expert_source *kin_weights_expert_source(const kin_weights *weights);
int kin_weights_check_experts(kin_weights *weights, kin_err *err);

// With ggml's kernels experts stay in their file mapping, where the OS keeps the most used ones in memory. This function fetches
// the experts in `chosen` // i32 [n] (may repeat) of a CPU layer, several at once, before they are used.
void kin_weights_fetch_experts(kin_weights *weights, int il, const int32_t *chosen, size_t n);

// True if the output matrix is in memory: its tiles then point at their mappings, and need no acquire.
bool kin_weights_use_output(kin_weights *weights);

// Changes the budget while running. Returns the bytes that stay resident.
uint64_t kin_weights_set_budget(kin_weights *weights, uint64_t budget);

// Returns the bytes of weights in memory that the OS cannot reclaim, without rings. Any thread.
uint64_t kin_weights_anonymous_bytes(kin_weights *weights);

// Returns the smallest budget that holds everything: resident weights and the ring. 0 if nothing can be streamed.
uint64_t kin_weights_most_useful_budget(const kin_weights *weights);

kin_weights_stats kin_weights_get_stats(kin_weights *weights);

// Returns when weights were read from the disk, or waited for: see kin_stream_pop_intervals.
size_t kin_weights_pop_intervals(kin_weights *weights, kin_stream_record record, kin_interval *out, size_t n_max);
