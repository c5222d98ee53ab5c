// Architectures: one kin_arch per family, one file each (arch_NAME.c). A family describes: which keys its files have, how its
// layers compute (kin_layer) and which weights they have. The graphs are made of that by blocks.h, for all families alike.
//
// To add a family: write arch_NAME.c with a kin_arch, list it in arch.c, and give tests/test_engine.c a row.
// docs/ADDING.md walks through an example.
#pragma once

#include "model/hparams.h"
#include "model/meta.h"
#include "model/weights.h"

struct kin_arch {
    const char *name;   // general.architecture
    const char *title;  // the models that people know it by
    bool rope_neox;     // which dimensions of a head are pairs: see kin_hparams
    bool is_like_llama; // its layers have nothing that llama's do not: a browser's GPU computes these alone

    const char *const *keys; // those that its reader obeys although other families' files are refused for them; ends with NULL.
                             // NULL: none (model/keys.h)

    // Reads the family's own keys into *hp, which has the common ones; NULL: there are none.
    void (*read)(kin_hparams *hp, kin_meta *keys);

    // Changes *layer, which is like llama's, into the description of layer `il`; NULL: all layers are like llama's.
    void (*layer)(const kin_hparams *hp, int il, kin_layer *layer);

    // The weights that a layer must and may have. NULL: it may have none beside.
    kin_weight_set (*required)(const kin_hparams *hp, const kin_layer *layer);
    kin_weight_set (*optional)(const kin_hparams *hp, const kin_layer *layer);
};

// The family of a model. NULL with a sentence if the file names none, or one that is unknown: it names the known ones.
const kin_arch *kin_arch_of(const kin_gguf *gguf, kin_err *err);

// Reads and checks what a model's metadata says, and describes its layers; *hp has the arch. Fails with a sentence on a missing
// key and on values that cannot be. The list of layers is the caller's to free in either case.
int kin_arch_read(kin_hparams *hp, const kin_gguf *gguf, kin_err *err);

// The i-th family, NULL beyond the last.
const kin_arch *kin_arch_at(int i);

extern const kin_arch kin_arch_llama;
extern const kin_arch kin_arch_qwen2;
extern const kin_arch kin_arch_qwen3;
extern const kin_arch kin_arch_qwen3moe;
extern const kin_arch kin_arch_gemma2;
extern const kin_arch kin_arch_gemma3;
extern const kin_arch kin_arch_glm4;
extern const kin_arch kin_arch_glm4moe;
extern const kin_arch kin_arch_gpt_oss;
extern const kin_arch kin_arch_granite;
extern const kin_arch kin_arch_granitemoe;
extern const kin_arch kin_arch_minimax_m2;
extern const kin_arch kin_arch_mistral3;
extern const kin_arch kin_arch_olmo2;
extern const kin_arch kin_arch_phi3;
extern const kin_arch kin_arch_qwen2moe;
extern const kin_arch kin_arch_smollm3;
