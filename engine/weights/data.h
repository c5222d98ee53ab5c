// The data of kin_weights: pieces, blocks, and what is open. Shared by its modules, lowest first:
//
//   blocks   which weights belong to which block
//   mapping  where a block's bytes are mapped
//   pack     blocks in the kernels' layout
//   cache    the prepacked cache file
//   check    whether the cache file's blocks can be trusted
//   place    which bytes each block uses: the cache file, memory, the model file, the GPU
//   experts  the cache of experts
//   arrival  blocks that arrive after open
//
// Threads: the computing thread, and a background thread that loads the later blocks and then completes the cache file. A block
// belongs to the thread that fills it until it is `here`, then to the computing thread; after that only its pages may be replaced
// by those of the cache file, with the same bytes.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "engine/experts.h"
#include "engine/packed.h"
#include "engine/weights/options.h"

enum {
    KIN_WEIGHTS_PIECES = KIN_STREAM_MAX_EXTENTS, // maximum per block
    KIN_WEIGHTS_ALIGN = 64,                      // alignment of tensors
    KIN_WEIGHTS_NO_COMPUTE_BLOCK = -1,           // for small weights that are always in memory
};

// One weight of a block: its source, and the tensor that it becomes.
typedef struct kin_weights_piece {
    const uint8_t *data; // in the model file's mapping: the first byte of its slice
    int i_file;
    uint64_t file_offset;
    uint64_t bytes;
    uint64_t run, n_runs, stride; // as in kin_slice_view. Several runs are always gathered: such a block is packed
    int type;
    int64_t ne[3];             // of the slice; turned: of the result
    struct ggml_tensor **slot; // the tensor's place in weights->layers, tiles, ...
    kin_layout layout;
    int turned_type; // of the file's rows, if the layout is turned
    bool experts;    // one matrix per expert
    uint64_t offset; // in the packed block; with an expert_stride: of the first expert's
} kin_weights_piece;

typedef struct kin_weights_block {
    kin_weights_piece pieces[KIN_WEIGHTS_PIECES];
    int n_pieces;
    const kin_device *device;
    int i_compute_block;
    int i_cpu_layer; // index among the CPU layers here; unused for tiles and for blocks that are always in memory
    bool is_ff;      // part of the layer's feed-forward block
    bool later;      // may arrive after the first window has been computed
    bool pack;       // its bytes are made from the model file's and kept in the cache file: in another layout, or gathered
    bool experts;    // experts' matrices: never streamed, but read one by one (experts.h); by ggml's kernels fetched on demand
    uint64_t expert_stride;       // of experts, with kin's kernels: bytes from one expert to the next in the packed block; else 0
    uint64_t bytes, packed_bytes; // as in the model file, except for turned matrices; packed
    size_t i_packed;              // its number in the cache file

    uint64_t home_offset; // of a packed block, in w->packed_home
    uint8_t *base;        // of a packed block: its pages there, anonymous at first, later mapped from the cache file
    atomic_bool in_file;  // they are mapped from the cache file
    bool dirty;           // packed at this start
    bool in_stream;       // the streamer knows where it lies, and counts it if it is resident
    bool unchecked;       // in the cache file, but not yet checked against its hash: checked when first acquired
    atomic_bool damaged;  // found damaged by the background check; the computing thread packs it again when it acquires it
    uint64_t source_hash; // hash of its weights in the model file; for dirty blocks
    atomic_bool here;     // usable: packed, or in the model file; on the GPU: copied. Changes under `mutex`
} kin_weights_block;

struct kin_weights {
    const kin_model *model;
    const kin_devices *devices;
    kin_weights_options o;

    struct ggml_tensor *(*layers)[KIN_W_COUNT]; // [n_layer] of the model; only those of the windows are filled in
    bool *on_gpu;                               // [n_layer]
    int *compute_blocks;                        // [n_layer] the first one of a CPU layer
    size_t *layer_blocks;                       // [n_layer] the first block of a layer
    int n_cpu_layers;
    int first_tile_compute_block;
    struct ggml_tensor *output_norm, *output_norm_bias, *stream_ends[KIN_STREAM_ENDS];
    struct ggml_tensor **tiles; // [n_tiles]
    int n_tiles;
    struct ggml_tensor *rope_factors[2]; // for the CPU's layers, for the GPU's
    kin_weights_block *blocks;
    size_t n_blocks;

    struct ggml_context *ctx, *gpu_ctx; // hold the tensors of the CPU, of the GPU
    ggml_backend_buffer_t gpu_buf;
    // Buffers in which the CPU's tensors are created, which sets a tensor's kind (packed or plain); its data pointer is then
    // redirected.
    ggml_backend_buffer_t repack_home, plain_home;
    uint8_t *plain_memory;
    uint8_t *packed_home; // address space for all packed blocks; each uses its own pages in it
    uint64_t packed_home_bytes;

    kin_packed *packed;
    pthread_t packer; // loads the later blocks, then writes the cache file while the model already runs
    bool finishing;
    bool must_stream;  // not all weights fit: every block must be in a file
    bool move_at_once; // each block is moved to the cache file as soon as it is packed
    atomic_bool cache_failed;
    atomic_bool has_logged_other, has_logged_damaged; // log the reason for packing again only once each
    atomic_bool closing;                              // background work must end
    atomic_int n_to_check;                            // blocks to be checked, or repaired, when they are acquired
    uint64_t source_stamp;                            // stamp of the model's files; 0: their content is known by its hash

    bool has_later;        // some blocks are `later`
    bool is_arriving;      // some blocks may not be here yet; true until kin_weights_settle
    pthread_mutex_t mutex; // guards the following fields
    pthread_cond_t changed;
    bool has_arrived, has_failed;
    kin_err failure;  // the first failure of weights to arrive
    kin_busy waiting; // for blocks to arrive

    kin_stream *stream;
    size_t *stream_blocks; // [n_blocks] numbers of the streamer's blocks, in its order
    size_t n_stream_blocks, i_next_stream;
    bool streaming;               // this pass acquires its blocks
    uint64_t budget;              // in force; guarded by `mutex`
    uint64_t ring_bytes;          // the least that weights other than experts need
    atomic_bool short_of_experts; // not all experts fit in memory: they come from `experts`, or the chosen ones are fetched
    kin_experts *experts;         // opened when experts are short for the first time, by kin's kernels
    kin_time history_saved;       // when the counts of experts were read or written
    bool experts_failed;          // it could not be opened, or there are no experts in files
    kin_expert_source source;     // of `experts`, for graphs; without functions before

    kin_weights_stats stats;
    atomic_ullong n_done, n_total; // bytes, for progress
};

// Returns the bytes of a piece's tensor.
static inline uint64_t kin_weights_piece_bytes(const kin_weights_piece *p) {
    return p->layout == KIN_LAYOUT_TURNED ? (uint64_t)(p->ne[0] * p->ne[1] * p->ne[2]) * sizeof(ggml_fp16_t) : p->bytes;
}

static inline uint64_t kin_weights_align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}
