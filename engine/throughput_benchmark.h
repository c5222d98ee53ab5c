// The rates of one ggml device, as decoding and prompts use it: matrix products for every weight type, attention over a long
// cache, of a token and of a prompt, and what an operation costs beside its data.
//
// Weights lie in memory that is many times larger than the last-level cache, and of a CPU each run reads other ones. Their bits
// are all zero: kernels do the same work for any values.
//
// Owner: the caller. Thread: the one that computes on the device.
#pragma once

#include "engine/device.h"
#include "engine/micro_benchmark.h"
#include "pure/plan/facts.h"

typedef struct kin_throughput_benchmark kin_throughput_benchmark;

// bytes: memory for weights. With less than twelve times the last-level cache (or, of a run, than 128 MB) the rates are in part
// the cache's.
int kin_throughput_benchmark_open(kin_throughput_benchmark **out, const kin_device *device, uint64_t bytes, kin_err *err);
void kin_throughput_benchmark_close(kin_throughput_benchmark *rates);

// One step of measuring: 0 <= i < kin_throughput_benchmark_n_steps(), in this order, into the same facts. What the device cannot
// do stays 0.
int kin_throughput_benchmark_n_steps(void);
int kin_throughput_benchmark_step(kin_throughput_benchmark *rates, int i, const kin_benchmark_options *options,
                                  kin_engine_facts *facts, kin_err *err);
