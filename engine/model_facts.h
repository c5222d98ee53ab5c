// What running a model requires of a device: bytes and operations, as the engine lays them out and computes them.
//
// Everything is derived from the model's tensor directory and from graphs that are built but never run; no weights are read. The
// same model and options give the same facts on every device, so the head computes them once for a whole ring.
//
// The model is borrowed for the call. Plain functions without state; any thread.
#pragma once

#include "engine/shard.h"
#include "pure/plan/facts.h"

// Only n_ctx, n_batch, kv_type, flash and ggml_kernels of the options matter. Fails if the model has more layers than can be
// planned.
int kin_model_facts_of(kin_model_facts *out, const kin_model *model, const kin_shard_options *options, kin_err *err);

// Returns the planner's type for a ggml weight type.
kin_quant kin_quant_of(enum ggml_type type);
