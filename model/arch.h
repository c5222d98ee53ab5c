// Architectures: one kin_arch per family, one file each (arch_NAME.c). Each describes which keys the family's files have, how its
// layers compute (kin_layer) and which weights they have. blocks.h builds the graphs of all families from this description.
//
// To add a family: write arch_NAME.c with a kin_arch and list it in arch.c. docs/ADDING.md walks through an example.
#pragma once

#include "model/hparams.h"
#include "model/meta.h"
#include "model/weights.h"

struct kin_arch {
    const char *name;     // general.architecture
    const char *title;    // display name: the models it stands for
    bool rope_neox;       // which dimensions of a head are pairs: see kin_hparams
    bool mixes_layers;    // layers without key and value heads are not attention
    bool never_rotates;   // no layer has a rope, and its files may say that no dimension rotates
    bool drafts;          // kin computes the draft blocks that its files may have (model/draft_block.h)
    bool drafts_unnormed; // they take hidden states as they are, not what the output norm or their own makes of them
    bool centers_drafts;  // the norm of what they make subtracts the mean first (LayerNorm)
    bool is_like_llama;   // its layers have nothing beyond llama's: a browser's GPU can compute only such families

    const char *output_norm; // the tensor's name without ".weight"; NULL: "output_norm"
    bool has_no_output_norm; // what ends several streams is its norm
    bool biases_output_norm; // "output_norm.bias" is added to it
    const char *const *keys; // keys that its reader handles although other families' files with them are refused; ends with NULL.
                             // NULL: none (model/keys.h)

    const char *const *ignored; // names of tensors of layers ("blk.N." left out) that kin accepts and, unless a layer requires
                                // them, never reads, because what they compute changes nothing in the contexts that kin computes;
                                // ends with NULL. NULL: none
    bool drafts_ignore;         // draft blocks never read them either

    // Reads the family's own keys into *hp, which already has the common ones; NULL: it has none.
    void (*read)(kin_hparams *hp, kin_meta *keys);

    // Turns *layer, initialised like llama's, into the description of layer `il`; NULL: all layers are like llama's.
    void (*layer)(const kin_hparams *hp, int il, kin_layer *layer);

    // Reads what the family's keys say of the draft block i_block, which *hp describes as its only layer; NULL: nothing.
    void (*draft_layer)(kin_hparams *hp, kin_meta *keys, int i_block);

    // The weights that a layer must and may have. `optional` NULL: none.
    kin_weight_set (*required)(const kin_hparams *hp, const kin_layer *layer);
    kin_weight_set (*optional)(const kin_hparams *hp, const kin_layer *layer);
};

// Returns the family of a model. NULL with an error if the file names none or an unknown one; the error lists the known ones.
const kin_arch *kin_arch_of(const kin_gguf *gguf, kin_err *err);

// Reads and checks a model's metadata, and describes its layers; *hp already has the arch. Fails on a missing key or an
// impossible value. The caller frees the list of layers in either case.
int kin_arch_read(kin_hparams *hp, const kin_gguf *gguf, kin_err *err);

// Returns the i-th family, NULL beyond the last.
const kin_arch *kin_arch_at(int i);

extern const kin_arch kin_arch_hy_v3;
extern const kin_arch kin_arch_kimi_linear;
extern const kin_arch kin_arch_laguna;
extern const kin_arch kin_arch_lfm2;
extern const kin_arch kin_arch_lfm2moe;
extern const kin_arch kin_arch_llama;
extern const kin_arch kin_arch_qwen2;
extern const kin_arch kin_arch_qwen3;
extern const kin_arch kin_arch_qwen3moe;
extern const kin_arch kin_arch_qwen3next;
extern const kin_arch kin_arch_qwen35;
extern const kin_arch kin_arch_qwen35moe;
extern const kin_arch kin_arch_qwen4exp;
extern const kin_arch kin_arch_cohere2;
extern const kin_arch kin_arch_deepseek2;
extern const kin_arch kin_arch_deepseek32;
extern const kin_arch kin_arch_deepseek4;
extern const kin_arch kin_arch_exaone;
extern const kin_arch kin_arch_exaone4;
extern const kin_arch kin_arch_gemma2;
extern const kin_arch kin_arch_gemma3;
extern const kin_arch kin_arch_gemma4;
extern const kin_arch kin_arch_glm4;
extern const kin_arch kin_arch_glm4moe;
extern const kin_arch kin_arch_glm5_next;
extern const kin_arch kin_arch_glm_dsa;
extern const kin_arch kin_arch_gpt_oss;
extern const kin_arch kin_arch_granite;
extern const kin_arch kin_arch_granitemoe;
extern const kin_arch kin_arch_mimo2;
extern const kin_arch kin_arch_minimax_m2;
extern const kin_arch kin_arch_minimax_m3;
extern const kin_arch kin_arch_mistral3;
extern const kin_arch kin_arch_mistral4;
extern const kin_arch kin_arch_muse_glimmer;
extern const kin_arch kin_arch_nemotron_h;
extern const kin_arch kin_arch_nemotron_h_moe;
extern const kin_arch kin_arch_olmo2;
extern const kin_arch kin_arch_phi3;
extern const kin_arch kin_arch_qwen2moe;
extern const kin_arch kin_arch_smollm3;
extern const kin_arch kin_arch_stablelm;
extern const kin_arch kin_arch_step35;
