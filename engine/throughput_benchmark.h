// Throughput of one ggml device for decoding and prompts: matrix products for every weight type, attention over a long cache for
// one token and for a prompt, and the fixed cost of an operation.
//
// Weights lie in memory many times larger than the last-level cache, and on a CPU each run reads different ones. Their bits are
// all zero: the kernels do the same work for any values.
//
// Owner: the caller. Thread: the one that computes on the device.
#pragma once

#include "engine/device.h"
#include "engine/micro_benchmark.h"
#include "pure/plan/facts.h"

typedef struct kin_throughput_benchmark kin_throughput_benchmark;

// bytes: memory for weights. With less than twelve times the last-level cache (or less than 128 MB per run) the cache inflates
// the rates.
int kin_throughput_benchmark_open(kin_throughput_benchmark **out, const kin_device *device, uint64_t bytes, kin_err *err);
void kin_throughput_benchmark_close(kin_throughput_benchmark *rates);

// Runs one step of the measurement: 0 <= i < kin_throughput_benchmark_n_steps(), in this order, into the same facts. What the
// device cannot do stays 0.
int kin_throughput_benchmark_n_steps(void);
int kin_throughput_benchmark_step(kin_throughput_benchmark *rates, int i, const kin_benchmark_options *options,
                                  kin_engine_facts *facts, kin_err *err);
