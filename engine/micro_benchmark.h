// A micro-benchmark: a graph on one device that is run repeatedly to measure its time.
//
// The caller adds nodes to `graph` (its ctx allocates no data), makes it ready, and times it. The caller itself allocates weights
// and caches that must be in a certain place; ready allocates the rest.
//
// Owner and thread: the code that measures. Everything lives until fini.
#pragma once

#include <ggml-alloc.h>
#include <stdbool.h>

#include "engine/device.h"
#include "model/graph.h"

typedef struct kin_micro_benchmark {
    const kin_device *device;
    kin_graph graph; // with the device's kernels; hp and layers are the caller's
    ggml_gallocr_t galloc;
    // After each run the tensors that the caller placed in these buffers move on by move_bytes, and from the last of n_places
    // back to the first. n_places 0 or 1: they stay.
    ggml_backend_buffer_t moved[2];
    uint64_t move_bytes;
    int n_places, i_place;
} kin_micro_benchmark;

// How a graph is timed.
typedef struct kin_benchmark_options {
    double least_s; // runs it for at least this long
    bool mean;      // use the mean, because a CPU quota slows only long runs; false: the median
} kin_benchmark_options;

int kin_micro_benchmark_init(kin_micro_benchmark *bench, const kin_device *device, size_t n_nodes, kin_err *err);
void kin_micro_benchmark_fini(kin_micro_benchmark *bench);

// True if the device can compute every node.
bool kin_micro_benchmark_possible(const kin_micro_benchmark *bench);

int kin_micro_benchmark_ready(kin_micro_benchmark *bench, kin_err *err);

// Measures the seconds of one run.
int kin_micro_benchmark_time(kin_micro_benchmark *bench, const kin_benchmark_options *options, double *seconds, kin_err *err);
