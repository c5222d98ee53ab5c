// Growable arrays: room for one more element, at least doubling.
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"

// Makes room for `n` elements of `size` bytes in *array, which has room for *cap. Returns KIN_FAIL if memory runs out or n >
// max; the array is unchanged then.
static inline int kin_grow(void **array, uint32_t *cap, uint64_t n, uint32_t max, size_t size) {
    if (n <= *cap) return 0;
    if (n > max) return KIN_FAIL;
    uint64_t more = *cap < 16 ? 16 : 2 * (uint64_t)*cap;
    if (more < n) more = n;
    if (more > max) more = max;
    void *grown = realloc(*array, (size_t)more * size);
    if (!grown) return KIN_FAIL;
    *array = grown;
    *cap = (uint32_t)more;
    return 0;
}
