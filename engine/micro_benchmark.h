// A micro-benchmark: a graph on one device that is run again and again, to learn how long it takes.
//
// The caller adds nodes to `graph` (its ctx allocates no data), makes it ready, and times it. Weights and caches that must lie in
// a certain place are placed by the caller before; what else the graph needs is allocated by ready.
//
// Owner and thread: the one that measures. Everything lives until fini.
#pragma once

#include <ggml-alloc.h>
#include <stdbool.h>

#include "engine/device.h"
#include "model/graph.h"

typedef struct kin_micro_benchmark {
    const kin_device *device;
    kin_graph graph; // with the device's kernels; hp and layers are the caller's
    ggml_gallocr_t galloc;
    // What the caller placed in these buffers moves on by move_bytes after each run, and from the last of n_places back to where
    // it was. n_places 0 or 1: it stays.
    ggml_backend_buffer_t moved[2];
    uint64_t move_bytes;
    int n_places, i_place;
} kin_micro_benchmark;

// How a graph is timed.
typedef struct kin_benchmark_options {
    double least_s; // runs it for so long at least
    bool mean;      // the mean counts: a quota takes its time from long runs only. Else the median
} kin_benchmark_options;

int kin_micro_benchmark_init(kin_micro_benchmark *bench, const kin_device *device, size_t n_nodes, kin_err *err);
void kin_micro_benchmark_fini(kin_micro_benchmark *bench);

// Whether the device can compute every node.
bool kin_micro_benchmark_possible(const kin_micro_benchmark *bench);

int kin_micro_benchmark_ready(kin_micro_benchmark *bench, kin_err *err);

// Seconds of one run.
int kin_micro_benchmark_time(kin_micro_benchmark *bench, const kin_benchmark_options *options, double *seconds, kin_err *err);
