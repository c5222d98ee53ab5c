#include "testkit/ref/rope.h"

#include <math.h>

#define TAU 6.283185307179586

// The pair (as a real number) that makes n_rotations full cos_sin in n_ctx_orig positions:
// n_ctx_orig * freq_base^(-2i / n_rot) = tau * n_rotations, solved for i.
static double pair_with_rotations(const kin_ref_rope *rope, double n_rotations) {
    return rope->n_rot * log(rope->n_ctx_orig / (n_rotations * TAU)) / (2 * log((double)rope->freq_base));
}

// YaRN: returns how much of pair i's original frequency is kept: 1 for fast pairs, 0 for slow ones, linear in between.
static double yarn_kept(const kin_ref_rope *rope, int i) {
    const double first = fmax(0, floor(pair_with_rotations(rope, (double)rope->beta_fast)));
    const double last = fmin(rope->n_rot - 1, ceil(pair_with_rotations(rope, (double)rope->beta_slow)));
    return 1 - fmin(1, fmax(0, (i - first) / fmax(0.001, last - first)));
}

void kin_ref_rope_cos_sin(const kin_ref_rope *rope, const float *factors, int pos, float *cos_sin) {
    const double scale = (double)rope->freq_scale;
    const double length = (double)rope->attn_factor * (rope->yarn ? 1 - 0.1 * log(scale) : 1);
    for (int i = 0; i < rope->n_rot / 2; i++) {
        const double kept = rope->yarn ? yarn_kept(rope, i) : 0;
        double theta = pos * pow((double)rope->freq_base, -2.0 * i / rope->n_rot);
        if (factors) theta /= (double)factors[i];
        theta *= kept + (1 - kept) * scale;
        cos_sin[2 * i] = (float)(cos(theta) * length);
        cos_sin[2 * i + 1] = (float)(sin(theta) * length);
    }
}

void kin_ref_rope_apply(const kin_ref_rope *rope, const float *cos_sin, float *head) {
    const int half = rope->n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *a = rope->kind == KIN_REF_ROPE_NORMAL ? head + 2 * i : head + i;
        float *b = rope->kind == KIN_REF_ROPE_NORMAL ? a + 1 : a + half;
        const float cosine = cos_sin[2 * i], sine = cos_sin[2 * i + 1], a0 = *a, b0 = *b;
        *a = a0 * cosine - b0 * sine;
        *b = a0 * sine + b0 * cosine;
    }
}
