// Facts: the input of planning. Measured rates of devices and links, the sizes of a model, and the expected work.
//
// Everything is plain data in SI units: seconds, bytes, bytes per second, FLOP per second. The fields are doubles, because facts
// come from other machines and from files: a negative memory size or a rate that is not a number can then be represented and
// rejected (kin_facts_screen). Device 0 is the head: it has the embedding and the output layer.
//
// Rates are those that the kernels achieve, not those that the hardware promises.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_GROUP_MAX = 8 }; // most devices that can share a layer
enum { KIN_FACTS_MAX_DEVICES = 32, KIN_FACTS_MAX_LAYERS = 256, KIN_FACTS_MAX_NAME = 48, KIN_FACTS_MAX_REASON = 160 };

// Weight types with their own rates. If a device has no rate for a type, it uses that of KIN_QUANT_OTHER.
typedef enum kin_quant {
    KIN_QUANT_F32,
    KIN_QUANT_F16,
    KIN_QUANT_BF16,
    KIN_QUANT_Q8_0,
    KIN_QUANT_Q6_K,
    KIN_QUANT_Q5_K,
    KIN_QUANT_Q4_K,
    KIN_QUANT_Q4_0,
    KIN_QUANT_Q3_K,
    KIN_QUANT_Q2_K,
    KIN_QUANT_OTHER,
    KIN_N_QUANT,
} kin_quant;

const char *kin_quant_name(kin_quant quant);

// Operating systems. How they reclaim memory matters only to the published objective (halda_cost.h).
typedef enum kin_os {
    KIN_OS_LINUX,
    KIN_OS_MACOS,
    KIN_OS_ANDROID,
    KIN_OS_OTHER,
    KIN_OS_BROWSER,
    KIN_OS_BROWSER_GPU, // its `cpu` facts describe WebGPU
} kin_os;

static inline bool kin_os_is_browser(kin_os os) {
    return os == KIN_OS_BROWSER || os == KIN_OS_BROWSER_GPU;
}

// Returns the suffix that is shown to people after the name of a browser; "" for other devices.
static inline const char *kin_os_label(kin_os os) {
    return os == KIN_OS_BROWSER ? " (browser)" : os == KIN_OS_BROWSER_GPU ? " (browser, WebGPU)" : "";
}

// Stands in place of a rate: this engine cannot multiply weights of that type. (A rate of 0 was not measured.)
#define KIN_RATE_CANNOT (-1.0)

// Number of batch sizes for which matrix products are measured: 2, 4, 8, 16 and 32 rows.
enum { KIN_FACTS_BATCHES = 5 };

// Number of weight sizes for which the effect of the CPU's cache is measured: 16, 32, 64 and 128 MB (powers of 1024).
enum { KIN_FACTS_CACHED = 4, KIN_FACTS_CACHED_LEAST = 16 << 20 };

// An engine: all cores of a CPU together, or a GPU.
typedef struct kin_engine_facts {
    double token_bytes_s[KIN_N_QUANT]; // weight bytes per second in matrix-vector products (compute and memory)
    double prompt_flop_s[KIN_N_QUANT]; // FLOP per second in matrix products with a prompt batch
    double read_bytes_s;               // attention: bytes of the KV cache per second, counted once per head that reads them
    double prompt_read_bytes_s;        // the same for a prompt batch, also counted per token; 0: not known
    double kv_bytes_s; // bytes of K and V per second where one read serves all heads of a group; 0: each head reads for itself
    // Time of a product of 2 << i rows, divided by the time to read the weights plus that of the rows' FLOP. 0: the factor of
    // KIN_QUANT_OTHER, or 1 if that is 0 too.
    double batch_factor[KIN_FACTS_BATCHES][KIN_N_QUANT];
    // Time to read 16 << i MB of weights again and again, divided by the time to read as much from memory. 0: the factor of
    // KIN_QUANT_OTHER, or 1 if that is 0 too.
    double cached_factor[KIN_FACTS_CACHED][KIN_N_QUANT];
    double kv_copy_s; // copying one token's keys and values into the cache of one layer
    double op_s;      // fixed cost of one graph operation: waking threads, their barrier, starting a kernel
} kin_engine_facts;

typedef struct kin_device_facts {
    char name[KIN_FACTS_MAX_NAME];
    kin_os os;
    bool has_gpu;
    bool uma;       // CPU and GPU share one memory: no copies, one budget
    bool no_slices; // it has no prepacked weights to stream slices from, so it must hold a group's slices in memory
    kin_engine_facts cpu, gpu;
    double memory_bytes;        // all RAM that kin may use
    double swap_bytes;          // RAM that the OS would free by swapping out other programs (Android)
    double gpu_memory_bytes;    // free VRAM; with shared memory, the GPU's largest working set
    double disk_bytes_s;        // direct reads of several MB, some of them in flight; 0: no disk to stream from
    double disk_random_bytes_s; // reads of single pages, and of experts without kin's kernels
    double to_gpu_s;            // copying one hidden state from RAM to VRAM
    double from_gpu_s;          // copying one back
    double gpu_copy_bytes_s;    // rate of copying many hidden states
    double window_s;            // fixed cost of one window: waking threads, starting graphs
} kin_device_facts;

typedef struct kin_link_facts {
    double rtt_s;   // round trip of a small message
    double bytes_s; // 0: the two devices cannot talk directly
} kin_link_facts;

// For a device that stands for a group (pure/plan/group.h). n_members 0: a single device.
typedef struct kin_shared_facts {
    int n_members;
    struct {
        int device;       // the last member is the device itself
        double heads, ff; // fraction of attention and of the feed-forward block that it computes
    } members[KIN_GROUP_MAX];
    double time;               // the group's time for a layer, divided by the device's own
    double sum_s, sum_token_s; // one of a layer's two sums: time per pass, and per token
    double sums_factor;        // measured over predicted time of the sums, if a group ends with this device; 0: not known
} kin_shared_facts;

enum { KIN_FACTS_N_HITS = 3 };

// Layers are treated as equal except for their size, and for what they hold of the context: layer_share, kv_share.
typedef struct kin_model_facts {
    int n_layer;
    double hidden_bytes;                      // one hidden state as sent over a link
    double layer_bytes[KIN_N_QUANT];          // of the mean layer, without experts
    double layer_flops[KIN_N_QUANT];          // per token, including the experts that it uses
    double expert_bytes[KIN_N_QUANT];         // all experts of the mean layer
    double expert_share;                      // fraction of the experts that one token uses
    double expert_hits[KIN_FACTS_N_HITS];     // see kin_facts_expert_hits; zeros: not known
    double layer_share[KIN_FACTS_MAX_LAYERS]; // [n_layer] size divided by the mean size; the mean is 1
    double attn_bytes;                        // attention's part of the mean layer_bytes; 0: a quarter
    double block_bytes;                       // largest piece that is needed at once; it sets the size of the streaming ring
    double weight_block_bytes;                // a piece that stays in memory or is streamed as a whole (mean)
    double input_bytes;                       // the embedding; a token reads one row of it
    double output_bytes[KIN_N_QUANT];
    double output_flops[KIN_N_QUANT];
    double layer_ops, output_ops;       // graph operations of a layer, and of the output
    double gpu_layer_ops;               // graph operations of a layer on a GPU; 0: as on a CPU
    double layer_blocks, output_blocks; // number of graphs that each is cut into while weights stream
    int n_vocab;
    bool cpu_only;                         // GPUs cannot compute this model
    double kv_bytes;                       // keys and values of one token that the mean layer reads
    double kv_held_bytes;                  // what the mean layer holds of the whole context on a CPU, for each token; 0: kv_bytes
    double gpu_kv_bytes;                   // the most that a layer holds on a GPU, likewise; 0: kv_held_bytes
    double kv_share[KIN_FACTS_MAX_LAYERS]; // [n_layer] what a layer holds on a CPU, divided by the mean; the mean is 1
    int checkpoint_gap;      // tokens between the stored states of layers that store no pages; 0: the model has no such layers
    double checkpoint_bytes; // states at one of these places, of all layers
    double share_heads, share_ff; // pieces of attention and of the feed-forward block that a group can divide
    double kv_reads;              // heads that read the same keys and values, each for itself; 0: one
    double cpu_buffer_bytes;      // compute buffers and the program itself
    double gpu_buffer_bytes;
} kin_model_facts;

typedef struct kin_work_facts {
    int n_ctx;    // cells of the KV cache; determines memory
    int n_cached; // tokens in the cache when TPOT is predicted; determines time
    int n_prompt; // tokens of the prompt when TTFT is predicted
    int n_batch;  // most tokens in one pass
    // Bytes of weights that are read pass after pass with nothing in between, such as a draft model's: the CPU's cache may hold
    // them. 0: other weights are read in between, so these come from memory.
    double reread_bytes;
} kin_work_facts;

typedef struct kin_facts {
    int n_device;
    kin_device_facts devices[KIN_FACTS_MAX_DEVICES];
    kin_shared_facts shared[KIN_FACTS_MAX_DEVICES];
    kin_link_facts links[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // [from][to]
    kin_model_facts model;
    kin_work_facts work;
} kin_facts;

// Makes a metric of all devices and links count for nothing, to see what it is worth: "speed" (computing takes no time),
// "latency" (round trips take none) or "bandwidth" (links have any). Fails for another name.
int kin_facts_ignore(kin_facts *facts, const char *metric, kin_err *err);

// A set of devices: bit i is device i.
typedef uint32_t kin_device_set;
static inline kin_device_set kin_device_bit(int device) {
    return (kin_device_set)1 << device;
}

// True if the device has a GPU that can multiply all weight types of the model's layers. Otherwise the GPU is not planned with.
bool kin_facts_gpu_usable(const kin_device_facts *device, const kin_model_facts *model);
// True unless one of the type's two rates, or the rate of KIN_QUANT_OTHER in its place, is KIN_RATE_CANNOT.
bool kin_facts_can_multiply(const kin_engine_facts *engine, kin_quant quant);

// Sets each figure to the median of n > 0 measurements of one engine; for an even n, to the mean of the middle two.
enum { KIN_FACTS_MAX_SWEEPS = 8 }; // largest n
void kin_engine_facts_median(kin_engine_facts *out, const kin_engine_facts *sweeps, int n);

// Returns the sum over weight types.
double kin_facts_bytes_sum(const double bytes[KIN_N_QUANT]);
// Returns the share of a token's experts that is found in memory, if the share in_memory of all experts is there: interpolated
// between those for a quarter, a half and three quarters; if these are not known, as many as are in memory.
double kin_facts_expert_hits(const double hits[KIN_FACTS_N_HITS], double in_memory);
// Returns the bytes of the mean layer, including all its experts.
double kin_facts_layer_bytes(const kin_model_facts *model);
// Sets layer_share from the bytes of each layer; NULL: all layers are equal. All hold equal parts of the context, until
// kin_facts_forget_kv makes each layer hold the whole context, for a context whose layers were not asked: windows and recurrent
// states do not grow with it. kin_facts_set_kv sets kv_share and kv_held_bytes from the bytes // [n_layer] that each layer holds
// of n_ctx tokens.
void kin_facts_set_shares(kin_model_facts *model, const double *bytes);
void kin_facts_forget_kv(kin_model_facts *model);
void kin_facts_set_kv(kin_model_facts *model, int n_ctx, const double *bytes);
// Return the bytes that the mean layer, and any layer on a GPU, holds of a context of n_ctx tokens.
double kin_facts_kv_held(const kin_model_facts *model, int n_ctx);
double kin_facts_gpu_kv_held(const kin_model_facts *model, int n_ctx);

// Checks the model and the work. Fails with a sentence on the first impossible value.
int kin_facts_check(const kin_facts *facts, kin_err *err);

// Checks one device: every rate that it needs for this model is present and possible.
int kin_facts_check_device(const kin_device_facts *device, const kin_model_facts *model, bool is_head, kin_err *err);

// Finds the devices that can be planned with: their facts are possible, and a path of usable links leads to the head and back.
// `reasons` (may be NULL) gets a sentence for each other device. Fails if the head is rejected.
int kin_facts_screen(const kin_facts *facts, kin_device_set *usable, char reasons[][KIN_FACTS_MAX_REASON], kin_err *err);

// Returns the devices in `among` (which contains the head) that the head reaches over usable links within `among`, and that reach
// the head.
kin_device_set kin_facts_reachable(const kin_facts *facts, kin_device_set among);

// True if both numbers are possible, so the two devices can talk.
bool kin_facts_link_usable(const kin_link_facts *link);
