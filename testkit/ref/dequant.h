// Converts rows of GGUF's number formats to float32.
//
// A row is a run of blocks; a block holds a fixed number of elements in a fixed number of bytes (layouts in dequant.c). Nothing
// is allocated, and nothing can fail for a known type: check it first with kin_ref_block_n. Any thread, any alignment, any host
// byte order.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum kin_ref_type { // GGUF's numbers
    KIN_REF_F32 = 0,
    KIN_REF_F16 = 1,
    KIN_REF_Q4_0 = 2,
    KIN_REF_Q4_1 = 3,
    KIN_REF_Q5_0 = 6,
    KIN_REF_Q5_1 = 7,
    KIN_REF_Q8_0 = 8,
    KIN_REF_Q2_K = 10,
    KIN_REF_Q3_K = 11,
    KIN_REF_Q4_K = 12,
    KIN_REF_Q5_K = 13,
    KIN_REF_Q6_K = 14,
    KIN_REF_IQ4_XS = 23,
    KIN_REF_BF16 = 30,
    KIN_REF_MXFP4 = 39,
} kin_ref_type;

#define KIN_REF_BLOCK_MAX 256 // elements of the largest block; a multiple of every block size

// Elements and bytes per block; both 0 for a type not listed above.
int kin_ref_block_n(int type);
size_t kin_ref_block_bytes(int type);

// blocks // (n / block_n, block_bytes) -> out // (n). The type must be known, and n a multiple of its block size.
void kin_ref_dequant(int type, const uint8_t *blocks, int n, float *out);
