// Architectures: one kin_arch per family, one file each (arch_NAME.c), over the shared blocks of blocks.h.
//
// To add a family: write arch_NAME.c with a kin_arch, list it in arch.c, and give tests/test_engine.c a row.
// docs/ADDING.md walks through an example.
#pragma once

#include "model/graph.h"
#include "model/hparams.h"
#include "model/weights.h"

struct kin_arch {
    const char *name;  // general.architecture
    const char *title; // the models that people know it by
    int rope_type;     // GGML_ROPE_TYPE_*

    // The weights that each layer must and may have, given the hyper-parameters (dense or experts).
    kin_weight_set (*required)(const kin_hparams *hp);
    kin_weight_set (*optional)(const kin_hparams *hp);

    // x: f32 [n_embd, n_tokens], the hidden states before the block -> the same after it, residual added.
    struct ggml_tensor *(*attn)(kin_graph *g, int il, struct ggml_tensor *x);
    struct ggml_tensor *(*ffn)(kin_graph *g, int il, struct ggml_tensor *x);
    // The same in two halves, for layers without experts, so that streaming needs fewer weights at a time: to the activations
    // f32 [n_ff, n_tokens], and from these and g->residual on.
    struct ggml_tensor *(*ffn_in)(kin_graph *g, int il, struct ggml_tensor *x);
    struct ggml_tensor *(*ffn_out)(kin_graph *g, int il, struct ggml_tensor *h);
    // Families with experts: those that ffn will use for x, i32 [n_used, n_tokens], so that they can be fetched before.
    struct ggml_tensor *(*route)(kin_graph *g, int il, struct ggml_tensor *x);
};

// The family of a model. NULL with a sentence if the file names none, or one that is unknown: it names the known ones.
const kin_arch *kin_arch_of(const kin_gguf *gguf, kin_err *err);

// The i-th family, NULL beyond the last.
const kin_arch *kin_arch_at(int i);

extern const kin_arch kin_arch_llama;
extern const kin_arch kin_arch_qwen2;
extern const kin_arch kin_arch_qwen3;
extern const kin_arch kin_arch_qwen3moe;
