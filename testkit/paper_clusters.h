// The clusters and models of the papers, as facts. prima.cpp: Table 3 (D1 to D6), Table 11 (D0 to D9), Figure 2 and the testbeds
// of A.4 to A.17, with the models of Tables 4 and 9. TPI-LLM: its laptops and models. The thesis: its testbed, and Qwen 3.
//
// Values that the paper prints are used unchanged (available RAM and VRAM, disk rates, GPU, OS, range of link latencies, layers).
// Others (rates of CPUs and GPUs, buffers, widths of the 14B, 45B and 60B models) come from data sheets and known models; one
// table in the .c file has them. The most powerful device is the head, as in A.9; in the thesis it is the server, which computes
// no layers.
#pragma once

#include "pure/plan/facts.h"

typedef enum kin_paper_cluster {
    KIN_PAPER_TABLE_3,
    KIN_PAPER_A4,
    KIN_PAPER_TABLE_11,
    KIN_PAPER_TABLE_3_SEEN, // D3 as the paper's own measurements of llama.cpp show it
    KIN_PAPER_EQUAL_CPUS,
    KIN_PAPER_A5,
    KIN_PAPER_A9,
    KIN_PAPER_A10,
    KIN_PAPER_A11,
    KIN_PAPER_A14,
    KIN_PAPER_A15,
    KIN_PAPER_THESIS,
    KIN_PAPER_LAPTOPS,
    KIN_N_PAPER_CLUSTER,
} kin_paper_cluster;
typedef enum kin_paper_model {
    KIN_PAPER_8B,
    KIN_PAPER_14B,
    KIN_PAPER_30B,
    KIN_PAPER_45B,
    KIN_PAPER_60B,
    KIN_PAPER_65B,
    KIN_PAPER_70B,
    KIN_PAPER_QWEN_7B,
    KIN_PAPER_QWEN_14B,
    KIN_PAPER_QWEN_32B,
    KIN_PAPER_QWEN_72B,
    KIN_PAPER_F32_3B,
    KIN_PAPER_F32_7B,
    KIN_PAPER_F32_8B,
    KIN_PAPER_F32_13B,
    KIN_PAPER_F32_34B,
    KIN_PAPER_THESIS_06B,
    KIN_PAPER_THESIS_4B,
    KIN_N_PAPER_MODEL,
} kin_paper_model;

const char *kin_paper_cluster_name(kin_paper_cluster cluster);
const char *kin_paper_model_name(kin_paper_model model);

// Short names for command lines: "table3", "70b".
const char *kin_paper_cluster_id(kin_paper_cluster cluster);
const char *kin_paper_model_id(kin_paper_model model);

// n_device: number of the cluster's devices to use; 0: all. Table 3's default is 4: D3 (the head), D2, D1, D4.
void kin_paper_facts(kin_facts *facts, kin_paper_cluster cluster, kin_paper_model model, int n_device);

// Returns the number in the facts of the device with the paper's name ("D5"), or -1.
int kin_paper_device(const kin_facts *facts, const char *name);
