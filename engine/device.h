// The compute devices of this machine, as ggml knows them: the CPU, and at most one GPU.
//
// Owner: whoever opened the set. A device computes on one thread at a time: the one that runs the shard.
// (ggml's CPU threads belong to the thread that starts a graph: computing from two threads would make two pools.)
#pragma once

#include <ggml-backend.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "kernels/kernels.h"

typedef struct kin_device_options {
    int n_threads;        // 0: one per physical core
    bool gpu;             // open the first GPU; an error if there is none, unless:
    bool gpu_if_any;      // open it if there is one, in hardware or named by GGML_VK_VISIBLE_DEVICES
    bool repack;          // give CPU weights the layout that this CPU multiplies fastest
    bool ggml_kernels;    // compute with ggml's kernels alone, for comparison
    atomic_bool *stop;    // NULL, or: once true, a running computation ends early with an error
    atomic_uint *n_signs; // NULL, or: counts on between a computation's operations on the CPU; needs stop
} kin_device_options;

kin_device_options kin_device_options_defaults(void);

typedef struct kin_device {
    ggml_backend_t backend;
    ggml_backend_dev_t dev;
    ggml_backend_buffer_type_t buft;        // where weights, caches and activations of this device live
    ggml_backend_buffer_type_t repack_buft; // ggml's faster layout for the CPU's weights; NULL if off or unknown
    const kin_kernels *kernels;             // kin's own kernels for the CPU; NULL: not used
    bool packs;                             // weights are packed for them
    bool is_gpu;
    char name[64]; // "CPU", "Vulkan0"
} kin_device;

// Stays where it was opened: ggml holds on to its options. Copies may be used as long as it is open.
typedef struct kin_devices {
    kin_device cpu;
    kin_device gpu; // backend NULL if not opened
    int n_threads;
    kin_device_options options; // what they were opened with
    char cpu_variant[256];      // what decides the packed layout: ggml's version and the CPU features it uses
} kin_devices;

// Whether the CPU of this machine has a vector unit that kin's kernels know (or KIN_CPU names one).
bool kin_device_has_kernels(void);

int kin_devices_open(kin_devices *devices, const kin_device_options *options, kin_err *err);
void kin_devices_close(kin_devices *devices);

// Closes the GPU; the set has none from then on.
void kin_devices_close_gpu(kin_devices *devices);

// How the CPU's weights lie in memory.
typedef enum kin_layout {
    KIN_LAYOUT_PLAIN,  // as in the file
    KIN_LAYOUT_PANELS, // kin_kernel_pack
    KIN_LAYOUT_REPACK, // as ggml wants it, of repack_buft
} kin_layout;

// The layout that this CPU multiplies fastest, for a weight of this type and shape (ne: as kin_weight_shape gives it).
kin_layout kin_device_layout(const kin_device *cpu, int type, const int64_t ne[3]);
