// What a model asks of a device that runs it: bytes and operations, as the engine really lays them out and computes them.
//
// Everything is read from the model's directory and from graphs that are built but never run; no weights are read. The same
// model and options give the same facts on every device, so the head makes them once for a whole ring.
//
// The model is borrowed for the call. Plain functions without state; any thread.
#pragma once

#include "engine/shard.h"
#include "pure/plan/facts.h"

// Of options: n_ctx, n_batch, kv_type, flash and ggml_kernels count. Fails where the model has more layers than can be planned.
int kin_model_facts_of(kin_model_facts *out, const kin_model *model, const kin_shard_options *options, kin_err *err);

// The planner's type of a weight type of ggml.
kin_quant kin_quant_of(enum ggml_type type);
