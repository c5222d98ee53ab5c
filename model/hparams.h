// Hyper-parameters: what a model's metadata says about its shape and arithmetic.
// Plain data, read once from the GGUF, checked there, const afterwards.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"

typedef struct kin_arch kin_arch;

#define KIN_MAX_EXPERTS 4096

typedef struct kin_hparams {
    const kin_arch *arch;

    int n_layer;
    int n_embd;
    int n_vocab;
    int n_ctx_train;
    int n_head;
    int n_head_kv;
    int head_dim;
    int n_ff;          // of a dense layer
    int n_expert;      // 0: dense
    int n_expert_used; // routed experts per token
    int n_ff_exp;      // of one expert
    float rms_eps;

    // Rotary position embedding. The fields carry llama.cpp's names for YaRN's parameters.
    int n_rot; // dimensions of a head that rotate
    float rope_base;
    float rope_freq_scale; // 1 / scaling factor
    float rope_ext_factor; // 1 for YaRN, else 0
    float rope_attn_factor;
    float rope_beta_fast, rope_beta_slow;
    int rope_n_ctx_orig;
} kin_hparams;

static inline int kin_hparams_n_embd_q(const kin_hparams *hp) {
    return hp->n_head * hp->head_dim;
}

static inline int kin_hparams_n_embd_kv(const kin_hparams *hp) {
    return hp->n_head_kv * hp->head_dim;
}

// Reads and checks the keys of a family ("llama.block_count"); arch is the caller's to set. Fails with a sentence on a missing
// key and on values that cannot be.
int kin_hparams_read(kin_hparams *hp, const kin_gguf *gguf, const char *family, kin_err *err);
