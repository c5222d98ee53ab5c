// Options of a shard (engine/shard.h), and what follows from them before it is opened.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv.h"
#include "engine/kv/pages.h"
#include "engine/weights.h"
#include "model/graph.h"
#include "model/model.h"
#include "model/share.h"
#include "pure/plan/sliding_window.h"
#include "pure/plan/window.h"
#include "pure/proto/activations.h"

typedef struct kin_shard_options {
    kin_windows windows;
    kin_share share;            // of each layer, in a group of devices; zeros: whole layers. Not combined with GPU layers
    kin_sum sum;                // with a share: adds up the results of the group's devices
    int n_ctx;                  // in KV cache cells
    int n_batch;                // maximum tokens per step
    int n_steps;                // maximum steps in flight
    int n_sequences;            // for whose windows windowed layers have room; 0: they keep the whole context (kv/window.h)
    enum ggml_type kv_type;     // GGML_TYPE_F16 or GGML_TYPE_Q8_0
    kin_activation_type wire;   // format of hidden states sent to other devices
    bool flash;                 // use the fused attention operator if every device has it
    bool ggml_kernels;          // CPUs compute with ggml's kernels only
    bool output;                // also hold the output layer (the head's shard does)
    bool stream_ends;           // without it: also hold what ends the streams, for kin_shard_hidden (a draft block's shard)
    const char *cache_dir;      // folder of the prepacked cache; NULL: none
    uint64_t cache_cap;         // bytes for all caches in it; 0: a fifth of the disk
    kin_kv_disk kv_disk;        // where pages of the KV cache are kept; dir NULL: nowhere
    uint64_t identity;          // of the model's content; 0: unknown, derived from samples of the file
    uint64_t memory;            // bytes for everything: weights, KV cache, buffers; 0: what the machine can spare
    uint64_t beside;            // the part of `memory` used outside this shard, by a draft model
    bool keeps_output;          // the output matrix leaves memory last: drafts use it several times per pass
    kin_stream_mode mode;       // how weights that do not fit are read
    kin_sliding_window sliding; // with KIN_STREAM_RESIDENT: read all weights through such a window, for comparison
    const kin_arrival *arrival; // for weights that are not in the files yet, borrowed until close; NULL: all are
    kin_progress progress;
    void *progress_user;
} kin_shard_options;

kin_shard_options kin_shard_options_defaults(const kin_model *model);

// Fails unless CPUs that have kin's kernels ("they" in the sentence) use them for this model.
int kin_shard_check_kernels(const kin_model *model, const kin_shard_options *options, kin_err *why);
bool kin_shard_has_kernels(const kin_model *model, const kin_shard_options *options);

// Returns the options of the shard's KV cache.
kin_kv_options kin_shard_kv_options(const kin_model *model, const kin_shard_options *options);

// True for a shard that is the whole model: no hidden states travel.
bool kin_shard_is_whole(const kin_model *model, const kin_shard_options *options);

// True if a ring member with these options logs hidden states, from which lost layers are recomputed.
bool kin_shard_has_borders(const kin_model *model, const kin_shard_options *options);
