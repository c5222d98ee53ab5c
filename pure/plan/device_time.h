// What a device's part of a pass costs it: memory, computing, and the disk's work behind it. The latency model of one device.
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
// Memory. The CPU has A = budget - KV cache - buffers (where memory is shared, less the GPU's part too) for its weights H.
// H <= A: all is resident. Else the ring is taken from A, R = A - Q, and S = H - R is read in every pass. Weight blocks are
// whole, so half a weight block of R stays unused on average.
//
// Time. The disk reads in the order of use, always, as long as the ring has room. Of every layer the same weight blocks leave
// memory first (residency.h), so on one device there are only two kinds of layers, which differ by one streamed weight block.
// What a layer takes is simulated (simulate.h), once per device for each number of streamed weight blocks, among layers of its
// kind:
//     layer_s    when the disk never gets ahead
//     hidden_s   what a window is shorter than its layers' time, because the ring was full when it began
// How many layers there are of either kind follows from S, so both are means; where not every layer has a streamed weight block,
// a layer takes max(a, its share of one / B). The output alone has Q / B for hidden_s. With wait = mean layer_s - a
//     stall   = max(S / B, c (a + wait) + max(output, its streamed bytes / B))   a pass cannot be shorter
//     exposed = sum over windows of max(0, its CPU layers' wait + the output's max(0, streamed bytes / B - computing) - hidden_s)
// The other members leave time enough to fill the ring before each of the k windows (where they do not, stall is the limit).
// CPU layers are spread over windows as evenly as whole layers can be; the output is behind the last window, one of those with
// fewer. While weights stream, layers are computed in several graphs each, and the output tile by tile: their starts are CPU
// time too. A GPU that has all layers of the model has the output too: its bytes are not in H then, its time is the GPU's.
// Experts are read when the router has chosen them: what is not in memory waits for the disk, and nothing overlaps with that.
//
// A group's layer (group.h) takes a part of what it would take its last device, and two sums. Each member has its own memory and
// disk for its slices, and streams them as a device streams whole layers; at each sum all wait for the one whose weights come
// last. So the group waits for a layer as the member that waits longest, and then for the output as the head does.
//
// Everything but k is in a kin_device_time, so a solver computes it once for all k.
#pragma once

#include <stdbool.h>

#include "pure/plan/facts.h"
#include "pure/plan/simulate.h"

// What a device is to do in one pass. Layers are counted twice: as layers (KV cache) and by their size (weights).
typedef struct kin_load {
    int n_cpu, n_gpu;
    double size_cpu, size_gpu; // in mean layers: the sum of their layer_share
} kin_load;

// Layers of which the first `stage` weight blocks to leave memory are streamed, 0 to n. See above.
typedef struct kin_stages {
    int n;                                                     // 0: the device has no disk to stream from
    double weight_block_bytes[KIN_SIMULATE_MAX_WEIGHT_BLOCKS]; // in the order of leaving
    double layer_s[KIN_SIMULATE_MAX_WEIGHT_BLOCKS + 1], hidden_s[KIN_SIMULATE_MAX_WEIGHT_BLOCKS + 1];
    double first_s; // reading the first weight block, and computing for which it must wait
} kin_stages;

// What one device holds of the layers, and how it streams them: a device on its own all of them, each member of a group its
// slices.
typedef struct kin_member_rates {
    int device;
    double heads, ff;                 // its share of attention, of the feed-forward block
    double layer_bytes, expert_bytes; // of a mean layer
    double output_bytes;              // the head's
    double expert_miss_s;             // reading the experts that one mean layer uses, if none of them is in memory
    double kv_bytes;                  // of one layer, for the whole context
    double ring_bytes, weight_block_bytes;
    double disk_bytes_s; // of its disk; 0: these weights cannot stream
    kin_stages stages;
    const kin_device_facts *facts;
} kin_member_rates;

// Costs of a device, for passes of a given number of tokens.
typedef struct kin_device_rates {
    double cpu_layer_s, cpu_layer_fixed_s; // per mean layer of weights, per layer (KV cache, operations)
    double gpu_layer_s, gpu_layer_fixed_s;
    bool has_gpu; // one that can multiply these weights
    bool with_output;
    double output_s, output_bytes; // the head's
    double gpu_output_s;           // on its GPU; INFINITY: that cannot multiply these weights
    int n_layer;                   // of the model
    double layer_bytes, expert_bytes;
    double kv_bytes; // of one layer, for the whole context
    int n_members;   // 1: the device itself
    kin_member_rates members[KIN_GROUP_MAX];
    double gpu_window_s; // copies to the GPU and back, per window with GPU layers
    double window_s;
    double layer_sums_s;                    // of cpu_layer_fixed_s, the sums of a group
    double layer_starts_s, output_starts_s; // while weights stream: starting the graphs of a CPU layer, of the output
    double layer_share_max;
    const kin_device_facts *facts;
    double cpu_buffer_bytes, gpu_buffer_bytes;
} kin_device_rates;

typedef struct kin_member_time {
    double resident_bytes, streamed_bytes, memory_bytes;
    double load_s; // its disk's work
} kin_member_time;

// Waiting for streamed weights, not yet less what is hidden by a ring that was full when a window began.
typedef struct kin_device_wait {
    int n_cpu;
    double layer_s, output_s;
    double hidden_s; // of each window
} kin_device_wait;

typedef struct kin_device_time {
    bool fits; // false: everything else is undefined
    double compute_s;
    double experts_s;
    double load_s, stall_s; // see above; 0 where nothing is streamed
    kin_device_wait wait;
    double streamed_bytes, gpu_bytes; // of all members
    kin_member_time members[KIN_GROUP_MAX];
} kin_device_time;

// What this device holds with such a share; without stages.
void kin_member_rates_init(kin_member_rates *member, const kin_facts *facts, int device, double heads, double ff);

// rates of a device for passes of n_tokens of one sequence after n_cached; n_out: of so many the logits are wanted. `facts` is
// borrowed.
void kin_device_rates_init(kin_device_rates *rates, const kin_facts *facts, int device, int n_tokens, int n_cached, int n_out);

// The same for passes with the next token of each of n_texts, all after n_cached of their own.
void kin_device_rates_init_texts(kin_device_rates *rates, const kin_facts *facts, int device, int n_texts, int n_cached);

kin_device_time kin_device_time_of(const kin_device_rates *rates, const kin_load *load);

// A load of layers that are all of mean size.
kin_load kin_load_of(int n_cpu, int n_gpu);

// Whether the engine puts the output on the GPU: it has all layers of the model.
bool kin_device_output_on_gpu(const kin_device_rates *rates, const kin_load *load);

// Most layers that surely fit on the GPU, whichever they are; if that is all of them, the output does too.
int kin_device_gpu_layers_max(const kin_device_rates *rates, int n_layer);

// What k rounds add to compute_s and experts_s: waiting for the disk, starting windows and copies.
double kin_device_exposed_s(const kin_device_wait *wait, int n_rounds);
double kin_device_windows_s(const kin_device_rates *rates, int n_layer, int n_layer_gpu, int n_rounds);
