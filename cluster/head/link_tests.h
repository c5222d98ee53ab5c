// Measurements of a cluster's devices and of the links between them, which the devices make at the head's request: profiles, the
// tests of a device that joins (cluster/pairwise_tests.h), and which pairs do not reach each other.
//
// Owner: kin_cluster. Its other parts may read `measurements`. Thread: the loop's.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head_options.h"
#include "cluster/measurements.h"
#include "cluster/pairwise_tests.h"
#include "cluster/probe_schedule.h"

typedef struct kin_cluster_link_tests {
    const kin_cluster_options *o;
    kin_cluster_devices *devices;
    kin_measurements *measurements;
    kin_pairwise_tests *pairwise;
    kin_probe_schedule probes;
} kin_cluster_link_tests;

int kin_cluster_link_tests_open(kin_cluster_link_tests *tests, const kin_cluster_options *options, kin_cluster_devices *devices,
                                kin_err *err);
void kin_cluster_link_tests_close(kin_cluster_link_tests *tests);

void kin_cluster_link_tests_handle_profile(kin_cluster_link_tests *tests, uint32_t from, const kin_proto_profile *m);
void kin_cluster_link_tests_handle_measured(kin_cluster_link_tests *tests, uint32_t from, const kin_proto_measured *m);
// Handles a device's DEVICE message. True: the device measures its links first, and the membership gets the message later.
bool kin_cluster_link_tests_handle_device(kin_cluster_link_tests *tests, uint32_t from, const kin_proto_device *device);

// Logs, once for each pair, that neither reaches the other, and why.
void kin_cluster_link_tests_log_unreachable(kin_cluster_link_tests *tests, const kin_proto_id *from, const kin_proto_id *to,
                                            const char *reason);
// Ends the measurements of a device whose control link is gone.
void kin_cluster_link_tests_forget(kin_cluster_link_tests *tests, uint32_t link);
// Call it ten times a second.
void kin_cluster_link_tests_tick(kin_cluster_link_tests *tests, kin_time now);
