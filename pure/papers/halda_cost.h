// The published objective: the cost of a token in prima.cpp's paper (its Eq. 11 to 20), for Halda and for comparison.
//
//   symbol         name                       unit     meaning
//   w, n           n_layer, n_gpu             layers   of a device in one round; n of them on the GPU
//   W, k           n_window, n_rounds                  sum of all devices' w; L / W
//   alpha          alpha_s                    s        one layer on the CPU, including reading its weights and KV cache
//   beta           beta_s                     s        time that a layer on the GPU takes in addition to alpha (negative: less)
//   xi             xi_s                       s        of one window: copies to and from the GPU, the hop to the next device
//   kappa          kappa_s                    s        cost that no assignment changes: the output layer, terms of the sets
//   b, b'          layer_bytes, layer_kv_bytes bytes   weights of a layer; with its KV cache
//   b_i, b_o, V    input, output, n_vocab              bytes of the embedding and the output; vocabulary
//   c_cpu, c_gpu   cpu_buffer, gpu_buffer     bytes    compute buffers
//   d_avail        avail_bytes                bytes    memory (Metal: its working set; Android: with what can be swapped out)
//   s_disk         disk_bytes_s               bytes/s  sequential on Linux, random on macOS
//   n_kv           in layer_kv_bytes          tokens   in the KV cache
//   T              read_rate                  bytes/s  at which an engine reads weights
//   M1 to M4       kin_halda_set                       how a device's OS behaves when memory runs out
//
// All terms add up: the paper assumes that the OS has not begun to load when computing begins. So in this objective more rounds
// never help, and the sum exceeds the time of a device that streams ahead.
//
// FLOPS are those of products with a prompt batch, as prima.cpp measures them. Objective and algorithm exist as published and as
// in the released prima.cpp, which differ:
//
//                              KIN_HALDA_PUBLISHED                     KIN_HALDA_RELEASED
//   reading (Eq. 14)           b' / T, the output too                  omitted
//   xi (Eq. 14, 19)            copies to and from the GPU, and hops    omitted
//   n_kv                       the tokens that are cached              the whole context
//   disk of Android            sequential; the paper does not say it   random
//   first n (line 1)           0                                       w, where there is a GPU
//   cost of the head's w       unchanged                               divided by 1.01, so that the head comes first
//   best (line 12)             of all iterations                       of each iteration
//   overloaded (line 13)       VRAM is full and the CPU has layers,    a GPU does not have all layers of its device, or RAM is
//                              or RAM is full                          full where there is no GPU
//   line 13 does not apply     never                                   if a device has one layer, on its CPU
#pragma once

#include "pure/plan/facts.h"

typedef enum kin_halda_terms_kind { KIN_HALDA_PUBLISHED, KIN_HALDA_RELEASED } kin_halda_terms_kind;

typedef enum kin_halda_set {
    KIN_HALDA_M1, // macOS without Metal, too little RAM: the excess is loaded for every token
    KIN_HALDA_M2, // macOS with Metal, too little memory: everything is loaded for every token
    KIN_HALDA_M3, // Linux or Android, too little RAM: the excess is loaded for every token
    KIN_HALDA_M4, // enough RAM, or a disk so slow that RAM must be enough
} kin_halda_set;

typedef struct kin_halda_device {
    int device; // its number in the facts
    kin_os os;
    bool has_gpu, is_metal, is_head;
    double alpha_s, beta_s, xi_s;
    double avail_bytes, gpu_avail_bytes, disk_bytes_s;
    double fixed_bytes; // b_cio (Eq. 33), plus c_gpu with Metal
} kin_halda_device;

typedef struct kin_halda_model {
    int n_device, n_layer;
    kin_halda_device devices[KIN_FACTS_MAX_DEVICES]; // in ring order, the head first
    double layer_bytes, layer_kv_bytes;
    double kappa_s;      // without the terms of the sets
    double output_bytes; // b_o
    double row_bytes;    // b_i / V
} kin_halda_model;

// Fills `h` for the devices `members` in the given order. hop_s // [n_members]: time from each member to the next.
void kin_halda_model_init(kin_halda_model *h, const kin_facts *facts, const int *members, const double *hop_s, int n_members,
                          kin_halda_terms_kind kind);

// Returns the set of device i with w layers in each of k rounds, n of them on the GPU. slow: its disk is so slow that its memory
// must be enough.
kin_halda_set kin_halda_set_of(const kin_halda_model *h, int i, int w, int n, int k, bool slow);

// Coefficients of Eq. (6) for one device in a set: it adds k (a w + b n + c) + constant to the objective.
typedef struct kin_halda_terms {
    double a_s, b_s, c_s, constant_s;
} kin_halda_terms;

kin_halda_terms kin_halda_terms_of(const kin_halda_model *h, int i, kin_halda_set set);

// Return the layers per round that memory holds, divided by W: z of Eq. (9), and z_gpu of Eq. (10).
double kin_halda_memory_share(const kin_halda_model *h, int i);
double kin_halda_gpu_share(const kin_halda_model *h, int i);

// Returns TPOT by Eq. (11) to (19), including the loading that each OS does, for L = k W.
double kin_halda_objective_s(const kin_halda_model *h, const int *w, const int *n, int k);
