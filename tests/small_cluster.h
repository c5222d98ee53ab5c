// A head and devices that share the small model, for tests that run both in one process.
//
// Only for such tests. The test decides what the head does and how many devices there are.
#pragma once

#include <string.h>

#include "cluster/cluster.h"
#include "tests/joined.h"
#include "tests/place.h"
#include "tests/small_model.h"

static inline kin_join_options device_with_model(uint8_t id, const char *name, uint16_t head_port) {
    kin_join_options o = device_options(id, name, head_port);
    o.model_path = model_path;
    memcpy(o.model_hash.bytes, manifest.hash, sizeof o.model_hash.bytes);
    o.no_cache = true;
    o.n_threads = 1;
    return o;
}

// The test sets the plan.
static inline kin_cluster_options cluster_options(int n_expected) {
    static const char *const path = model_path;
    return (kin_cluster_options){.id = {{100}},
                                 .name = "desk",
                                 .version = "test",
                                 .key = key,
                                 .listen = "127.0.0.1",
                                 .hidden = true,
                                 .model = &model,
                                 .manifest = &manifest,
                                 .paths = &path,
                                 .devices = &devices,
                                 .shard = small_shard(),
                                 .n_expected = n_expected};
}

static inline kin_cluster *open_small_cluster(const kin_cluster_options *options) {
    kin_cluster *c;
    kin_err err;
    if (kin_cluster_open(&c, options, &err) != 0) fail_msg("%s", err.text);
    return c;
}
#define open_small_cluster(...) FROM_TEST(open_small_cluster(__VA_ARGS__))

// Plans equal numbers of layers for all devices, in two rounds.
static inline int plan_two_rounds(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    (void)user;
    return kin_plan_even(q->candidates, q->n, N_LAYER, 2, out, err);
}
