// A back-end: its functions in one table.
#include "kernels/simd/backend.h"

const kin_kernels SIMD_FN(kin_kernels) = {
    .name = SIMD_NAME,
    .quantize = SIMD_FN(kin_quantize),
    .matmul = SIMD_FN(kin_matmul),
};
