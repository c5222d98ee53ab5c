// Rotary position embedding: a head's elements are grouped in pairs, and pair i is rotated by an angle that grows with the
// position, more slowly for each further pair.
//
//   theta_i = pos * freq_base^(-2i / n_rot) / factor_i
//
// Scaling, for contexts longer than in training: linear multiplies every theta by freq_scale. YaRN (arXiv:2309.00071) does so
// only for slow pairs, leaves fast ones unchanged, blends in between, and lengthens the vectors a little.
#pragma once

#include <stdbool.h>

typedef enum kin_ref_rope_kind {
    KIN_REF_ROPE_NORMAL, // pair i is elements 2i and 2i + 1
    KIN_REF_ROPE_NEOX,   // pair i is elements i and i + n_rot / 2
} kin_ref_rope_kind;

typedef struct kin_ref_rope {
    kin_ref_rope_kind kind;
    int n_rot; // leading elements of a head that are rotated; even
    float freq_base;
    float freq_scale;  // 1 / rope.scaling.factor; 1 without scaling
    float attn_factor; // length of the rotated vectors; 1 by default
    bool yarn;
    int n_ctx_orig;  // this and the rest are for YaRN only: training context,
    float beta_fast; // pairs with more rotations than this in n_ctx_orig are unchanged,
    float beta_slow; // pairs with fewer than this are fully scaled
} kin_ref_rope;

// Computes cosine and sine of every pair at `pos`. factors // (n_rot / 2) or NULL, cos_sin // (n_rot / 2, 2)
void kin_ref_rope_cos_sin(const kin_ref_rope *rope, const float *factors, int pos, float *cos_sin);

// Rotates one head in place. cos_sin // (n_rot / 2, 2), head // (at least n_rot)
void kin_ref_rope_apply(const kin_ref_rope *rope, const float *cos_sin, float *head);
