// Decodes any bytes as the kept counts of experts. Counts that are decoded can be encoded to the same bytes.
#include <stdlib.h>
#include <string.h>

#include "pure/plan/expert_counts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// The corpus contains counts of this model (tests/test_expert_counts.c).
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    float counts[6];
    kin_expert_counts c = {UINT64_C(0x1122334455667788), 2, 3, counts};
    kin_err err = {""};
    uint8_t *again = malloc(kin_expert_counts_bytes(2, 3));
    if (!again) return 0;
    int rc = kin_expert_counts_decode(&c, bytes, size, &err);
    kin_assert(rc == 0 || (rc == KIN_FAIL && err.text[0]));
    if (rc == 0) {
        kin_expert_counts_encode(&c, again);
        kin_assert(size == kin_expert_counts_bytes(2, 3) && memcmp(again, bytes, size) == 0);
    }
    free(again);
    return 0;
}
