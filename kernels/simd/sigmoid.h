// Functions made of the exponential, for the files that compute gates.
#pragma once

#include "kernels/simd/simd.h"

// e^a, at most e^87.5.
SIMD_INLINE vf exp_at_most(vf a) { return vf_exp(vf_sub(vf_zero(), vf_max(vf_sub(vf_zero(), a), vf_set1(-87.5f)))); }

// x / (1 + e^-a)
SIMD_INLINE vf by_sigmoid(vf x, vf a) { return vf_div(x, vf_add(vf_set1(1), exp_at_most(vf_sub(vf_zero(), a)))); }

// max(a, 0) + ln(1 + t) with t = e^-|a|. With z = t / (2 + t), at most 1/3: ln(1 + t) = 2 z (1 + z^2 / 3 + z^4 / 5 + ...)
SIMD_INLINE vf softplus(vf a) {
    vf t = vf_exp(vf_sub(vf_zero(), vf_abs(a))), z = vf_div(t, vf_add(t, vf_set1(2))), square = vf_mul(z, z),
       sum = vf_set1(1.0f / 15);
    for (int n = 13; n >= 1; n -= 2) sum = vf_add(vf_mul(sum, square), vf_set1(1.0f / (float)n));
    return vf_add(vf_max(a, vf_zero()), vf_mul(vf_add(z, z), sum));
}
