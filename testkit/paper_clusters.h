// The clusters and models of prima.cpp's paper, as facts: Table 3 (D1 to D6), A.4's testbed, Table 11 (D0 to D9); Llama models of
// Table 4.
//
// What the paper prints (available RAM and VRAM, disk rates, which GPU, which OS, range of link latencies, layers) is taken as it
// is. What it does not print (rates of CPUs and GPUs, buffers, widths of the 14B, 45B and 60B models) is from data sheets and
// known models, and stands in one table below. The most powerful device is the head, as in A.9.
#pragma once

#include "pure/plan/facts.h"

typedef enum kin_paper_cluster { KIN_PAPER_TABLE_3, KIN_PAPER_A4, KIN_PAPER_TABLE_11, KIN_N_PAPER_CLUSTER } kin_paper_cluster;
typedef enum kin_paper_model {
    KIN_PAPER_8B,
    KIN_PAPER_14B,
    KIN_PAPER_30B,
    KIN_PAPER_45B,
    KIN_PAPER_60B,
    KIN_PAPER_65B,
    KIN_PAPER_70B,
    KIN_N_PAPER_MODEL,
} kin_paper_model;

const char *kin_paper_cluster_name(kin_paper_cluster cluster);
const char *kin_paper_model_name(kin_paper_model model);

// n_device: so many of the cluster's devices; 0: all. Table 3's default is 4, D3 (the head), D2, D1, D4.
void kin_paper_facts(kin_facts *facts, kin_paper_cluster cluster, kin_paper_model model, int n_device);

// The number in the facts of the device that the paper calls so ("D5"), or -1.
int kin_paper_device(const kin_facts *facts, const char *name);
