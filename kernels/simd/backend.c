// A back-end's table of functions.
#include "kernels/simd/backend.h"

const kin_kernels SIMD_FN(kin_kernels) = {
    .name = SIMD_NAME,
    .quantize = SIMD_FN(kin_quantize),
    .matmul = SIMD_FN(kin_matmul),
    .kv_store = SIMD_FN(kin_kv_store),
    .attend = SIMD_FN(kin_attend),
    .attend_merge = SIMD_FN(kin_attend_merge),
    .rms_norm = SIMD_FN(kin_rms_norm),
    .center = SIMD_FN(kin_center),
    .add = SIMD_FN(kin_add),
    .add_scaled = SIMD_FN(kin_add_scaled),
    .gate = SIMD_FN(kin_gate),
    .gate_limited = SIMD_FN(kin_gate_limited),
    .scale_sigmoid = SIMD_FN(kin_scale_sigmoid),
    .gate_heads = SIMD_FN(kin_gate_heads),
    .cap = SIMD_FN(kin_cap),
    .rope = SIMD_FN(kin_rope),
    .route = SIMD_FN(kin_route),
    .sinkhorn = SIMD_FN(kin_sinkhorn),
    .convolve = SIMD_FN(kin_convolve),
    .unit = SIMD_FN(kin_unit),
    .delta_factors = SIMD_FN(kin_delta_factors),
    .delta = SIMD_FN(kin_delta),
};
