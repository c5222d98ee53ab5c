// The memory that a shard reserves before its weights get any, in bytes, from its options: for opening it, and for planning.
#pragma once

#include "engine/shard_options.h"

// Returns the compute buffers of the CPU's layers, or of those on the GPU.
uint64_t kin_shard_buffer_bytes(const kin_model *model, const kin_shard_options *options, bool on_gpu);

uint64_t kin_shard_overhead_bytes(void); // the program itself

// Returns the KV cache of some layers, which are on the CPU or on the GPU.
uint64_t kin_shard_kv_bytes(const kin_model *model, const kin_shard_options *options, int layer_begin, int layer_end,
                            bool on_gpu);

// Returns the KV cache of the options' layers that are on the CPU.
uint64_t kin_shard_cpu_kv_bytes(const kin_model *model, const kin_shard_options *options);

// True if the layer with an embedding of the last tokens is here, so that its rows are read from the file.
bool kin_shard_reads_ngrams(const kin_model *model, const kin_shard_options *o);

// Returns the hidden states that a ring member holds until they are on its disk (engine/border_log.h).
uint64_t kin_shard_border_bytes(const kin_model *model, const kin_shard_options *options);

// Returns the sum of all these, for the CPU.
uint64_t kin_shard_fixed_bytes(const kin_model *model, const kin_shard_options *options);
