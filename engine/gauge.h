// A gauge: a graph on one device that is run again and again, to learn how long it takes.
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

typedef struct kin_gauge {
    const kin_device *device;
    kin_graph graph; // with the device's kernels; hp and layers are the caller's
    ggml_gallocr_t galloc;
} kin_gauge;

// How long and how to look at a graph.
typedef struct kin_patience {
    double least_s; // runs it for so long at least
    bool mean;      // the mean counts: a quota takes its time from long runs only. Else the median
} kin_patience;

int kin_gauge_init(kin_gauge *gauge, const kin_device *device, size_t n_nodes, kin_err *err);
void kin_gauge_fini(kin_gauge *gauge);

// Whether the device can compute every node.
bool kin_gauge_possible(const kin_gauge *gauge);

int kin_gauge_ready(kin_gauge *gauge, kin_err *err);

// Seconds of one run.
int kin_gauge_time(kin_gauge *gauge, const kin_patience *patience, double *seconds, kin_err *err);
