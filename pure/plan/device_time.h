// The latency model of one device: the memory, computing and disk work of its layers in one pass.
//
// The symbols of the paper and of kin, used in this folder only:
//
//   symbol   name                              unit      meaning
//   L        n_layer                           layers    of the model
//   k        n_rounds                          -         rounds of a token
//   l, g, c  n_layer, n_layer_gpu, their rest  layers    of a device: all, on its GPU, on its CPU
//   a, b     cpu_layer_s, gpu_layer_s          s         one layer on the CPU, on the GPU
//   B        disk_bytes_s                      bytes/s   direct reads
//   Q        ring_bytes                        bytes     slots for streamed weights: 1.25 times the largest block
//   R, S     resident_bytes, streamed_bytes    bytes     of the CPU's weights: kept, read in every pass
//   u        weight_block_bytes                bytes     a piece that is kept or read as a whole
//   T        period_s                          s         of one pass (for one token: TPOT)
//
// Memory. The CPU has A = budget - KV cache - buffers (minus the GPU's part if memory is shared) for its weights H. If H <= A,
// all weights are resident. Otherwise the ring is taken from A, R = A - Q, and S = H - R is read in every pass. Weight blocks are
// kept whole, so on average half a weight block of R stays unused.
//
// Time. The disk reads in the order of use, and never stops while the ring has room. The same weight blocks of every layer leave
// memory first (residency.h), so a device has only two kinds of layers, which differ by one streamed weight block. The cost of a
// layer is simulated (simulate.h), once per device for each number of streamed weight blocks, among layers of the same kind:
//     layer_s    time of a layer when the disk never gets ahead
//     hidden_s   by how much a window is shorter than the sum of its layers, because the ring was full when it began
// S determines how many layers there are of each kind, so both are means. If not every layer has a streamed weight block, a layer
// takes max(a, its share of one / B). If only the output is streamed, hidden_s is Q / B. With wait = mean layer_s - a
//     stall   = max(S / B, c (a + wait) + max(output, its streamed bytes / B))   lower bound of a pass
//     exposed = sum over windows of max(0, its CPU layers' wait + the output's max(0, streamed bytes / B - computing) - hidden_s)
// The other members leave enough time to fill the ring before each of the k windows; if they do not, stall is the limit. CPU
// layers are spread over windows as evenly as possible; the output follows the last window, which is one of those with fewer
// layers. While weights stream, each layer is computed in several graphs, and the output tile by tile: starting these is CPU time
// too. A GPU that has all layers of the model also has the output: then H excludes its bytes, and its time is the GPU's. Experts
// are read after the router has chosen them, each once in a pass: those that are not in memory wait for the disk, and nothing
// overlaps with that.
//
// A divided layer has its attention on the GPU and its feed-forward block on the CPU, one after the other, with two copies
// between them. Its part on the CPU, other than experts, is not streamed: if it does not fit, the load does not.
//
// A layer of a group (group.h) takes a fraction of the time that its last device alone would need, plus two sums. Each member has
// its own memory and disk for its slices, and streams them as a single device streams whole layers; at each sum all members wait
// for the one whose weights arrive last. So for layers the group waits as long as its slowest member, and then for the output as
// long as the head.
//
// Everything that does not depend on k is in kin_device_time, so a solver computes it once for all k.
#pragma once

#include <stdbool.h>

#include "pure/plan/facts.h"
#include "pure/plan/simulate.h"
#include "pure/plan/window.h"

// The work of a device in one pass. Layers are counted by number, by size (weights), and by what they hold of the context.
typedef struct kin_load {
    int n_cpu, n_divided, n_gpu;
    double size_cpu, size_divided, size_gpu; // in mean layers: the sum of their layer_share
    double kv_cpu;                           // in mean layers: the sum of their kv_share
} kin_load;

// Costs of layers of which the first `stage` weight blocks, in the order of leaving memory, are streamed; stage is 0 to n. See
// above.
typedef struct kin_stages {
    int n;                                                     // 0: the device has no disk to stream from
    double weight_block_bytes[KIN_SIMULATE_MAX_WEIGHT_BLOCKS]; // in the order of leaving memory
    double layer_s[KIN_SIMULATE_MAX_WEIGHT_BLOCKS + 1], hidden_s[KIN_SIMULATE_MAX_WEIGHT_BLOCKS + 1];
    double first_s; // reading the first weight block, and the computing that must wait for it
} kin_stages;

// The weights that one device holds, and how it streams them: whole layers on a single device, slices on a member of a group.
typedef struct kin_member_rates {
    int device;
    double heads, ff;                     // its share of attention, and of the feed-forward block
    double layer_bytes, expert_bytes;     // of a mean layer
    double attn_bytes;                    // the part of layer_bytes that is attention
    double output_bytes;                  // the head's output matrix
    double expert_hits[KIN_FACTS_N_HITS]; // of one token; see kin_facts_expert_hits
    double expert_share;                  // of a layer's experts that the pass uses
    double expert_miss_s;                 // reading the experts that one mean layer uses, if none of them is in memory
    double kv_bytes;                      // that the mean layer holds of the whole context
    double ring_bytes, weight_block_bytes;
    double disk_bytes_s; // rate of its disk; 0: these weights cannot be streamed
    kin_stages stages;
    const kin_device_facts *facts;
} kin_member_rates;

// Costs of a device, for passes with a given number of tokens.
typedef struct kin_device_rates {
    double cpu_layer_s, cpu_layer_fixed_s; // per mean layer of weights; per layer of any size (KV cache, operations)
    double gpu_layer_s, gpu_layer_fixed_s;
    double divided_gpu_s, divided_cpu_s; // per mean layer of weights: the part of a divided layer on the GPU, on the CPU
    double divided_fixed_s;              // per divided layer of any size: KV cache, operations, copies
    bool has_gpu;                        // a GPU that can multiply these weights
    bool with_output;
    double output_s, output_bytes; // the head's output
    double gpu_output_s;           // the output on the GPU; INFINITY: the GPU cannot multiply its weights
    int n_layer;                   // of the model
    double layer_bytes, expert_bytes, attn_bytes;
    double kv_bytes, gpu_kv_bytes; // that the mean layer, and any layer on the GPU, holds of the whole context
    int n_members;                 // 1: a single device
    kin_member_rates members[KIN_GROUP_MAX];
    double gpu_window_s; // copies to the GPU and back, per window with GPU layers
    double window_s;
    double layer_sums_s;                    // part of cpu_layer_fixed_s: the sums of a group
    double layer_starts_s, output_starts_s; // while weights stream: starting the graphs of a CPU layer, and of the output
    double layer_share_max, kv_share_max;
    const kin_device_facts *facts;
    double cpu_buffer_bytes, gpu_buffer_bytes;
} kin_device_rates;

typedef struct kin_member_time {
    double resident_bytes, streamed_bytes, memory_bytes;
    double load_s; // time that its disk works
} kin_member_time;

// The wait for streamed weights, before the part that a full ring at the start of a window hides is subtracted.
typedef struct kin_device_wait {
    int n_cpu;
    double layer_s, output_s;
    double hidden_s; // per window
} kin_device_wait;

typedef struct kin_device_time {
    bool fits; // if false, everything else is undefined
    double compute_s;
    double experts_s;
    double load_s, stall_s; // see above; 0 if nothing is streamed
    kin_device_wait wait;
    double streamed_bytes, gpu_bytes; // of all members
    kin_member_time members[KIN_GROUP_MAX];
} kin_device_time;

// Sets what this device holds with such shares of a layer; leaves the stages empty.
void kin_member_rates_init(kin_member_rates *member, const kin_facts *facts, int device, double heads, double ff);

// Sets the rates of a device for passes with n_tokens of one sequence after n_cached tokens; the logits of n_out of them are
// wanted. Borrows `facts`.
void kin_device_rates_init(kin_device_rates *rates, const kin_facts *facts, int device, int n_tokens, int n_cached, int n_out);

// The same for passes with the next token of each of n_sequences sequences, each after n_cached tokens.
void kin_device_rates_init_sequences(kin_device_rates *rates, const kin_facts *facts, int device, int n_sequences, int n_cached);

kin_device_time kin_device_time_of(const kin_device_rates *rates, const kin_load *load);

// Returns a load of layers of mean size. n_gpu: with attention on the GPU; n_cpu_moe of them are divided.
kin_load kin_load_of(int n_cpu, int n_gpu, int n_cpu_moe);

// Adds layer `il` of a window to a load.
void kin_load_add(kin_load *load, const kin_model_facts *model, const kin_window *window, int il);

// Returns the load, or one of as many layers that are all as large as the largest, and hold the most of the context.
kin_load kin_load_largest(const kin_device_rates *rates, const kin_load *load);

// True if the engine puts the output on the GPU, because that has all layers of the model.
bool kin_device_output_on_gpu(const kin_device_rates *rates, const kin_load *load);

// True if layers of this model may be divided between this device's GPU and CPU.
bool kin_device_can_divide(const kin_device_rates *rates);

// Returns the most whole layers that fit on the GPU whichever they are; if that is all of them, the output fits too.
int kin_device_gpu_layers_max(const kin_device_rates *rates, int n_layer);

// Returns the part of compute_s that is of divided layers.
double kin_device_divided_s(const kin_device_rates *rates, const kin_load *load);

// Return what k rounds add to compute_s and experts_s: waits for the disk; starting windows and copies.
double kin_device_exposed_s(const kin_device_wait *wait, int n_rounds);
double kin_device_windows_s(const kin_device_rates *rates, int n_layer, int n_layer_gpu, int n_rounds);
