// The compute devices of this machine as ggml knows them: the CPU, and at most one GPU.
//
// Owner: the code that opened the set. A device computes on one thread at a time: the one that runs the shard. The CPU's team
// computes graphs that consist of kin's kernels; ggml's threads compute other graphs, and each thread that starts one gets a pool
// of its own.
#pragma once

#include <ggml-backend.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "kernels/kernels.h"
#include "model/graph.h"

typedef struct kin_device_options {
    int n_threads;        // 0: one per physical core
    bool gpu;             // open the first GPU; fails if there is none
    bool gpu_if_any;      // without `gpu`: open a GPU only if there is one, in hardware or named by GGML_VK_VISIBLE_DEVICES
    bool repack;          // give CPU weights the layout that this CPU multiplies fastest
    bool ggml_kernels;    // compute with ggml's kernels only, for comparison
    bool repeats_small;   // for tests: threads compute late chunks again in small graphs too
    atomic_bool *stop;    // NULL, or: once true, a running computation ends early with an error
    atomic_uint *n_signs; // NULL, or: a counter that advances between CPU operations, as a sign of life; needs stop
} kin_device_options;

kin_device_options kin_device_options_defaults(void);

typedef struct kin_device {
    ggml_backend_t backend;
    ggml_backend_dev_t dev;
    ggml_backend_buffer_type_t buft;        // holds this device's weights, caches and activations
    ggml_backend_buffer_type_t repack_buft; // ggml's faster layout for CPU weights; NULL if off or unknown
    const kin_kernels *kernels;             // kin's own CPU kernels; NULL: not used
    bool packs;                             // weights are packed for these kernels
    kin_compute compute;                    // computes graphs that consist of these kernels
    bool is_gpu;
    char name[64]; // "CPU", "Vulkan0"
} kin_device;

// Must not move after it was opened: ggml keeps pointers to its options. Copies may be used while it is open.
typedef struct kin_devices {
    kin_device cpu;
    kin_device gpu; // backend NULL if not opened
    int n_threads;
    kin_device_options options; // as given to kin_devices_open
    char cpu_variant[256];      // determines the packed layout: ggml's version and the CPU features it uses
} kin_devices;

// True if this CPU has a vector unit that kin's kernels support (or KIN_CPU names one).
bool kin_device_has_kernels(void);

int kin_devices_open(kin_devices *devices, const kin_device_options *options, kin_err *err);
void kin_devices_close(kin_devices *devices);

// Closes the GPU; afterwards the set has none.
void kin_devices_close_gpu(kin_devices *devices);

// The memory layout of the CPU's weights.
typedef enum kin_layout {
    KIN_LAYOUT_PLAIN,  // as in the file
    KIN_LAYOUT_PANELS, // by kin_kernel_pack
    KIN_LAYOUT_REPACK, // ggml's own, in repack_buft
    KIN_LAYOUT_TURNED, // F16: the columns of the file's matrices are the rows of these
} kin_layout;

// Returns the layout that this CPU multiplies fastest for a weight of this type and shape (ne: from kin_weight_shape).
kin_layout kin_device_layout(const kin_device *cpu, int type, const int64_t ne[3]);
