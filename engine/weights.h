// The weights of a device's layers as ggml tensors on their devices, and of the output layer where it is wanted.
//
// GPU layers are copied to the GPU. On the CPU a block (see kin_weight_block) is packed if this CPU has a faster layout for one
// of its weights: it then comes from the prepacked cache (packed.h), or from memory packed at each start where there is no cache.
// Other blocks are the model file itself. Either way the bytes are a mapped file, which the OS can take back; blocks that do not
// fit the budget are streamed (stream.h).
//
// The computing thread asks compute block by compute block: acquire, compute, release. A run that needs no streaming says so at
// its beginning and uses all tensors at once.
//
// With an arrival and several windows, open waits for the first window only. The others arrive while it is computed:
// acquire waits for them, and fails when they do not come. Streaming begins when all have arrived.
//
// Owner: one shard. Thread: the owner's; set_budget from any.
#pragma once

#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/arrival.h"
#include "engine/device.h"
#include "engine/packed.h"
#include "engine/stream.h"
#include "model/model.h"
#include "model/slice.h"
#include "pure/plan/sliding_window.h"
#include "pure/plan/window.h"

typedef struct kin_weights kin_weights;

typedef void (*kin_progress)(void *user, const char *what, uint64_t done, uint64_t total);

typedef struct kin_weights_options {
    kin_windows windows; // the layers
    kin_slices slices;   // of the layers' weights; zeros: all are full
    int n_ctx;           // of the context: some models' rope depends on it
    bool output;         // the output norm and matrix too
    bool output_on_gpu;
    const char *cache_dir; // of the prepacked cache; NULL: none
    uint64_t cache_cap;    // bytes that all caches there may take; 0: a fifth of the disk
    uint64_t identity;     // of the model's content; 0: not known
    kin_stream_mode mode;
    uint64_t budget;            // bytes of memory for the CPU's weights; UINT64_MAX: all that they need
    kin_sliding_window sliding; // in place of a budget
    const kin_arrival *arrival; // of weights that are not in the files yet, borrowed until close; NULL: all are
    kin_progress progress;      // NULL, or called while weights are packed or copied, from several threads
    void *progress_user;
} kin_weights_options;

// Names, shapes, types and a sample of every tensor: what agrees in all of it is one model, though perhaps one that was mended
// since. Of a file that is here as a whole.
int kin_weights_model_identity(const kin_model *model, uint64_t *identity, kin_err *err);

// The model and the devices are borrowed until close.
int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *options,
                     kin_err *err);

// Writes to the prepacked cache what kin_weights_open with these options would pack, but for the layers in `but`, block by block
// in the caller's thread; no more than a block is in memory. *held keeps the file open, with what is known of its blocks, so that
// an opening soon after this finds them checked: close it later (kin_packed_close); NULL: no cache is of use here. Other weights
// may be open, even of the same file, if they have none of these layers. Fails with "stopped" where `stop` says so.
int kin_weights_prepack(const kin_model *model, const kin_devices *devices, const kin_weights_options *options,
                        const kin_windows *but, const atomic_bool *stop, kin_packed **held, kin_err *err);

// Ends waits for what has not arrived. Waits until a cache file that was begun is safely on the disk.
void kin_weights_close(kin_weights *weights);

// Bytes of the CPU's weights of such windows: what a budget is compared with.
uint64_t kin_weights_cpu_bytes(const kin_model *model, const kin_weights_options *options);

// The device that a layer of the windows runs on.
const kin_device *kin_weights_device(const kin_weights *weights, int il);

// [KIN_W_COUNT] tensors of a layer of the windows; NULL where the family has none.
struct ggml_tensor *const *kin_weights_layer(const kin_weights *weights, int il);

// f32 [n_rot / 2], for layers on that device; NULL if the model has none.
struct ggml_tensor *kin_weights_rope_factors(const kin_weights *weights, const kin_device *device);

// The output layer: the norm f32 [n_embd], and the matrix in tiles of consecutive rows [n_embd, n_rows], so that one need not
// have all of it in memory.
struct ggml_tensor *kin_weights_output_norm(const kin_weights *weights);
int kin_weights_n_tiles(const kin_weights *weights);
int64_t kin_weights_tile_rows(const kin_model *model); // of every tile but the last ones, which have the rest
int kin_weights_count_tiles(const kin_model *model);
struct ggml_tensor *kin_weights_tile(const kin_weights *weights, int i_tile);

// A compute block is what is computed at once while weights stream: a part of a CPU layer (attention; then the feed-forward
// block, in two halves if the layer has no experts), or a tile of the output. Compute blocks are numbered in cyclic order, a
// layer's in a row.
enum { KIN_MAX_LAYER_COMPUTE_BLOCKS = 3 };
int kin_weights_n_compute_blocks(const kin_hparams *hp, int il);   // of a layer
int kin_weights_compute_block(const kin_weights *weights, int il); // the first one of a CPU layer
int kin_weights_tile_compute_block(const kin_weights *weights, int i_tile);

// begin: a run over compute blocks from `i_compute_block` on; with_output: this pass will go on to the tiles. True: acquire and
// release each of them in turn; false: all tensors are usable, do neither. Acquired are the weights of one compute block at a
// time.
bool kin_weights_begin(kin_weights *weights, int i_compute_block, bool with_output);
int kin_weights_acquire(kin_weights *weights, int i_compute_block, kin_err *err);
void kin_weights_release(kin_weights *weights, int i_compute_block);

// is_arriving: some weights may arrive later; from open until settle. has_arrived: all of them are here. Then, between two runs,
// settle begins streaming; it fails as open does.
bool kin_weights_is_arriving(const kin_weights *weights);
bool kin_weights_has_arrived(kin_weights *weights);
int kin_weights_settle(kin_weights *weights, kin_err *err);

// Before a run over layers on the GPU: waits for those that have not arrived yet, and copies them.
int kin_weights_await_gpu(kin_weights *weights, int layer_begin, int layer_end, kin_err *err);

// Experts do not go through the ring: which ones a token needs is known only after the router was computed. They stay in their
// file mapping, and the OS keeps those in memory that are used most. This fetches the ones in `chosen` // i32 [n] (numbers may
// repeat) of a CPU layer, several at once, before they are computed with.
void kin_weights_fetch_experts(kin_weights *weights, int il, const int32_t *chosen, size_t n);

// Changes the budget while running. Returns the bytes that stay resident.
uint64_t kin_weights_set_budget(kin_weights *weights, uint64_t budget);

// The least budget that holds everything: resident weights and the ring. 0 if nothing can be streamed.
uint64_t kin_weights_most_useful_budget(const kin_weights *weights);

// How the weights came and what streaming does. Bytes.
typedef struct kin_weights_stats {
    uint64_t mapped_bytes;    // straight from the model file
    uint64_t cached_bytes;    // from the prepacked cache
    uint64_t packed_bytes;    // packed at this start
    uint64_t anonymous_bytes; // of these, in memory that the OS cannot take back
    uint64_t gpu_bytes;
    kin_sliding_window sliding;
    kin_sliding_blocks blocks; // on the CPU, without experts
    kin_stream_stats stream;
} kin_weights_stats;

kin_weights_stats kin_weights_get_stats(kin_weights *weights);

// When weights were read from the disk, and waited for: see kin_stream_take_intervals.
size_t kin_weights_take_intervals(kin_weights *weights, kin_stream_record record, kin_interval *out, size_t n_max);
