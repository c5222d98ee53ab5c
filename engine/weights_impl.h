// Inside of kin_weights, for weights.c (opening, streaming, what others ask), weights_blocks.c (what belongs to which block),
// weights_place.c (where each block's bytes are: packing, the cache file, the GPU), weights_check.c (whether the cache file's
// blocks can be trusted) and weights_arrival.c (blocks that come later than open).
//
// Threads: the computing thread, and a thread of ours that loads the later blocks and then finishes the cache file. A block
// belongs to whoever fills it until it is `here`, then to the computing thread; only its pages may be replaced by those of the
// cache file, with the same bytes.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/packed.h"
#include "engine/weights.h"

enum {
    KIN_WEIGHTS_PIECES = KIN_STREAM_MAX_EXTENTS, // most of a block
    KIN_WEIGHTS_ALIGN = 64,                      // of tensors
    KIN_WEIGHTS_NO_COMPUTE_BLOCK = -1,           // small things that are always there
};

// One weight of a block: where it comes from and the tensor that it becomes.
typedef struct kin_weights_piece {
    const uint8_t *data; // in the model file's mapping: the first byte of its slice
    int i_file;
    uint64_t file_offset;
    uint64_t bytes;
    uint64_t run, n_runs, stride; // as in a kin_slice_view. Several runs are always gathered: the block is packed
    int type;
    int64_t ne[3];             // of the slice
    struct ggml_tensor **slot; // in weights->layers, tiles, ...
    kin_layout layout;
    bool experts;    // one matrix per expert
    uint64_t offset; // in the packed block
} kin_weights_piece;

typedef struct kin_weights_block {
    kin_weights_piece pieces[KIN_WEIGHTS_PIECES];
    int n_pieces;
    const kin_device *device;
    int i_compute_block;
    int i_cpu_layer; // of the CPU's layers here; meaningless for tiles and what is always there
    bool is_ff;      // of its feed-forward block
    bool later;      // may come when the first window is computed already
    bool pack;       // its bytes are made from the model file's, and kept in the cache file: in another layout, or gathered
    bool experts;    // holds matrices of experts: fetched by need, never streamed
    uint64_t bytes, packed_bytes; // as it is in the model file; packed
    size_t i_packed;              // its number in the cache file

    uint64_t home_offset; // packed: its place in w->packed_home
    uint8_t *base;        // packed: the block's own pages there, anonymous at first, then mapped from the cache file
    atomic_bool in_file;  // they are
    bool dirty;           // packed at this start
    bool unchecked;       // in the cache file, and not checked against its hash yet: done when it is first acquired
    atomic_bool damaged;  // found by the background check; the computing thread packs it again when it acquires it
    uint64_t source_hash; // of its weights in the model file; for dirty ones
    atomic_bool here;     // usable: packed, or in the model file; on the GPU: copied. Changes under `mutex`
} kin_weights_block;

struct kin_weights {
    const kin_model *model;
    const kin_devices *devices;
    kin_weights_options o;

    struct ggml_tensor *(*layers)[KIN_W_COUNT]; // [n_layer] of the model; those of the windows are filled in
    bool *on_gpu;                               // [n_layer]
    int *compute_blocks;                        // [n_layer] a CPU layer's first
    size_t *layer_blocks;                       // [n_layer] a layer's first block
    int n_cpu_layers;
    int first_tile_compute_block;
    struct ggml_tensor *output_norm;
    struct ggml_tensor **tiles; // [n_tiles]
    int n_tiles;
    struct ggml_tensor *rope_factors[2]; // for the CPU's layers, for the GPU's
    kin_weights_block *blocks;
    size_t n_blocks;

    struct ggml_context *ctx, *gpu_ctx; // the tensors of the CPU, of the GPU
    ggml_backend_buffer_t gpu_buf;
    // Buffers in which the CPU's tensors are created: they give a tensor its kind (packed or plain); its data then points
    // elsewhere.
    ggml_backend_buffer_t repack_home, plain_home;
    uint8_t *plain_memory;
    uint8_t *packed_home; // address space for all packed blocks; each takes its own pages there
    uint64_t packed_home_bytes;

    kin_packed *packed;
    pthread_t finisher; // loads the later blocks, then writes the cache file while the model already runs
    bool finishing;
    bool must_stream;  // not all fits: every block must be in a file
    bool move_at_once; // each block goes to the cache file as soon as it is packed
    atomic_bool cache_failed;
    atomic_bool said_other, said_damaged; // why blocks were packed again: once each
    atomic_bool closing;                  // background work is to end
    atomic_int n_to_check;                // blocks that are checked, or mended, when they are acquired
    uint64_t source_stamp;                // of the model's files; 0: their content is known by its hash

    bool has_later;        // some blocks are
    bool is_arriving;      // they may not be here: until kin_weights_settle
    pthread_mutex_t mutex; // over the following
    pthread_cond_t changed;
    bool has_arrived, has_failed;
    kin_err failure;  // the first one: weights that did not come
    kin_busy waiting; // for blocks that arrive

    kin_stream *stream;
    size_t *stream_blocks; // [n_blocks] numbers of the streamer's blocks, in its order
    size_t n_stream_blocks, i_next_stream;
    bool streaming;               // this pass acquires its blocks
    atomic_bool short_of_experts; // not all fit: the chosen ones are fetched

    kin_weights_stats stats;
    atomic_ullong n_done, n_total; // bytes, for progress
};

static inline uint64_t kin_weights_align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

// ---- weights_blocks.c

void kin_weights_add_layer_block(kin_weights_block *b, const kin_model *m, int il, kin_weight_block kind,
                                 const kin_slices *slices, struct ggml_tensor **slots, const kin_device *cpu);
void kin_weights_add_tile_block(kin_weights_block *b, const kin_model *m, int i_tile, struct ggml_tensor **slot,
                                const kin_device *cpu);
void kin_weights_collect_blocks(kin_weights *w);

// ---- weights_place.c

// Opens the prepacked cache where it is of use. Without it a line in the log says why.
void kin_weights_try_cache(kin_weights *w);

// Places all blocks, and fills those that are not `later`.
int kin_weights_place_cpu(kin_weights *w, kin_err *err);
int kin_weights_place_gpu(kin_weights *w, kin_err *err);

// All packed blocks but those of the layers in `but` are in the cache file afterwards, sealed.
int kin_weights_pack_ahead(kin_weights *w, const kin_windows *but, const atomic_bool *stop, kin_err *err);

void kin_weights_fill_later(kin_weights *w);                                                     // of the CPU. Any thread
int kin_weights_copy_blocks(kin_weights *w, size_t begin, size_t end, bool later, kin_err *err); // those of the GPU among them

// Where the streamer will read: a block that found no place in the cache file is used as it is in the model file.
int kin_weights_unpack_if_lost(kin_weights *w, kin_weights_block *b, kin_err *err);
int kin_weights_settle_cpu(kin_weights *w, kin_err *err); // all of them

void kin_weights_point_at_mapping(kin_weights_block *b);
void kin_weights_drop_pages(const kin_weights *w,
                            const kin_weights_block *b); // a mapped block leaves our memory until it is used
bool kin_weights_on_disk(const kin_weights *w, const kin_weights_block *b);
bool kin_weights_has_dirty(const kin_weights *w); // something was packed, or will be

// Packs the block at `base` // [packed_bytes]: its tensors point there afterwards. Fails where the model's files were written to
// since they were opened: a cache of other weights would be trusted when the right file is back.
int kin_weights_pack(const kin_weights *w, kin_weights_block *b, uint8_t *base, kin_err *err);
void kin_weights_finish_cache(kin_weights *w); // by a thread of its own: gives way to all others from here on

// ---- weights_check.c

uint64_t kin_weights_source_hash(const kin_weights_block *b);

// Whether a block of the cache file can be used, before it is mapped: it was made from what the model file has now, and its
// content is sound, unless that is left for its first use.
bool kin_weights_trust(kin_weights *w, kin_weights_block *b);

// When a block is acquired: `at` is where its packed bytes are now, in the streamer's ring or mapped. What is damaged is packed
// again, in the file and at `at`. Fails if another process keeps the file from being mended.
int kin_weights_check(kin_weights *w, kin_weights_block *b, const uint8_t *at, kin_err *err);

bool kin_weights_has_unchecked(const kin_weights *w); // that no one acquires: experts
void kin_weights_check_behind(kin_weights *w);        // these. By a thread of its own, until w->closing

// ---- weights_arrival.c

// Begins what goes on after open: the lazy load, where blocks come later; finishing the cache file.
int kin_weights_start_finisher(kin_weights *w, kin_err *err);
void kin_weights_stop_finisher(kin_weights *w); // ends waits for blocks that did not come; waits for the cache file

// While w->is_arriving, in place of the streamer's. Blocks are used in their mapping.
int kin_weights_acquire_arriving(kin_weights *w, int i_compute_block, kin_err *err);
void kin_weights_release_arriving(kin_weights *w, int i_compute_block);
