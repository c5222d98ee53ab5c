// The counts of experts of earlier runs (pure/plan/expert_counts.h), in a file beside the prepacked cache: FILE.pack.experts.
//
// Several processes may use one file, each for the layers that it computes: saving keeps what the file says about other layers.
// The last one to save wins where they overlap. The file is a hint: without it, or if it is damaged or of another model, a run
// begins without counts.
//
// Plain functions. Thread: any.
#pragma once

#include "engine/experts.h"
#include "engine/packed.h"
#include "model/model.h"

// Loads the counts of earlier runs into the cache of experts. Returns 0; KIN_ABSENT if no run has left counts; KIN_FAIL if the
// file cannot be used.
int kin_expert_history_load(kin_experts *experts, const kin_packed *packed, int n_layer, int n_expert, kin_err *err);

// Predicts the hits of kin_expert_counts_hits by the counts of earlier runs of a model whose prepacked cache is in `dir`,
// whatever its variant. Returns KIN_ABSENT if no counts were kept, or too few.
int kin_expert_history_hits(const char *dir, const kin_model *model, const double *in_memory, double *hits, int n, kin_err *err);

// Replaces the file.
int kin_expert_history_save(kin_experts *experts, const kin_packed *packed, int n_layer, int n_expert, kin_err *err);
