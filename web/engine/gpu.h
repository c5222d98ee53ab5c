// Graphs on a GPU: a page's WebGPU (web/gpu.js) has the weights, the KV cache and a copy of the graph's memory, and computes
// nodes of kin's kernels. Tensors there have the number of their buffer in `data`; there is nothing to be looked at.
//
// What it cannot compute ends the module with an error of JavaScript's, from the host's functions (web/host.h): the page computes
// without it then.
// Thread: the one that opens plans and computes graphs.
#pragma once

#include <ggml.h>

#include "model/hparams.h"

void kin_gpu_set(bool on); // before anything is opened; frees what is there
bool kin_gpu_is_on(void);

// Refuses a model that is not computed there.
void kin_gpu_check(const kin_hparams *hp);

// Whether a node is computed here, before all that the GPU does.
bool kin_gpu_is_here(const struct ggml_tensor *node);

// Gives a tensor memory there. bytes NULL: zeros, of the KV cache.
void kin_gpu_put(struct ggml_tensor *tensor, const void *bytes);
bool kin_gpu_has(const struct ggml_tensor *tensor); // whether its memory is there

// arena: memory of the graph's tensors. Inputs are taken from there, outputs are put there.
void kin_gpu_compute(struct ggml_cgraph *graph, uint8_t *arena, size_t n);
