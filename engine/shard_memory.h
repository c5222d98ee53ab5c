// The memory of a shard, in bytes: what it reserves before its weights get any, from its options (for opening it, and for
// planning), and what it holds.
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

// Returns the hidden states that a ring member holds until they are on its disk (engine/border_log.h).
uint64_t kin_shard_border_bytes(const kin_model *model, const kin_shard_options *options);

// Returns the sum of all these, for the CPU.
uint64_t kin_shard_fixed_bytes(const kin_model *model, const kin_shard_options *options);

// Memory of a shard with a sliding window, in bytes: the sizes that the formula predicts, the memory of the process when the
// shard was open and had computed nothing, and the memory it holds now that the OS cannot reclaim, plus the resident blocks.
typedef struct kin_shard_memory {
    uint64_t weights; // by proposition 5 (pure/plan/sliding_window.h)
    uint64_t kv, buffers, program;
    uint64_t occupied;
} kin_shard_memory;

uint64_t kin_shard_memory_sum(const kin_shard_memory *memory); // by the formula
void kin_shard_memory_format(const kin_shard_memory *memory, char *text, size_t n);
