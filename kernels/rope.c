// Rotary position embedding: frequencies and angles in doubles, with functions implemented here, because those of C libraries
// differ in their last bits.
#include <math.h>

#include "kernels/kernels.h"

#define LN2 0x1.62e42fefa39efp-1
#define TAU 0x1.921fb54442d18p2

// ln(x), x > 0 and normal: x = m 2^e with m in [1/sqrt 2, sqrt 2), ln m = 2 atanh((m - 1) / (m + 1)).
static double natural_log(double x) {
    int e;
    double m = frexp(x, &e); // exact
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double z = (m - 1) / (m + 1), z2 = z * z, sum = 0;
    for (int k = 27; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
    return e * LN2 + 2 * z * sum;
}

// e^x for |x| < 700.
static double power_of_e(double x) {
    double n = floor(x / LN2 + 0.5), r = x - n * LN2, sum = 1;
    for (int k = 17; k >= 1; k--) sum = 1 + sum * r / k;
    return ldexp(sum, (int)n); // exact
}

// x in [-pi/4, pi/4]
static double small_sine(double x) {
    double x2 = x * x, sum = 1;
    for (int k = 17; k >= 3; k -= 2) sum = 1 - sum * x2 / (k * (k - 1));
    return x * sum;
}
static double small_cosine(double x) {
    double x2 = x * x, sum = 1;
    for (int k = 18; k >= 2; k -= 2) sum = 1 - sum * x2 / (k * (k - 1));
    return sum;
}

// Error below 1e-9 for angles up to 2^22: positions are whole numbers and the fastest pair cos_sin by 1 for each.
static void sine_cosine(double x, double *sine, double *cosine) {
    if (!(fabs(x) < 0x1p52)) { // factors that are NaN
        *sine = *cosine = NAN;
        return;
    }
    double quarter = floor(x / (TAU / 4) + 0.5);
    double r = x - quarter * 0x1.921fb544p0 - quarter * 0x1.0b4611a626331p-34; // pi / 2 in two parts
    double s = small_sine(r), c = small_cosine(r);
    switch ((int64_t)quarter & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

// YaRN: returns the pair that makes n_rotations full rotations in n_ctx_orig positions, as a real number.
static double pair_with_rotations(const kin_rope *rope, double n_rotations) {
    return rope->n_rot * natural_log(rope->n_ctx_orig / (n_rotations * TAU)) / (2 * natural_log(rope->base));
}

// YaRN: returns how much of pair i's original frequency is kept: 1 for fast pairs, 0 for slow ones, linear in between.
static double yarn_kept(const kin_rope *rope, int i) {
    double first = pair_with_rotations(rope, rope->beta_fast), last = pair_with_rotations(rope, rope->beta_slow);
    first = fmax(0, rope->exact_corners ? first : floor(first));
    last = fmin(rope->n_rot - 1, rope->exact_corners ? last : ceil(last));
    return (1 - fmin(1, fmax(0, (i - first) / fmax(0.001, last - first)))) * rope->ext_factor;
}

void kin_rope_frequencies(const kin_rope *rope, double *freq) {
    double log_base = natural_log(rope->base);
    for (int i = 0; i < rope->n_rot / 2; i++) {
        double own = power_of_e(-2.0 * i / rope->n_rot * log_base);
        if (rope->factors) own /= (double)rope->factors[i];
        double kept = rope->ext_factor != 0 ? yarn_kept(rope, i) : 0;
        freq[i] = own * (kept + (1 - kept) * rope->freq_scale);
    }
}

double kin_rope_length(const kin_rope *rope) {
    return rope->attn_factor * (rope->ext_factor != 0 ? 1 - 0.1 * natural_log(rope->freq_scale) : 1);
}

void kin_rope_factors(const kin_rope *rope, float *factors) {
    const kin_rope plain = {.n_rot = rope->n_rot, .base = rope->base, .freq_scale = 1};
    double freq[KIN_ROPE_PAIRS], own[KIN_ROPE_PAIRS];
    kin_rope_frequencies(rope, freq);
    kin_rope_frequencies(&plain, own);
    for (int i = 0; i < rope->n_rot / 2; i++) factors[i] = (float)(own[i] / freq[i]);
}

void kin_rope_cos_sin(const kin_rope *rope, const double *freq, int32_t pos, float *cos_sin) {
    double length = kin_rope_length(rope);
    for (int i = 0; i < rope->n_rot / 2; i++) {
        double sine, cosine;
        sine_cosine(pos * freq[i], &sine, &cosine);
        cos_sin[i] = (float)(cosine * length);
        cos_sin[rope->n_rot / 2 + i] = (float)(sine * length);
    }
}

float kin_rope_temperature(float scale, int n_ctx_orig, int32_t pos) {
    return (float)(1 + (double)scale * natural_log(1 + (double)(pos / n_ctx_orig)));
}
