// Facts: what a plan is made from. Measured rates of devices and links, sizes of a model, and the work that is expected.
//
// Everything is plain data in SI units: seconds, bytes, bytes per second, FLOP per second. They are doubles, because facts
// come from other machines and from files: a negative memory or a rate that is not a number can be represented, and so refused
// (kin_facts_screen). Device 0 is the head: it has the embedding and the output layer.
//
// Rates are what kernels achieve, not what the hardware promises.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { KIN_GROUP_MAX = 8 }; // devices that can share a layer
enum { KIN_FACTS_MAX_DEVICES = 32, KIN_FACTS_MAX_LAYERS = 256, KIN_FACTS_MAX_NAME = 48, KIN_FACTS_MAX_REASON = 160 };

// Weight types that are told apart. A type of which a device knows no rate counts as KIN_QUANT_OTHER there.
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

// The systems reclaim memory differently; only the published objective asks for it.
typedef enum kin_os {
    KIN_OS_LINUX,
    KIN_OS_MACOS,
    KIN_OS_ANDROID,
    KIN_OS_OTHER,
    KIN_OS_BROWSER,
    KIN_OS_BROWSER_GPU, // its `cpu` is what WebGPU computes
} kin_os;

static inline bool kin_os_is_browser(kin_os os) {
    return os == KIN_OS_BROWSER || os == KIN_OS_BROWSER_GPU;
}

// What stands behind the name of a browser, for people; "" for others.
static inline const char *kin_os_label(kin_os os) {
    return os == KIN_OS_BROWSER ? " (browser)" : os == KIN_OS_BROWSER_GPU ? " (browser, WebGPU)" : "";
}

// In place of a rate: this engine cannot multiply weights of that type. 0: not measured.
#define KIN_RATE_CANNOT (-1.0)

// Numbers of rows for which the products of a batch are measured: 2, 4, 8, 16, 32.
enum { KIN_FACTS_BATCHES = 5 };

// Amounts of weights for which it is known what a processor's cache makes of them: 16, 32, 64, 128 MB (powers of 1024).
enum { KIN_FACTS_CACHED = 4, KIN_FACTS_CACHED_LEAST = 16 << 20 };

// What computes: all cores of a CPU together, or a GPU.
typedef struct kin_engine_facts {
    double token_bytes_s[KIN_N_QUANT]; // weight bytes per second in matrix-vector products, compute and memory together
    double prompt_flop_s[KIN_N_QUANT]; // FLOP per second in matrix products with a prompt batch
    double read_bytes_s;               // attention: bytes of the KV cache, counted once for each head that looks at them
    double prompt_read_bytes_s;        // the same for a prompt batch, counted for each token too; 0: not known
    double kv_bytes_s;                 // reading K and V where all heads of a group share it; 0: each head reads for itself
    // Products of 2 << i rows over reading the weights plus the rows' FLOP; 0: as KIN_QUANT_OTHER, and if that is 0, 1.
    double batch_factor[KIN_FACTS_BATCHES][KIN_N_QUANT];
    // Reading 16 << i MB of weights again and again, over reading as many from memory; 0: as KIN_QUANT_OTHER, and if that is
    // 0, 1.
    double cached_factor[KIN_FACTS_CACHED][KIN_N_QUANT];
    double kv_copy_s; // one token's keys and values into the cache of one layer
    double op_s;      // fixed cost of one operation of a graph: waking threads, their barrier, a kernel's start
} kin_engine_facts;

typedef struct kin_device_facts {
    char name[KIN_FACTS_MAX_NAME];
    kin_os os;
    bool has_gpu;
    bool uma;       // the GPU's memory is the CPU's: no copies, one budget
    bool no_slices; // it keeps no prepacked weights, which slices are streamed from: it holds those of a group in memory
    kin_engine_facts cpu, gpu;
    double memory_bytes;        // RAM that kin may use in all
    double swap_bytes;          // RAM that the OS would free by swapping others out (Android)
    double gpu_memory_bytes;    // VRAM that is free; where memory is shared, the largest working set of the GPU
    double disk_bytes_s;        // direct reads of several MB, some in flight; 0: no disk to stream from
    double disk_random_bytes_s; // reads of single pages and of experts
    double to_gpu_s;            // one hidden state from RAM to VRAM
    double from_gpu_s;          // and back
    double gpu_copy_bytes_s;    // the same for many
    double window_s;            // fixed cost of one window: waking threads, starting graphs
} kin_device_facts;

typedef struct kin_link_facts {
    double rtt_s;   // of a small message there and back
    double bytes_s; // 0: these two cannot talk directly
} kin_link_facts;

// Of a device that stands for a group (pure/plan/group.h). n_members 0: it is one device.
typedef struct kin_shared_facts {
    int n_members;
    struct {
        int device;       // the last one is the device itself
        double heads, ff; // its share of attention and of the feed-forward block, 0 to 1
    } members[KIN_GROUP_MAX];
    double time;               // of what the device itself would take for a layer
    double sum_s, sum_token_s; // one of a layer's two sums: of a pass, and for each token of it
    double sums_factor;        // sums of a group whose last device it is took so many times as long as predicted; 0: not known
} kin_shared_facts;

// Layers count as equal but for their size: layer_share.
typedef struct kin_model_facts {
    int n_layer;
    double hidden_bytes;                      // one hidden state on a link
    double layer_bytes[KIN_N_QUANT];          // of the mean layer, without experts
    double layer_flops[KIN_N_QUANT];          // per token, with the experts that it uses
    double expert_bytes[KIN_N_QUANT];         // all experts of the mean layer
    double expert_share;                      // the share of these that a token uses, 0 to 1
    double layer_share[KIN_FACTS_MAX_LAYERS]; // [n_layer] size over the mean size; the mean is 1
    double attn_bytes;                        // of the mean layer's, those of its attention; 0: a quarter
    double block_bytes;                       // largest piece that is needed at once; the streaming ring is sized by it
    double weight_block_bytes;                // piece that stays in memory or is streamed as a whole (mean)
    double input_bytes;                       // the embedding; a token reads one row
    double output_bytes[KIN_N_QUANT];
    double output_flops[KIN_N_QUANT];
    double layer_ops, output_ops;       // operations of the graph of a layer, and of the output
    double gpu_layer_ops;               // of a layer on a GPU; 0: as on a CPU
    double layer_blocks, output_blocks; // graphs that they are cut into while weights stream
    int n_vocab;
    double kv_bytes;              // keys and values of one token in one layer
    double share_heads, share_ff; // pieces that devices of a group can share: of its attention, of its feed-forward block
    double kv_reads;              // heads that look at the same keys and values, each for itself; 0: one
    double cpu_buffer_bytes;      // compute buffers and the program itself
    double gpu_buffer_bytes;
} kin_model_facts;

typedef struct kin_work_facts {
    int n_ctx;    // cells of the KV cache: memory
    int n_cached; // tokens in the cache for which TPOT is predicted: time
    int n_prompt; // tokens of the prompt for which TTFT is predicted
    int n_batch;  // most tokens in one pass
    // Weights that are read again at once, pass after pass, as a draft model's; 0: others are read in between, so they come from
    // memory.
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

// Devices by their number.
typedef uint32_t kin_device_set;
static inline kin_device_set kin_device_bit(int device) {
    return (kin_device_set)1 << device;
}

// Whether the device has a GPU that can multiply all weight types of the model's layers. If not, it is planned without one.
bool kin_facts_gpu_usable(const kin_device_facts *device, const kin_model_facts *model);
// Whether both rates of a type are known, or one for "other" stands for them.
bool kin_facts_can_multiply(const kin_engine_facts *engine, kin_quant quant);

// The median of n > 0 measurements of one engine, figure by figure; for an even n the mean of the two in the middle.
enum { KIN_FACTS_MAX_SWEEPS = 8 }; // n at most
void kin_engine_facts_median(kin_engine_facts *out, const kin_engine_facts *sweeps, int n);

// The sum over types.
double kin_facts_bytes_sum(const double bytes[KIN_N_QUANT]);
// The mean layer with all its experts.
double kin_facts_layer_bytes(const kin_model_facts *model);
// layer_share from the bytes of each layer; NULL: all are equal.
void kin_facts_set_shares(kin_model_facts *model, const double *bytes);

// Checks the model and the work. Fails with a sentence on the first impossible value.
int kin_facts_check(const kin_facts *facts, kin_err *err);

// One device on its own: every rate that it needs for this model is there and possible.
int kin_facts_check_device(const kin_device_facts *device, const kin_model_facts *model, bool is_head, kin_err *err);

// Devices that can be planned with: their facts are possible, and a path of possible links goes to the head and back.
// reasons (may be NULL) gets a sentence for each other one. A refused head is an error of the whole.
int kin_facts_screen(const kin_facts *facts, kin_device_set *usable, char reasons[][KIN_FACTS_MAX_REASON], kin_err *err);

// Devices of `among` (the head is one) to which a path of usable links through `among` goes from the head, and one back.
kin_device_set kin_facts_reachable(const kin_facts *facts, kin_device_set among);

// Both numbers are possible, and the two can talk.
bool kin_facts_link_usable(const kin_link_facts *link);
