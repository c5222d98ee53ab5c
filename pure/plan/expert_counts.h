// How much each expert of a model is used, as it is kept between runs: a small file beside the prepacked cache.
//
// The counts are those of the cache of experts (expert_cache.h): tokens that used the expert, halved every HALF_SLOW tokens. With
// them a run begins with the experts in memory that earlier runs used most.
//
// Layout, all little-endian:
//   0   8  magic "kinexpc1"
//   8   8  model: its content (kin_packed_key.model)
//   16  4  layers
//   20  4  experts of each layer
//   24     layers * experts * 2: 32 times the count, rounded; UINT16_MAX: this much or more
//       8  hash of all before
//
// Pure: no I/O.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_expert_counts {
    uint64_t model;
    int n_layer, n_expert;
    float *counts; // [n_layer * n_expert] the caller's
} kin_expert_counts;

// Returns the bytes of an encoding with this shape.
size_t kin_expert_counts_bytes(int n_layer, int n_expert);

// to // [kin_expert_counts_bytes]
void kin_expert_counts_encode(const kin_expert_counts *counts, uint8_t *to);

// Fills the counts; model and shape are those expected. Fails, leaving the counts as they are, if the bytes are damaged, of
// another version, or of another model.
int kin_expert_counts_decode(kin_expert_counts *counts, const uint8_t *bytes, size_t n, kin_err *err);

// Predicts the share of needed experts that are in memory if memory has the most used ones: hits[i] for the share in_memory[i] of
// all experts. A cache that follows the text has more. Few counts say little: each layer's are drawn to their mean by the part of
// their variance that chance explains (as much as the mean, by Poisson's law). Layers without counts are left out. KIN_ABSENT:
// there are too few counts.
int kin_expert_counts_hits(const kin_expert_counts *counts, const double *in_memory, double *hits, int n, kin_err *err);
