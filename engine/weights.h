// The weights of a range of layers as ggml tensors on their devices, and of the output layer where it is wanted.
//
// On the CPU, a block (attention or feed-forward) with weights that this CPU has a faster layout for comes from the prepacked
// cache (packed.h) or, without one, from memory that is packed at each start; other blocks are the model file itself, mapped.
// GPU layers are copied to the GPU.
//
// Owner: one shard. Thread: the owner's; a thread of ours finishes writing the cache in the background.
#pragma once

#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device.h"
#include "model/model.h"

typedef struct kin_weights kin_weights;

typedef void (*kin_progress)(void *user, const char *what, uint64_t done, uint64_t total);

typedef struct kin_weights_options {
    int layer_begin, layer_end; // [layer_begin, layer_end)
    int n_gpu_layers;           // the last ones of the range
    bool output;                // the output norm and matrix too
    bool output_on_gpu;
    const char *cache_dir; // of the prepacked cache; NULL: none
    kin_progress progress; // NULL, or called while weights are packed or copied
    void *progress_user;
} kin_weights_options;

// The model and the devices are borrowed until close.
int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *options, kin_err *err);

// Waits until a cache file that was begun is safely on the disk.
void kin_weights_close(kin_weights *weights);

// The device that a layer of the range runs on.
const kin_device *kin_weights_device(const kin_weights *weights, int il);

// [KIN_W_COUNT] tensors of a layer of the range; NULL where the family has none.
struct ggml_tensor *const *kin_weights_layer(const kin_weights *weights, int il);

// f32 [n_rot / 2], for layers on that device; NULL if the model has none.
struct ggml_tensor *kin_weights_rope_factors(const kin_weights *weights, const kin_device *device);

struct ggml_tensor *kin_weights_output_norm(const kin_weights *weights); // f32 [n_embd]
struct ggml_tensor *kin_weights_output(const kin_weights *weights);      // [n_embd, n_vocab]

// How the weights came, for `kin run --stats` and tests. Bytes.
typedef struct kin_weights_stats {
    uint64_t mapped_bytes;    // straight from the model file
    uint64_t cached_bytes;    // from the prepacked cache
    uint64_t packed_bytes;    // packed at this start
    uint64_t anonymous_bytes; // of these, in memory that the OS cannot take back
    uint64_t gpu_bytes;
} kin_weights_stats;

kin_weights_stats kin_weights_get_stats(const kin_weights *weights);
