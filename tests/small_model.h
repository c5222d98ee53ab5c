// A small model with random weights for tests of clusters: the file, opened, with its compute device and manifest. Setup and
// teardown for a group of tests.
//
// Only for such tests. Define SMALL_MODEL_MIX before the include for other weight types, SMALL_MODEL_LAYERS for another number
// of layers. Computes with one thread, but several threads may read the objects.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/device.h"
#include "engine/shard.h"
#include "model/manifest.h"
#include "model/model.h"
#include "testkit/model_gen.h"

#ifndef SMALL_MODEL_MIX
#define SMALL_MODEL_MIX "f32"
#endif
#ifndef SMALL_MODEL_LAYERS
#define SMALL_MODEL_LAYERS 4
#endif

enum { N_VOCAB = 300, N_LAYER = SMALL_MODEL_LAYERS, N_EMBD = 64, N_CTX = 64, N_BATCH = 16 };

static char model_path[] = "/tmp/kin-test-model-XXXXXX";
static kin_model model;
static kin_manifest manifest;
static kin_devices devices;

static inline int open_model(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_err err;
    const char *path = model_path;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = N_EMBD;
    spec.n_head = spec.n_head_kv = 2;
    spec.n_vocab = N_VOCAB;
    spec.mix = SMALL_MODEL_MIX;
    int fd = mkstemp(model_path);
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0) return -1;
    if (kin_model_open(&model, model_path, &err) != 0) return -1;
    kin_device_options o = kin_device_options_defaults();
    o.n_threads = 1;
    if (kin_devices_open(&devices, &o, &err) != 0) return -1;
    kin_manifest_options mo = kin_manifest_options_defaults();
    mo.chunk_bytes = KIN_CHUNK_BYTES_MIN;
    return kin_manifest_make(&manifest, &path, 1, &mo, &err);
}

static inline int close_model(void **state) {
    (void)state;
    kin_manifest_fini(&manifest);
    kin_devices_close(&devices);
    kin_model_close(&model);
    return unlink(model_path);
}

// Options of a shard with all layers.
static inline kin_shard_options small_shard(void) {
    kin_shard_options o = kin_shard_options_defaults(&model);
    o.n_ctx = N_CTX;
    o.n_batch = N_BATCH;
    return o;
}
