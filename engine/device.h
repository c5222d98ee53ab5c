// The compute devices of this machine, as ggml knows them: the CPU, and at most one GPU.
//
// Owner: whoever opened the set. A device computes on one thread at a time: the one that runs the shard.
// (ggml's CPU threads belong to the thread that starts a graph: computing from two threads would make two pools.)
#pragma once

#include <ggml-backend.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"

typedef struct kin_device_options {
    int n_threads;     // 0: one per physical core
    bool gpu;          // open the first GPU; an error if there is none, unless:
    bool gpu_if_any;   // open it if there is one
    bool repack;       // give CPU weights the layout that this CPU multiplies fastest
    atomic_bool *stop; // NULL, or: once true, a running computation ends early with an error
} kin_device_options;

kin_device_options kin_device_options_defaults(void);

typedef struct kin_device {
    ggml_backend_t backend;
    ggml_backend_dev_t dev;
    ggml_backend_buffer_type_t buft;        // where weights, caches and activations of this device live
    ggml_backend_buffer_type_t repack_buft; // the CPU's faster layout for weights; NULL if off or unknown
    bool is_gpu;
    char name[64]; // "CPU", "Vulkan0"
} kin_device;

typedef struct kin_devices {
    kin_device cpu;
    kin_device gpu; // backend NULL if not opened
    int n_threads;
    char cpu_variant[256]; // what decides the packed layout: ggml's version and the CPU features it uses
} kin_devices;

int kin_devices_open(kin_devices *devices, const kin_device_options *options, kin_err *err);
void kin_devices_close(kin_devices *devices);

// There is none to compute on from now on.
void kin_devices_close_gpu(kin_devices *devices);

// Whether this CPU has a faster layout for a weight of this type and shape (ne: as kin_weight_shape gives it).
bool kin_device_can_repack(const kin_device *cpu, int type, const int64_t ne[3]);
