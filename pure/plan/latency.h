// Latency: how long a token and a prompt take under a plan, and where the time goes. The timeline model.
//
// Computing and hops follow one another; meanwhile each device's disk works all the time (device_time.h). In one pass
//
//     busy = sum over devices (compute + experts + windows + exposed) + k * sum over the ring's hops
//     T    = max(busy, largest stall of a device)
//
// TPOT is T for one token; TTFT is that of the prompt's chunks, which follow each other round the ring (prompt.h). In the
// published model (halda_cost.h) loading times add up; here loading overlaps with the rest, so more rounds can help.
#pragma once

#include "pure/plan/device_time.h"
#include "pure/plan/plan.h"

typedef struct kin_device_prediction {
    double compute_s; // including the output layer, excluding waits
    double windows_s; // starting windows, copies to and from the GPU
    double gpu_s;     // part of these two: the GPU's layers and copies
    double sums_s;    // part of compute_s: the sums of a group
    double experts_s; // reading experts
    double exposed_s; // waiting for streamed weights, without the wait for the slowest disk in the period (disk_bound_s)
    double load_s;    // time that its disk works; for a group, the longest of its members'
    double stall_s;   // lower bound of a pass: the disk's work and the computing that cannot overlap with it
    double hop_s;     // from here to the next member that computes
    // Of the device itself, even if another one stands for its group.
    double own_load_s, resident_bytes, streamed_bytes, gpu_bytes, memory_bytes;
} kin_device_prediction;

typedef struct kin_prediction {
    double tpot_s, ttft_s;
    double compute_s, windows_s, exposed_s, hops_s; // totals; experts count as exposed
    double sums_s;                                  // part of compute_s: the sums of groups
    double hops_latency_s;                          // part of hops_s that does not grow with the tokens of a pass
    double disk_bound_s;                            // by how much TPOT exceeds these totals because a disk is the limit
    int slowest_disk; // the device with that disk, or -1; in a group, the member with the most to read
    kin_device_prediction devices[KIN_FACTS_MAX_DEVICES];
} kin_prediction;

// Predicts the time of one pass: n_tokens of one sequence after n_cached tokens, with logits for the last n_out of them. A
// prompt's chunk wants none or one; a step that verifies drafted tokens wants all. ttft_s stays 0. Fails if the plan is invalid
// (kin_plan_check) or a device cannot hold its layers; the sentence names it.
int kin_latency_pass(const kin_facts *facts, const kin_plan *plan, int n_tokens, int n_cached, int n_out, kin_prediction *out,
                     kin_err *err);

// The same for a step with the next token of each of n_sequences sequences, each after n_cached tokens.
int kin_latency_sequences(const kin_facts *facts, const kin_plan *plan, int n_sequences, int n_cached, kin_prediction *out,
                          kin_err *err);

// Returns the member of the device's group whose disk works longest, or the device itself if it is single.
int kin_latency_slowest_member(const kin_facts *facts, const kin_prediction *prediction, int device);
