// Latency: what a plan's token and prompt will take, and where the time goes. The timeline model.
//
// Computing and hops come one after the other; each device's disk works all the time behind them (device_time.h). In one pass
//
//     busy = sum over devices (compute + experts + windows + exposed) + k * sum over the ring's hops
//     T    = max(busy, largest stall of a device)
//
// TPOT is T for one token, TTFT that of the prompt's chunks, which follow each other round the ring (prompt.h). In the published
// model (halda_cost.h) loading adds up; here it overlaps, so more rounds can gain.
#pragma once

#include "pure/plan/device_time.h"
#include "pure/plan/plan.h"

typedef struct kin_device_prediction {
    double compute_s; // with the output layer, without waiting
    double windows_s; // starting windows, copies to and from the GPU
    double gpu_s;     // of these two, the GPU's layers and copies
    double sums_s;    // of compute_s, the sums of a group
    double experts_s; // reading experts
    double exposed_s; // waiting for streamed weights, without the period's wait for the slowest disk (disk_bound_s)
    double load_s;    // its disk's work; of a group, the longest of its members'
    double stall_s;   // lower bound of a pass: its disk's work, and the part of its computing that cannot overlap with it
    double hop_s;     // from here to the next member that computes
    // Of the device itself, also where another one stands for its group.
    double own_load_s, resident_bytes, streamed_bytes, gpu_bytes, memory_bytes;
} kin_device_prediction;

typedef struct kin_prediction {
    double tpot_s, ttft_s;
    double compute_s, windows_s, exposed_s, hops_s; // sums; experts count as exposed
    double sums_s;                                  // of compute_s, those of groups
    double hops_latency_s;                          // of hops_s, what does not grow with the tokens of a pass
    double disk_bound_s;                            // by how much TPOT exceeds these sums because a disk is the limit
    int slowest_disk;                               // that device, or -1; of a group, the member with the most to read
    kin_device_prediction devices[KIN_FACTS_MAX_DEVICES];
} kin_prediction;

// The time of one pass: n_tokens of one sequence after n_cached, with the logits of n_out of them. A prompt's chunk wants none or
// one; where drafted tokens are verified, all. ttft_s stays 0. Fails if the plan is not one (kin_plan_check), or if a device
// cannot hold its part; the sentence says which.
int kin_latency_pass(const kin_facts *facts, const kin_plan *plan, int n_tokens, int n_cached, int n_out, kin_prediction *out,
                     kin_err *err);

// The same for a step with the next token of each of n_texts, all after n_cached of their own.
int kin_latency_texts(const kin_facts *facts, const kin_plan *plan, int n_texts, int n_cached, kin_prediction *out, kin_err *err);

// The member of the device's group that reads longest; of a device on its own, that.
int kin_latency_slowest_member(const kin_facts *facts, const kin_prediction *prediction, int device);
