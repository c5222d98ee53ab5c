// A complete model ready to run: file, devices, one shard over all layers, head. The starting point of every engine test.
//
// Owner: the test. Thread: one, as for the shard.
#pragma once

#include "engine/device.h"
#include "engine/shard.h"
#include "model/model.h"
#include "pipeline/loopback.h"

typedef struct kin_runner_options {
    kin_device_options device;
    double gpu_share; // share of the layers, the last ones; 0: none, 1: all and the output layer. Above 0 opens the GPU
    double moe_share; // share of the GPU's layers, the first ones, with their experts on the CPU
    int n_ctx;
    int n_batch; // 1: a prompt is computed token by token
    enum ggml_type kv_type;
    bool flash;
    const char *cache_dir; // NULL: no prepacked cache
    const char *kv_dir;    // for pages of the KV cache; NULL: none
    uint64_t memory;       // limit in bytes for everything; 0: what the machine can spare
    bool keeps_output;     // the output matrix leaves memory last
    kin_stream_mode mode;  // how weights that do not fit in memory are read
} kin_runner_options;

// The CPU with repacking, 256 cells in F16, batches of 64, fused attention.
kin_runner_options kin_runner_options_defaults(void);

typedef struct kin_runner {
    kin_model model;
    kin_devices devices;
    kin_shard *shard;
    kin_loopback_head alone;
    kin_head *head; // of alone
} kin_runner;

int kin_runner_open(kin_runner *runner, const char *path, const kin_runner_options *options, kin_err *err);

// A zeroed runner is allowed.
void kin_runner_close(kin_runner *runner);
