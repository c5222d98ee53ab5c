// Graphs on a GPU: WebGPU (web/gpu.js) holds the weights, the KV cache and a copy of the graph's memory, and computes nodes of
// kin's kernels. The `data` of tensors there is the number of their buffer, which cannot be dereferenced.
//
// On failure the host's functions throw a JavaScript error that ends the module (web/host.h); the page then computes without the
// GPU.
// Thread: the one that opens plans and computes graphs.
#pragma once

#include <ggml.h>

#include "model/hparams.h"

void kin_gpu_set(bool on); // call before anything is open; frees all buffers
bool kin_gpu_is_on(void);

// Throws an error for a model that the GPU cannot compute.
void kin_gpu_check(const kin_hparams *hp);

// True if a node is computed on the CPU, before all GPU work.
bool kin_gpu_is_here(const struct ggml_tensor *node);

// Allocates a tensor on the GPU. bytes NULL: zeros, for the KV cache.
void kin_gpu_put(struct ggml_tensor *tensor, const void *bytes);
bool kin_gpu_has(const struct ggml_tensor *tensor); // true if its memory is on the GPU

// arena: memory of the graph's tensors, from which inputs are uploaded and to which outputs are downloaded.
void kin_gpu_compute(struct ggml_cgraph *graph, uint8_t *arena, size_t n);
