// Options and statistics of weights (engine/weights.h). Plain data, and sizes that follow from the model.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/arrival.h"
#include "engine/device.h"
#include "engine/experts.h"
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
    kin_slices slices;   // of the layers' weights; zeros: all are whole
    int n_ctx;           // context size; some models' rope depends on it
    bool output;         // include the output norm and matrix
    bool stream_ends;    // without them: include what ends the streams
    bool output_on_gpu;
    const char *cache_dir; // folder of the prepacked cache; NULL: none
    uint64_t cache_cap;    // bytes for all caches in it; 0: a fifth of the disk
    uint64_t identity;     // of the model's content; 0: unknown
    kin_stream_mode mode;
    uint64_t budget;            // bytes of memory for the CPU's weights; UINT64_MAX: all they need
    bool keeps_output;          // the output matrix leaves memory last: it is used several times per pass
    kin_sliding_window sliding; // instead of a budget
    const kin_arrival *arrival; // for weights that are not in the files yet, borrowed until close; NULL: all are
    kin_progress progress;      // NULL, or called while weights are packed or copied, from several threads
    void *progress_user;
} kin_weights_options;

// Computes an identity from the names, shapes, types and a sample of every tensor. Files with equal identities are the same
// model, though one may have been repaired since. The model's files must be complete.
int kin_weights_model_identity(const kin_model *model, uint64_t *identity, kin_err *err);

// Returns the bytes of the CPU's weights in these windows, to compare with a budget.
uint64_t kin_weights_cpu_bytes(const kin_model *model, const kin_weights_options *options);

// The output matrix is divided into tiles of consecutive rows.
int64_t kin_weights_tile_rows(const kin_model *model); // of every full tile; the last ones have the rest
int kin_weights_count_tiles(const kin_model *model);

// How many compute blocks (engine/weights.h) a layer has.
enum { KIN_MAX_LAYER_COMPUTE_BLOCKS = 3 };
int kin_weights_n_compute_blocks(const kin_hparams *hp, int il);

// Where the weights came from, and streaming statistics. In bytes.
typedef struct kin_weights_stats {
    uint64_t mapped_bytes;    // directly from the model file
    uint64_t cached_bytes;    // from the prepacked cache
    uint64_t packed_bytes;    // packed at this start
    uint64_t anonymous_bytes; // the part of these in memory that the OS cannot reclaim
    uint64_t resident_bytes;  // in memory on the CPU, mapped or not; without experts in the page cache
    uint64_t gpu_bytes;
    kin_sliding_window sliding;
    kin_sliding_blocks blocks; // on the CPU, without experts
    kin_stream_stats stream;
    kin_experts_stats experts; // zeros: there is no cache of experts
} kin_weights_stats;
